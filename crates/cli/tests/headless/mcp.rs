//! `convoke mcp` of the real binary: settings keep what people wrote, and servers are really asked.

use convoke_testkit::{Ran, TestEnvironment, run, scripted_mcp_binary};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::convoke;

fn mcp(environment: &TestEnvironment, args: &[&str]) -> Ran {
    run(&mut convoke(environment, &[&["mcp", "--skip-trust"], args].concat()), "")
}

fn server() -> String {
    scripted_mcp_binary().display().to_string()
}

fn object(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_server_is_added_listed_tested_replaced_and_removed_and_comments_stay() {
    let environment = TestEnvironment::new();
    let written = "{\n  // mine\n  \"mcpServers\": {\n    \"old\": {\"command\": \"no-such-program\"}, // keep\n  },\n  \"ui\": {\"theme\": \"x\"}\n}\n";
    environment.write("workspace/.convoke/settings.json", written);
    let server = server();
    let added = mcp(
        &environment,
        &[
            "add",
            "--trust",
            "--timeout",
            "9000",
            "-e",
            "A=b=c",
            "--exclude-tools",
            "hang,crash",
            "--description",
            "a \"test\"",
            "db",
            "--",
            &server,
            "--garbage",
        ],
    );
    assert_eq!(added.code, Some(0), "{added:?}");
    let text = environment.read("workspace/.convoke/settings.json").unwrap();
    assert!(text.contains("  // mine\n") && text.contains("// keep") && text.contains("\"theme\": \"x\""), "{text}");

    let listed = object(&mcp(&environment, &["list", "--json"]));
    let [old, db] = [&listed["servers"][0], &listed["servers"][1]];
    assert_eq!((&old["name"], &old["state"]), (&json!("old"), &json!("failed")));
    assert!(old["reason"].as_str().unwrap().contains("no-such-program"), "{old}");
    assert_eq!((&db["name"], &db["state"], &db["description"]), (&json!("db"), &json!("ready"), &json!("a \"test\"")));
    assert_eq!((&db["tools"], &db["prompts"], &db["resources"]), (&json!(9), &json!(1), &json!(1)));
    let listed = mcp(&environment, &["list"]);
    assert!(listed.stdout.contains("9 tools, 1 prompt, 1 resource"), "{listed:?}");

    let tested = mcp(&environment, &["test", "db"]);
    assert_eq!(tested.code, Some(0), "{tested:?}");
    for part in
        ["mcp_db_echo - Says it again.", "scripted 1, protocol 2025-06-18", "  greet", "  note://one", "ready in"]
    {
        assert!(tested.stdout.contains(part), "{part}: {tested:?}");
    }
    assert!(!tested.stdout.contains("mcp_db_hang"), "{tested:?}");
    let failed = mcp(&environment, &["test", "old"]);
    assert!(failed.code == Some(1) && failed.stderr.contains("no-such-program"), "{failed:?}");
    assert_eq!(mcp(&environment, &["test", "other"]).code, Some(42));

    let replaced = mcp(&environment, &["add", "-t", "http", "-H", "X-Key: $KEY", "db", "https://db.example/mcp"]);
    assert!(replaced.code == Some(0) && replaced.stdout.starts_with("replaced db"), "{replaced:?}");
    let text = environment.read("workspace/.convoke/settings.json").unwrap();
    assert!(text.contains("\"X-Key\": \"$KEY\"") && !text.contains("garbage") && text.contains("// mine"), "{text}");

    assert_eq!(mcp(&environment, &["remove", "db"]).code, Some(0));
    let text = environment.read("workspace/.convoke/settings.json").unwrap();
    assert!(text.contains("// keep") && !text.contains("db.example"), "{text}");
    assert_eq!(mcp(&environment, &["remove", "db"]).code, Some(42));
    assert_eq!(environment.read("workspace/.convoke/settings.json").unwrap(), text);
}

#[test]
fn scopes_have_files_of_their_own_and_an_untrusted_folder_s_servers_are_not_run() {
    let environment = TestEnvironment::new();
    let server = server();
    let ran = environment.workspace().join("ran");
    let log = ran.display().to_string();
    assert_eq!(mcp(&environment, &["add", "-s", "user", "mine", &server]).code, Some(0));
    let added = run(&mut convoke(&environment, &["mcp", "add", "theirs", "--", &server, "--log", &log]), "");
    assert!(added.code == Some(0) && added.stderr.contains("not trusted"), "{added:?}");
    assert!(environment.read("home/.convoke/settings.json").unwrap().contains("\"mine\""));
    let listed = run(&mut convoke(&environment, &["mcp", "list", "--json"]), "");
    assert!(listed.stderr.contains("not trusted"), "{listed:?}");
    let names: Vec<Value> =
        object(&listed)["servers"].as_array().unwrap().iter().map(|server| server["name"].clone()).collect();
    assert_eq!(names, ["mine"]);
    assert!(!ran.exists());
    let listed = object(&mcp(&environment, &["list", "--json"]));
    assert_eq!(listed["servers"].as_array().unwrap().len(), 2);
    assert!(ran.exists());
}

#[test]
fn what_can_t_be_a_server_is_refused_and_nothing_is_written() {
    let environment = TestEnvironment::new();
    for args in [
        &["add", "x", "-t", "http", "not-an-address"][..],
        &["add", "x", "-t", "http", "-e", "A=b", "https://x.example"],
        &["add", "x", "-H", "A: b", "program"],
        &["add", "x", "-e", "secret", "program"],
        &["add", " ", "program"],
    ] {
        let refused = mcp(&environment, args);
        assert_eq!(refused.code, Some(42), "{args:?}: {refused:?}");
        assert!(!refused.stderr.contains("secret"), "{refused:?}");
    }
    assert_eq!(environment.read("workspace/.convoke/settings.json"), None);
    environment.write("workspace/.convoke/settings.json", "{\"mcpServers\": []}");
    let refused = mcp(&environment, &["add", "x", "program"]);
    assert_eq!(refused.code, Some(52), "{refused:?}");
    assert_eq!(environment.read("workspace/.convoke/settings.json").unwrap(), "{\"mcpServers\": []}");
}
