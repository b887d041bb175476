use std::path::Path;
use std::time::Duration;

use convoke_acp::AgentCommand;
use convoke_stdx::guard::Spawner;
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::options::{DaemonLimits, PortOption};
use crate::roster::{Isolation, NamedAgents};

fn options(workspace: &Path) -> DaemonOptions {
    DaemonOptions {
        tcp: true,
        hostname: "127.0.0.1".to_owned(),
        port: PortOption::Given(0),
        socket: None,
        tls: None,
        rate: None,
        page: true,
        workspace: workspace.to_owned(),
        token: TokenOption::Generate,
        require_auth: false,
        allow_origins: Vec::new(),
        token_file: None,
        audit_file: None,
        audit_sink: None,
        sessions_folder: None,
        agent: AgentSource::Command(AgentCommand { program: "agent".into(), ..AgentCommand::default() }),
        agents: NamedAgents::default(),
        isolation: Isolation::Workspace,
        spawner: Spawner::unguarded(),
        bridge: BridgeOptions::default(),
        limits: DaemonLimits::default(),
        version: "0".to_owned(),
        approval_mode: convoke_protocol::ApprovalMode::Default,
        trusted: true,
    }
}

fn refusal(change: impl FnOnce(&mut DaemonOptions)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    change(&mut options);
    validate(&options).unwrap_err().to_string()
}

#[test]
fn plain_options_pass() {
    let folder = tempfile::tempdir().unwrap();
    validate(&options(folder.path())).unwrap();
}

#[test]
fn hostnames() {
    assert_eq!(
        refusal(|o| o.hostname = "localhost:4170".to_owned()),
        "Invalid --hostname \"localhost:4170\": looks like a \"host:port\" combination. Use --port for the port, e.g. \
         \"--hostname localhost --port 4170\"."
    );
    assert_eq!(
        refusal(|o| o.hostname = String::new()),
        "Invalid --hostname: empty value binds every interface. Pass an explicit address (e.g. --hostname 0.0.0.0) or \
         omit the flag."
    );
    for fine in ["127.0.0.1", "::1", "[::1]", "localhost", "LocalHost", "127.9.9.9"] {
        check_hostname(fine).unwrap();
        assert!(is_loopback_bind(fine), "{fine}");
    }
    for beyond in ["0.0.0.0", "::", "10.1.2.3", "example.org"] {
        check_hostname(beyond).unwrap();
        assert!(!is_loopback_bind(beyond), "{beyond}");
    }
}

#[test]
fn workspaces() {
    assert_eq!(
        refusal(|o| o.workspace = "/nope/nope".into()),
        "Invalid --workspace \"/nope/nope\": directory does not exist."
    );
    assert_eq!(refusal(|o| o.workspace = "rel".into()), "Invalid --workspace \"rel\": must be an absolute path.");
    assert_eq!(
        refusal(|o| o.workspace = "/etc/passwd".into()),
        "Invalid --workspace \"/etc/passwd\": exists but is not a directory."
    );
}

#[test]
fn a_generated_token_satisfies_neither_require_auth_nor_foreign_origins() {
    assert!(refusal(|o| o.require_auth = true).starts_with("Refusing to start with --require-auth set but no bearer"));
    assert!(
        refusal(|o| o.allow_origins = vec!["*".into()]).starts_with("Refusing to start with --allow-origin '*' but")
    );
    assert!(
        refusal(|o| o.allow_origins = vec!["http://x.example".into()])
            .starts_with("Refusing to start with --allow-origin \"http://x.example\" but no bearer token configured.")
    );
    let folder = tempfile::tempdir().unwrap();
    let mut given = options(folder.path());
    given.token = TokenOption::Given(SecretString::from("tok123"));
    given.require_auth = true;
    given.allow_origins = vec!["*".into(), "http://x.example".into()];
    validate(&given).unwrap();
    let mut local = options(folder.path());
    local.allow_origins = vec!["http://localhost:3000".into(), "http://127.0.0.1:1".into(), "http://[::1]:2".into()];
    validate(&local).unwrap();
}

#[test]
fn origins_must_be_canonical() {
    assert_eq!(
        refusal(|o| o.allow_origins = vec!["http://x.example/".into()]),
        "Invalid --allow-origin pattern \"http://x.example/\": expected the canonical origin \"http://x.example\" \
         without trailing slash, path, userinfo, or query. Expected `*` or a URL origin of the form \
         `<scheme>://<host>[:<port>]` (no trailing slash, no path, no userinfo, no query)."
    );
}

#[test]
fn no_auth_stays_on_this_machine() {
    assert!(
        refusal(|o| {
            o.hostname = "0.0.0.0".to_owned();
            o.token = TokenOption::NoAuth;
        })
        .starts_with("Refusing to start with --no-auth on \"0.0.0.0\"")
    );
}

#[test]
fn bounds() {
    assert_eq!(
        refusal(|o| o.bridge.limits.ring_frames = 0),
        "Invalid eventRingSize: 0. Must be a positive integer in [1, 1000000]."
    );
    for wrong in [0, 1025] {
        assert_eq!(
            refusal(|o| o.bridge.limits.subscribers = wrong),
            format!("Invalid maxSubscribersPerSession: {wrong}. Must be a positive integer in [1, 1024].")
        );
    }
    assert_eq!(
        refusal(|o| o.bridge.prompt_deadline = Some(Duration::ZERO)),
        "Invalid promptDeadlineMs: 0. Must be a positive integer (milliseconds)."
    );
    assert_eq!(refusal(|o| o.agent = AgentSource::Command(AgentCommand::default())), "no agent command is configured");
}

#[test]
fn policies_of_settings() {
    let apply = |value: Value| {
        let mut options = BridgeOptions::default();
        apply_policy(&mut options, Some(&value)).map(|warning| (options.policy, options.quorum, warning.is_some()))
    };
    assert_eq!(apply(json!({})).unwrap(), (PermissionPolicy::FirstResponder, None, false));
    assert_eq!(
        apply(json!({"permissionStrategy": "consensus", "consensusQuorum": 2})).unwrap(),
        (PermissionPolicy::Consensus, Some(2), false)
    );
    assert_eq!(
        apply(json!({"permissionStrategy": "designated", "consensusQuorum": 2})).unwrap(),
        (PermissionPolicy::Designated, Some(2), true)
    );
    for (value, text) in [
        (json!("x"), "invalid policy: must be an object with permissionStrategy, consensusQuorum and cancel, not x"),
        (
            json!({"permissionStrategy": "majority"}),
            "invalid policy.permissionStrategy \"majority\"; must be one of first-responder, designated, consensus, \
             local-only",
        ),
        (
            json!({"permissionStrategy": null}),
            "invalid policy.permissionStrategy \"null\"; must be one of first-responder, designated, consensus, \
             local-only",
        ),
        (json!({"cancel": "nobody"}), "invalid policy.cancel \"nobody\"; must be one of any, eligible"),
        (json!({"cancel": true}), "invalid policy.cancel \"true\"; must be one of any, eligible"),
        (json!({"consensusQuorum": 0}), "invalid policy.consensusQuorum 0; must be a positive integer"),
        (json!({"consensusQuorum": 1.5}), "invalid policy.consensusQuorum 1.5; must be a positive integer"),
        (json!({"consensusQuorum": -1}), "invalid policy.consensusQuorum -1; must be a positive integer"),
        (json!({"consensusQuorum": "2"}), "invalid policy.consensusQuorum 2; must be a positive integer"),
    ] {
        assert_eq!(apply(value).unwrap_err().to_string(), text);
    }
}
