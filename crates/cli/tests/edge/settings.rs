//! Whose settings decide about permissions.

use convoke_testkit::{TestEnvironment, run};
use serde_json::json;

use crate::process::{Daemon, TOKEN, serve};

fn policy(strategy: &str) -> String {
    json!({"policy": {"permissionStrategy": strategy}}).to_string()
}

async fn active(daemon: &Daemon) -> String {
    daemon.get("/capabilities", TOKEN).await.1["policy"]["permission"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_untrusted_workspace_can_not_weaken_the_user_s_policy() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", policy("consensus"));
    environment.write(
        "workspace/.convoke/settings.json",
        r#"{"policy": {"permissionStrategy": "first-responder"}, "security": {"folderTrust": {"enabled": false}}}"#,
    );
    let daemon = Daemon::start(serve(&environment, &["--port", "0"]));
    assert_eq!(active(&daemon).await, "consensus");
    let (_, said) = daemon.end().await;
    assert_eq!(said.matches("are ignored because the folder is not trusted").count(), 1, "{said}");
    // Not even by being broken.
    environment.write("workspace/.convoke/settings.json", "{ broken");
    assert_eq!(active(&Daemon::start(serve(&environment, &["--port", "0"]))).await, "consensus");
}

#[tokio::test]
async fn a_trusted_workspace_decides_over_the_user() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", policy("consensus"));
    environment.write("workspace/.convoke/settings.json", policy("local-only"));
    let trusted = json!({environment.workspace().display().to_string(): "TRUST_FOLDER"});
    environment.write("home/.convoke/trustedFolders.json", trusted.to_string());
    assert_eq!(active(&Daemon::start(serve(&environment, &["--port", "0"]))).await, "local-only");
    // Trust is also a right to be wrong: what is written there is not passed over in silence.
    environment.write("workspace/.convoke/settings.json", policy("majority"));
    let ran = run(&mut serve(&environment, &["--port", "0"]), "");
    let why = "invalid policy.permissionStrategy \"majority\"; must be one of first-responder, designated, consensus, \
               local-only";
    assert!(ran.code == Some(1) && ran.stderr.contains(why), "{}", ran.stderr);
}

#[tokio::test]
async fn a_file_that_can_not_be_read_is_warned_of_and_one_that_can_not_be_parsed_is_fatal() {
    let environment = TestEnvironment::new();
    // A folder in the file's place: there, and not to be read, whoever asks.
    std::fs::create_dir_all(environment.home().join(".convoke/settings.json")).unwrap();
    let daemon = Daemon::start(serve(&environment, &["--port", "0"]));
    assert_eq!(active(&daemon).await, "first-responder");
    let (_, said) = daemon.end().await;
    assert!(said.contains("going on without"), "{said}");
    for (text, why) in [("{ broken", "parse settings"), ("[]", "must hold a JSON object"), ("\u{0}", "parse settings")]
    {
        let environment = TestEnvironment::new();
        environment.write("home/.convoke/settings.json", text);
        let ran = run(&mut serve(&environment, &["--port", "0"]), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{text}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{text}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn bad_values_are_fatal_and_a_quorum_without_consensus_is_warned_of() {
    let environment = TestEnvironment::new();
    for (policy, why) in [
        (json!("consensus"), "invalid policy: must be an object"),
        (json!({"permissionStrategy": null}), "invalid policy.permissionStrategy \"null\"; must be one of"),
        (json!({"permissionStrategy": 7}), "invalid policy.permissionStrategy \"7\"; must be one of"),
        (json!({"consensusQuorum": 0}), "invalid policy.consensusQuorum 0; must be a positive integer"),
        (json!({"consensusQuorum": -1}), "invalid policy.consensusQuorum -1; must be a positive integer"),
        (json!({"consensusQuorum": 1.5}), "invalid policy.consensusQuorum 1.5; must be a positive integer"),
        (json!({"consensusQuorum": "2"}), "invalid policy.consensusQuorum 2; must be a positive integer"),
        (json!({"permissionResponseTimeoutMs": -1}), "Invalid permissionResponseTimeoutMs: -1."),
        (json!({"permissionResponseTimeoutMs": "5"}), "Invalid permissionResponseTimeoutMs: NaN."),
    ] {
        environment.write("home/.convoke/settings.json", json!({"policy": policy}).to_string());
        let ran = run(&mut serve(&environment, &["--port", "0"]), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{policy}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{policy}: {}", ran.stderr);
    }
    let policy = json!({"consensusQuorum": 2, "permissionResponseTimeoutMs": 1234});
    environment.write("home/.convoke/settings.json", json!({"policy": policy}).to_string());
    let daemon = Daemon::start(serve(&environment, &["--port", "0"]));
    assert_eq!(daemon.get("/daemon/status", TOKEN).await.1["limits"]["permissionResponseTimeoutMs"], 1234);
    let (_, said) = daemon.end().await;
    let warning = "policy.consensusQuorum is set but policy.permissionStrategy is not \"consensus\"; the override will be \
                   ignored.";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    // The flag lies over the setting.
    let daemon = Daemon::start(serve(&environment, &["--port=0", "--permission-response-timeout-ms=77"]));
    assert_eq!(daemon.get("/daemon/status", TOKEN).await.1["limits"]["permissionResponseTimeoutMs"], 77);
}
