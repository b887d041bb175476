use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::policy::{Priority, Scope, Source, Tier, ToolPattern};

struct Bench {
    dir: tempfile::TempDir,
    host: CheckerHost,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        let host = CheckerHost {
            spawner: Some(Spawner::unguarded()),
            workspaces: vec![cwd.clone()],
            cwd,
            timeout: Duration::from_secs(60),
            ..CheckerHost::default()
        };
        Self { dir, host }
    }

    fn program(&self, script: &str) -> Checker {
        let path = self.dir.path().join("checker");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        checker(CheckerKind::External(path), json!({"level": 3}))
    }

    async fn ask(&self, checkers: &[Checker], args: Value, before: Decision) -> Judgement {
        let mut judgement = Judgement { decision: before, message: None, source: String::new(), steps: Vec::new() };
        self.host.ask(checkers, &PolicyCall::new("write_file", &args), &mut judgement).await;
        judgement
    }
}

fn checker(kind: CheckerKind, config: Value) -> Checker {
    Checker {
        name: "scan".to_owned(),
        scope: Scope::of(ToolPattern::Any),
        priority: Priority::new(Tier::User, 1),
        kind,
        config,
        source: Source::Named("test"),
    }
}

#[tokio::test]
async fn a_checker_reads_the_call_and_can_only_be_stricter() {
    let bench = Bench::new();
    let says = |decision: &str| {
        bench.program(&format!("cat > seen\necho '{{\"decision\": \"{decision}\", \"reason\": \"so\"}}'"))
    };
    for (said, before, after) in [
        ("allow", Decision::Allow, Decision::Allow),
        ("allow", Decision::Ask, Decision::Ask),
        ("ask_user", Decision::Allow, Decision::Ask),
        ("ask_user", Decision::Ask, Decision::Ask),
        ("deny", Decision::Ask, Decision::Deny),
        ("allow", Decision::Deny, Decision::Deny),
    ] {
        let judged = bench.ask(&[says(said)], json!({"file_path": "a"}), before).await;
        assert_eq!(judged.decision, after, "{said} after {before:?}");
        assert_eq!(judged.message.is_some(), after > before, "{said} after {before:?}");
    }
    let seen: Value = serde_json::from_slice(&fs::read(bench.dir.path().join("seen")).unwrap()).unwrap();
    assert_eq!(seen["protocolVersion"], "1.0.0");
    assert_eq!(seen["toolCall"], json!({"name": "write_file", "args": {"file_path": "a"}}));
    assert_eq!(seen["context"]["environment"]["cwd"], json!(bench.host.cwd));
    assert_eq!(seen["config"], json!({"level": 3}));
}

#[tokio::test]
async fn a_checker_that_fails_in_any_way_refuses() {
    let mut bench = Bench::new();
    for script in [
        "exit 1",
        "echo '{\"decision\": \"allow\"}'; exit 3",
        "echo 'sure'",
        "echo '{\"decision\": \"maybe\"}'",
        "echo '{\"decision\": \"allow\"'",
        "yes",
        "true",
    ] {
        let judged = bench.ask(&[bench.program(script)], json!({}), Decision::Allow).await;
        assert_eq!(judged.decision, Decision::Deny, "{script}");
        assert!(judged.message.unwrap().contains("\"scan\" failed"), "{script}");
    }
    let missing = checker(CheckerKind::External("/nonexistent/checker".into()), Value::Null);
    assert_eq!(bench.ask(&[missing], json!({}), Decision::Allow).await.decision, Decision::Deny);
    bench.host.spawner = None;
    let fine = bench.program("echo '{\"decision\": \"allow\"}'");
    assert_eq!(bench.ask(&[fine], json!({}), Decision::Allow).await.decision, Decision::Deny);
}

#[tokio::test]
async fn a_checker_that_hangs_is_ended_with_what_it_started() {
    let mut bench = Bench::new();
    bench.host.timeout = Duration::from_secs(1);
    let hangs = bench.program("sleep 1000 & echo $! > pid; trap '' TERM; wait");
    let judged = bench.ask(&[hangs], json!({}), Decision::Allow).await;
    assert_eq!(judged.decision, Decision::Deny);
    let pid = fs::read_to_string(bench.dir.path().join("pid")).unwrap();
    let proc = Path::new("/proc").join(pid.trim()).join("stat");
    // Gone, or a zombie that nobody has collected yet.
    let ended = || fs::read_to_string(&proc).map_or(true, |stat| stat.contains(") Z"));
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !ended() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap();
}

#[tokio::test]
async fn paths_must_lie_in_the_workspace() {
    let bench = Bench::new();
    std::os::unix::fs::symlink("/etc", bench.dir.path().join("link")).unwrap();
    let plain = || checker(CheckerKind::AllowedPath, Value::Null);
    let configured =
        || checker(CheckerKind::AllowedPath, json!({"included_args": ["where"], "excluded_args": ["file_path"]}));
    for (checker, args, decision) in [
        (plain(), json!({"file_path": "a/b.rs"}), Decision::Allow),
        (plain(), json!({"file_path": "../b.rs"}), Decision::Deny),
        (plain(), json!({"file_path": "/etc/passwd"}), Decision::Deny),
        (plain(), json!({"file_path": "link/passwd"}), Decision::Deny),
        (plain(), json!({"content": "/etc/passwd"}), Decision::Allow),
        (configured(), json!({"file_path": "/etc/passwd"}), Decision::Allow),
        (configured(), json!({"where": "/etc/passwd"}), Decision::Deny),
    ] {
        assert_eq!(bench.ask(&[checker], args.clone(), Decision::Allow).await.decision, decision, "{args}");
    }
}
