//! `convoke mcp` of the real binary: settings keep what people wrote, and servers are really asked.

use convoke_testkit::fake_model::FakeModel;
use convoke_testkit::mcp_site::{McpSite, SiteOptions, browse};
use convoke_testkit::{Ran, TestEnvironment, run, scripted_mcp_binary};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, finish, gemini, lines, script, with_mcp_server};

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

#[tokio::test]
async fn mcp_servers_are_listed_and_their_resources_come_with_a_prompt() {
    let environment = TestEnvironment::new();
    with_mcp_server(&environment, &[], &json!({}));
    let file = script(&environment, &[]);
    let listed = run(&mut convoke(&environment, &["--fake-responses", &file, "-p", "/mcp"]), "");
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    for line in ["  my_db - connected\n", "    tool mcp_my_db_echo\n", "    resource @my_db:note://one\n"] {
        assert!(listed.stdout.contains(line), "{}", listed.stdout);
    }

    let model = FakeModel::start().await.unwrap();
    model.says("It is a note.");
    let prompt = "what is @my_db:note://one, and @other:note://one?";
    let ran = finish(gemini(&environment, &model, &["-p", prompt])).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "It is a note.\n"), "{}", ran.stderr);
    let sent = model.requests()[0].body.to_string();
    assert!(sent.contains("Content from @my_db:note://one"), "{sent}");
    assert!(sent.contains("<untrusted_context>\\nthe text of note://one\\n</untrusted_context>"), "{sent}");
    assert!(!sent.contains("Content from @other"), "{sent}");
}

#[test]
fn a_server_that_is_not_there_is_said_once_and_the_run_goes_on() {
    let environment = TestEnvironment::new();
    with_mcp_server(&environment, &["--exit"], &json!({}));
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let args = ["--fake-responses", &file, "-p", "hi"];
    let text = run(&mut convoke(&environment, &args), "");
    assert_eq!((text.code, text.stdout.as_str()), (Some(0), "ok\n"), "{}", text.stderr);
    let said: Vec<&str> = text.stderr.lines().filter(|line| line.contains("my_db")).collect();
    assert!(
        said.len() == 1 && said[0].starts_with("convoke: warning: the MCP server \"my_db\" is not there"),
        "{said:?}"
    );
    assert!(said[0].contains("boom: no such database"), "{said:?}");
    let json = run(convoke(&environment, &args).args(["-o", "json"]), "");
    let object: Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(object["warnings"][0].as_str().unwrap().contains("my_db"), "{object}");
    let streamed = run(convoke(&environment, &args).args(["-o", "stream-json"]), "");
    let told = lines(&streamed).into_iter().filter(|line| line["type"] == "error").collect::<Vec<_>>();
    assert!(told.len() == 1 && told[0]["severity"] == "warning", "{told:?}");
    let silent = ["--silent"];
    with_mcp_server(&environment, &silent, &json!({"timeout": 1}));
    let late = run(&mut convoke(&environment, &args), "");
    assert!(late.stderr.contains("did not answer within 5 s"), "{}", late.stderr);
}

