//! Refusals to start. Source: daemon specification, §a, "Boot failures".

use convoke_testkit::{TestEnvironment, run};

use crate::process::{Daemon, TOKEN, serve};

fn refused(environment: &TestEnvironment, args: &[&str], why: &str) {
    let ran = run(serve(environment, args).env_remove("QWEN_SERVER_TOKEN"), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {}", ran.stderr);
    assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
}

#[test]
fn bad_numbers_end_with_1_and_say_what_is_allowed() {
    let environment = TestEnvironment::new();
    for (flag, value, why) in [
        ("--max-sessions", "-1", "Invalid maxSessions: -1. Must be a number >= 0 (0 / Infinity = unlimited)."),
        ("--max-sessions", "abc", "Invalid maxSessions: NaN. Must be a number >= 0 (0 / Infinity = unlimited)."),
        ("--max-total-sessions", "-1", "Invalid maxTotalSessions: -1. Must be a number >= 0"),
        ("--max-pending-prompts-per-session", "x", "Invalid maxPendingPromptsPerSession: NaN."),
        ("--max-connections", "-2", "Invalid maxConnections: -2."),
        ("--event-ring-size", "0", "Invalid eventRingSize: 0. Must be a positive integer in [1, 1000000]."),
        ("--event-ring-size", "1000001", "Invalid eventRingSize: 1000001. Must be a positive integer in [1, 1000000]."),
        (
            "--permission-response-timeout-ms",
            "-1",
            "Invalid permissionResponseTimeoutMs: -1. Must be a non-negative integer (milliseconds, 0 = disabled / wait \
             forever).",
        ),
        ("--prompt-deadline-ms", "0", "Invalid promptDeadlineMs: 0. Must be a positive integer (milliseconds)."),
        ("--writer-idle-timeout-ms", "0", "Invalid writerIdleTimeoutMs: 0. Must be a positive integer (milliseconds)."),
        ("--session-idle-timeout-ms", "-1", "Invalid sessionIdleTimeoutMs: -1."),
        ("--session-reap-interval-ms", "x", "Invalid sessionReapIntervalMs: NaN."),
        ("--session-prompt-settled-close-grace-ms", "-5", "Invalid sessionPromptSettledCloseGraceMs: -5."),
        (
            "--compacted-replay-max-bytes",
            "268435457",
            "Invalid compactedReplayMaxBytes: 268435457. Must be a positive integer in [1, 268435456].",
        ),
        ("--max-journal-events", "0", "Invalid maxJournalEvents: 0. Must be a positive integer."),
        ("--max-journal-bytes", "0", "Invalid maxJournalBytes: 0. Must be a positive integer."),
        ("--initialize-timeout-ms", "0", "Invalid initializeTimeoutMs: 0."),
        ("--session-restore-timeout-ms", "1.5", "Invalid sessionRestoreTimeoutMs: 1.5."),
        ("--rate-limit-prompt", "0", "--rate-limit-prompt must be a positive integer."),
        ("--rate-limit-window-ms", "-1", "--rate-limit-window-ms must be a positive integer."),
    ] {
        refused(&environment, &["--port", "0", flag, value], why);
    }
}

#[test]
fn unsafe_and_senseless_listeners_end_with_1() {
    let environment = TestEnvironment::new();
    let here = environment.write("home/taken", "a file").display().to_string();
    for (args, why) in [
        (&["--no-auth", "--hostname", "0.0.0.0"][..], "Refusing to start with --no-auth on \"0.0.0.0\""),
        (&["--no-auth", "--hostname", "::"], "Refusing to start with --no-auth on \"::\""),
        (&["--require-auth"], "Refusing to start with --require-auth set but no bearer token configured."),
        (&["--require-auth", "--token", " "], "Refusing to start with --require-auth set but no bearer token"),
        (&["--allow-origin", "*"], "Refusing to start with --allow-origin '*' but no bearer token configured."),
        (&["--allow-origin", "http://x.example"], "no bearer token configured. Non-loopback"),
        (&["--allow-origin", "http://x.example/"], "expected the canonical origin \"http://x.example\""),
        (&["--hostname", "localhost:4170"], "looks like a \"host:port\" combination."),
        (&["--hostname", ""], "empty value binds every interface."),
        (&["--listen", "tcp:1"], "Invalid --listen \"tcp:1\": expected unix:PATH"),
        (&["--listen", &format!("unix:{here}")], "something that is no socket is there"),
        (&["--frobnicate"], "unexpected argument '--frobnicate'"),
    ] {
        refused(&environment, args, why);
    }
    assert_eq!(environment.read("home/taken").as_deref(), Some("a file"));
}

#[tokio::test]
async fn limits_reach_the_capabilities_and_the_status() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(serve(
        &environment,
        &[
            "--port=0",
            "--max-sessions=3",
            "--max-total-sessions=4",
            "--max-pending-prompts-per-session=2",
            "--max-connections=77",
            "--event-ring-size=99",
            "--prompt-deadline-ms=1000",
            "--writer-idle-timeout-ms=2000",
            "--session-reap-interval-ms=0",
            "--session-prompt-settled-close-grace-ms=5",
            "--compacted-replay-max-bytes=1000",
            "--max-journal-events=11",
            "--max-journal-bytes=12",
            "--session-restore-timeout-ms=3000",
            "--permission-response-timeout-ms=0",
            "--rate-limit",
            "--rate-limit-read=50",
            "--require-auth",
            "--allow-origin=http://app.example",
        ],
    ));
    let (_, capabilities) = daemon.get("/capabilities", TOKEN).await;
    let features: Vec<_> = capabilities["features"].as_array().unwrap().iter().filter_map(|tag| tag.as_str()).collect();
    for tag in ["require_auth", "allow_origin", "rate_limit", "prompt_absolute_deadline", "writer_idle_timeout"] {
        assert!(features.contains(&tag), "{tag}");
    }
    let limits = &capabilities["limits"];
    let told =
        ["maxSessionsPerWorkspace", "maxTotalSessions", "maxPendingPromptsPerSession", "sessionRestoreTimeoutMs"];
    assert_eq!(told.map(|name| limits[name].as_u64()), [Some(3), Some(4), Some(2), Some(3000)]);
    let (_, status) = daemon.get("/daemon/status", TOKEN).await;
    let limits = &status["limits"];
    let told = ["listenerMaxConnections", "eventRingSize", "promptDeadlineMs", "writerIdleTimeoutMs"];
    assert_eq!(told.map(|name| limits[name].as_u64()), [Some(77), Some(99), Some(1000), Some(2000)]);
    let told = ["compactedReplayMaxBytes", "maxJournalEvents", "maxJournalBytes", "sessionPromptSettledCloseGraceMs"];
    assert_eq!(told.map(|name| limits[name].as_u64()), [Some(1000), Some(11), Some(12), Some(5)]);
    assert_eq!(limits["rateLimit"]["read"], 50);
    assert!(limits["sessionIdleTimeoutMs"].is_null() && limits["permissionResponseTimeoutMs"] == 0, "{limits}");
    assert_eq!(daemon.get("/health", "").await.0, 401);
}

#[tokio::test]
async fn plain_options_advertise_no_conditional_tag() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(serve(&environment, &["--port=0", "--no-web"]));
    let (_, capabilities) = daemon.get("/capabilities", TOKEN).await;
    let features: Vec<_> = capabilities["features"].as_array().unwrap().iter().filter_map(|tag| tag.as_str()).collect();
    for tag in ["require_auth", "allow_origin", "rate_limit", "prompt_absolute_deadline", "writer_idle_timeout"] {
        assert!(!features.contains(&tag), "{tag}");
    }
    assert_eq!(daemon.get("/", TOKEN).await.0, 404);
}
