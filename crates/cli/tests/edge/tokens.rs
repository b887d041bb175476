//! Where a token comes from, and that there is one.

use std::os::unix::fs::PermissionsExt;

use convoke_testkit::{TestEnvironment, run};

use crate::process::{Daemon, TOKEN, serve};

async fn admits(daemon: &Daemon, token: &str) -> bool {
    match daemon.get("/capabilities", token).await {
        (200, _) => true,
        (status, body) => {
            assert_eq!((status, body), (401, serde_json::json!({"error": "Unauthorized"})));
            false
        }
    }
}

#[tokio::test]
async fn flag_and_file_lie_over_the_environment() {
    let environment = TestEnvironment::new();
    let file = environment.write("home/token", "from-file\n");
    let file = file.display().to_string();
    for (args, token) in [
        (&["--token", "  from-flag\n"][..], "from-flag"),
        (&["--token-file", &file], "from-file"),
        (&["--token", ""], TOKEN),
        (&[], TOKEN),
    ] {
        let daemon = Daemon::start(serve(&environment, &[args, &["--port", "0"]].concat()));
        assert!(admits(&daemon, token).await, "{args:?}");
        assert!(!admits(&daemon, "").await && !admits(&daemon, "other").await, "{args:?}");
        let (_, said) = daemon.end().await;
        assert!(!said.contains(token), "the operator knows it: {said}");
        assert_eq!(said.contains("visible to every user"), args.contains(&"  from-flag\n"), "{said}");
    }
}

#[tokio::test]
async fn a_token_is_made_on_loopback_as_well_and_told_once() {
    let environment = TestEnvironment::new();
    // What agents read as well is no place for the daemon's secret, and no setting turns the token off.
    environment.write("home/.convoke/.env", "QWEN_SERVER_TOKEN=from-env-file\n");
    environment.write("home/.convoke/settings.json", r#"{"noAuth": true, "serve": {"noAuth": true, "token": "set"}}"#);
    let mut command = serve(&environment, &["--port", "0"]);
    command.env_remove("QWEN_SERVER_TOKEN");
    let daemon = Daemon::start(command);
    for wrong in ["", "from-env-file", "set"] {
        assert!(!admits(&daemon, wrong).await, "{wrong}");
    }
    let path = "home/.convoke/run/serve-token";
    let token = environment.read(path).unwrap();
    let mode = std::fs::metadata(environment.home().join(".convoke/run/serve-token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(admits(&daemon, &token).await);
    let (_, said) = daemon.end().await;
    assert_eq!(said.matches(&format!("the token of this run is {token}")).count(), 1, "{said}");
    assert_eq!(environment.read(path), None);
}

#[tokio::test]
async fn the_second_name_of_the_variable_works_and_no_auth_is_loud() {
    let environment = TestEnvironment::new();
    let mut command = serve(&environment, &["--port", "0"]);
    command.env_remove("QWEN_SERVER_TOKEN").env("CONVOKE_TOKEN", "second-name");
    assert!(admits(&Daemon::start(command), "second-name").await);
    let daemon = Daemon::start(serve(&environment, &["--port", "0", "--no-auth"]));
    assert!(admits(&daemon, "").await);
    assert!(daemon.end().await.1.contains("warning: --no-auth lets every process of this machine drive the agent"));
}

#[test]
fn tokens_that_can_not_work_are_refused() {
    let environment = TestEnvironment::new();
    let empty = environment.write("home/empty", " \n").display().to_string();
    let long = environment.write("home/long", "x".repeat(5000)).display().to_string();
    for (args, why) in [
        (&["--token", "two words"][..], "can't be sent in an Authorization header"),
        (&["--token", "tök"], "can't be sent in an Authorization header"),
        (&["--token-file", &empty], "it holds no token"),
        (&["--token-file", &long], "it is longer than 4096 bytes"),
        (&["--token-file", "/nope/token"], "use --token-file /nope/token: No such file"),
        (&["--token", "a", "--token-file", &empty], "cannot be used with"),
        (&["--token", "a", "--no-auth"], "cannot be used with"),
    ] {
        let ran = run(&mut serve(&environment, args), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("two words") && !ran.stderr.contains("tök"), "{}", ran.stderr);
    }
}