/// Runs `convoke mcp login`, opens what it says to open, and gives what it wrote in all.
async fn log_in(environment: &TestEnvironment, more: &[&str]) -> Ran {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

    let args = [&["mcp", "--skip-trust", "login", "docs"][..], more].concat();
    let mut command = tokio::process::Command::from(with_log(convoke(environment, &args)));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let (mut out, mut err) = (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let talking = async {
        while out.read_line(&mut stdout).await.unwrap() > 0 {
            if let Some(url) = stdout.lines().last().and_then(|line| line.strip_prefix("Open "))
                && !url.contains(' ')
            {
                assert_eq!(browse(url).await.unwrap().0, 200);
            }
        }
    };
    // Both at once: a full pipe would hold it up.
    let talking = async { tokio::join!(talking, err.read_to_string(&mut stderr)).1.unwrap() };
    tokio::time::timeout(std::time::Duration::from_secs(60), talking).await.expect("the login must end");
    Ran { code: child.wait().await.unwrap().code(), stdout, stderr }
}

/// The same, with every line that anybody logs.
fn with_log(mut command: std::process::Command) -> std::process::Command {
    let home: std::path::PathBuf =
        command.get_envs().find_map(|(name, value)| (name == "CONVOKE_HOME").then(|| value.unwrap().into())).unwrap();
    command.env("CONVOKE_LOG", "trace").env("GEMINI_DEBUG_LOG_FILE", home.join("debug.log"));
    command
}

#[tokio::test]
async fn a_login_is_for_the_sessions_to_come_and_no_secret_is_told_on_the_way() {
    use std::os::unix::fs::PermissionsExt;

    let site = SiteOptions { login: true, expires_in: 3600, client_secret: true, ..SiteOptions::default() };
    let site = McpSite::start(site).await.unwrap();
    let environment = TestEnvironment::new();
    let entry = json!({"type": "http", "url": site.url(), "trust": true});
    environment.write("home/.convoke/settings.json", json!({"mcpServers": {"docs": entry}}).to_string());
    let blocking = |command: std::process::Command| async { finish(command).await };
    let mcp = |args: &[&str]| blocking(with_log(convoke(&environment, &[&["mcp", "--skip-trust"], args].concat())));
    let mut told = Vec::new();

    let tested = mcp(&["test", "docs"]).await;
    assert_eq!(tested.code, Some(41), "{tested:?}");
    assert!(tested.stderr.contains("it needs login: run `convoke mcp login docs`"), "{tested:?}");
    let listed = mcp(&["list"]).await;
    assert!(listed.stdout.contains("needs login"), "{listed:?}");
    assert_eq!(mcp(&["login", "nobody"]).await.code, Some(42));
    let no_codes = mcp(&["login", "docs", "--device"]).await;
    assert_eq!(no_codes.code, Some(41), "{no_codes:?}");

    let done = log_in(&environment, &[]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("logged in to docs; the token is renewed by itself"), "{done:?}");
    let file = environment.home().join(".convoke/mcp-oauth-tokens.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // Refused by the server, and renewed on the way.
    site.revoke();
    let echo = call("mcp_docs_echo", json!({"text": "hello there"}));
    let file = script(&environment, &[json!([echo]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-p", "x", "-o", "stream-json", "--debug"];
    let ran = blocking(with_log(convoke(&environment, &args))).await;
    let result = lines(&ran).into_iter().find(|line| line["type"] == "tool_result").unwrap();
    assert!(result["output"].as_str().unwrap().contains("hello there"), "{result}");
    assert_eq!((site.granted("authorization_code"), site.granted("refresh_token")), (1, 1));

    // Refused for good.
    site.revoke();
    site.refuse_renewal();
    let late = blocking(with_log(convoke(&environment, &args))).await;
    assert_eq!(late.code, Some(0), "{late:?}");
    assert!(late.stdout.contains("convoke mcp login docs"), "{late:?}");
    assert_eq!(log_in(&environment, &["--browser", "--no-open"]).await.code, Some(0));
    let out = mcp(&["logout", "docs"]).await;
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), "logged out of docs\n"));
    assert_eq!(mcp(&["logout", "docs"]).await.code, Some(42));

    told.extend([tested, listed, no_codes, done, ran, late, out]);
    let log = environment.read("home/debug.log").unwrap();
    assert!(log.len() > 1_000, "a log without a line proves nothing");
    let told: String = told.into_iter().flat_map(|ran| [ran.stdout, ran.stderr]).chain([log]).collect();
    let secret = told.lines().find(|line| line.contains("SECRET"));
    assert_eq!(secret, None);
}

#[tokio::test]
async fn a_prompt_of_a_server_is_a_command() {
    let environment = TestEnvironment::new();
    with_mcp_server(&environment, &[], &json!({}));
    let model = FakeModel::start().await.unwrap();
    for prompt in ["/greet Ada L.", "/greet --who=\"Ada L.\"", "/my_db:greet Ada L."] {
        model.says("Hello!");
        let ran = finish(gemini(&environment, &model, &["-p", prompt])).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Hello!\n"), "{}", ran.stderr);
        let sent = model.requests().last().unwrap().body.to_string();
        assert!(sent.contains("Say hello to Ada L.."), "{prompt}: {sent}");
    }
    let file = script(&environment, &[]);
    let helped = run(&mut convoke(&environment, &["--fake-responses", &file, "-p", "/greet"]), "");
    assert_eq!(helped.code, Some(42), "{helped:?}");
    assert!(helped.stderr.contains("it needs \"who\""), "{helped:?}");
}
