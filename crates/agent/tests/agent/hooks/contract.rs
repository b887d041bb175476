//! What a process may do to us: exit codes, half an answer, a flood, silence for ever.

use convoke_protocol::{AgentEventBody, StreamEndReason};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::rig::*;
use crate::rig::*;

fn reads() -> Vec<Answer> {
    vec![vec![piece(vec![call("read_file", json!({"file_path": "a.txt"}))]), stop()], vec![text("ok"), stop()]]
}

#[tokio::test]
async fn each_exit_code_means_what_it_means() {
    for (script, told, message) in [
        ("echo note; exit 0", "one", Some("note")),
        ("echo odd >&2; exit 1", "one", Some("Warning: odd")),
        ("echo out; echo why >&2; exit 2", "Tool execution blocked: why", None),
        ("echo why; exit 3", "Tool execution blocked: why", None),
        ("exit 2", "Tool execution blocked: it exited with code 2", None),
        ("exit 1", "one", Some("it exited with code 1")),
        // Half an object is a text, and a text decides by its exit code.
        (r#"printf '{"decision": "den'"#, "one", Some(r#"{"decision": "den"#)),
        (r#"printf '{"decision": "all'; exit 2"#, r#"{"decision": "all"#, None),
        (r#"echo '"{\"decision\":\"deny\",\"reason\":\"twice\"}"'"#, "blocked: twice", None),
        ("kill -9 $$", "one", Some("ended by signal 9")),
        ("/no/such/program", "No such file", None),
    ] {
        let hooked = Setup::new(reads()).start(json!({"BeforeTool": one(command(script))})).await;
        let events = hooked.rig.run("go").await;
        let response = hooked.told(1)[0].to_string().replace(r"\\", r"\").replace(r#"\""#, "\"");
        assert!(response.contains(told), "{script}: {response}");
        let said = messages(&events);
        assert_eq!(said.len(), usize::from(message.is_some()), "{script}: {said:?}");
        assert!(said.iter().all(|said| said.contains(message.unwrap())), "{script}: {said:?}");
    }
}

#[tokio::test]
async fn a_hook_that_hangs_or_floods_is_ended_and_changes_nothing() {
    let hang = json!({"type": "command", "command": "sleep 1000 & sleep 1000", "timeout": 200, "name": "hangs"});
    let flood = json!({"type": "command", "command": "yes", "name": "floods"});
    let deaf = json!({"type": "command", "command": "exec <&-; exit 0", "name": "deaf"});
    let group = json!([{"hooks": [hang, flood, deaf]}]);
    let hooked = Setup::new(reads()).start(json!({"BeforeTool": group})).await;
    let events = hooked.rig.run("go").await;
    assert!(hooked.told(1)[0]["output"].as_str().unwrap().contains("one"));
    let said = messages(&events);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("hangs") && said[0].contains("longer than 200 ms"), "{said:?}");
    assert!(said[1].contains("floods") && said[1].contains("printed more than"), "{said:?}");
}

#[tokio::test]
async fn what_a_hook_leaves_behind_ends_with_it_and_holds_nobody_up() {
    // It keeps the pipe open, which must not keep us waiting for its end.
    let script = "sleep 1000 & echo $! > left; exit 0";
    let hooked = Setup::new(reads()).start(json!({"BeforeTool": one(command(script))})).await;
    hooked.rig.run("go").await;
    let pid = std::fs::read_to_string(hooked.dir().join("left")).unwrap();
    gone(&pid).await;
}

#[tokio::test]
async fn an_abort_ends_the_hook_that_runs() {
    let script = "echo $$ > pid; exec sleep 1000";
    let hooked = Setup::new(Vec::new()).start(json!({"BeforeAgent": one(command(script))})).await;
    let events = hooked.rig.send("go").await.unwrap();
    let file = hooked.dir().join("pid");
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while std::fs::read_to_string(&file).unwrap_or_default().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the hook never ran");
        tokio::task::yield_now().await;
    }
    hooked.rig.session.agent.abort().await;
    let all: Vec<_> = futures::StreamExt::collect(events).await;
    let AgentEventBody::AgentEnd { reason, .. } = &all.last().unwrap().body else { panic!("{all:?}") };
    assert_eq!(*reason, StreamEndReason::Aborted);
    let pid = std::fs::read_to_string(&file).unwrap();
    gone(&pid).await;
}

#[tokio::test]
async fn a_hook_finds_its_folders_and_no_secret() {
    let script = "printf '%s|%s|%s|%s|%s|%s' \"$GEMINI_PROJECT_DIR\" \"$CLAUDE_PROJECT_DIR\" \"$CONVOKE_CWD\" \
                  \"$GEMINI_SESSION_ID\" \"$GEMINI_PLANS_DIR\" \"${PATH:+seen}$K\" > env; $GEMINI_PROJECT_DIR/run.sh";
    let hook = json!({"type": "command", "command": script, "env": {"K": "V"}});
    let mut setup = Setup::new(vec![vec![text("ok"), stop()]]);
    setup.secrets = vec!["PATH".to_owned()];
    let hooked = setup.start(json!({"BeforeAgent": one(hook)})).await;
    let script = hooked.dir().join("run.sh");
    std::fs::write(&script, "#!/bin/bash\n: > ran\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    hooked.rig.run("go").await;
    let dir = hooked.dir().canonicalize().unwrap().display().to_string();
    // bash makes up a PATH of its own, but does not export it.
    let env = std::fs::read_to_string(hooked.dir().join("env")).unwrap();
    assert!(env.starts_with(&format!("{dir}|{dir}|{dir}|s|{dir}/plans|")) && env.ends_with('V'), "{env}");
    // A folder with a blank and a quote in its name, and a command that quotes nothing.
    assert!(hooked.dir().join("ran").exists());
}

#[tokio::test]
async fn hooks_run_together_or_each_on_what_the_last_one_made() {
    // Each waits for the other: one after the other they would never end.
    let meet = |own: &str, other: &str| {
        command(&format!("mkfifo {own} {other} 2>/dev/null; echo > {own} & read x < {other}; wait; exit 0"))
    };
    let group = json!([{"hooks": [meet("p", "q"), meet("q", "p")]}]);
    let hooked = Setup::new(vec![vec![text("ok"), stop()]]).start(json!({"BeforeAgent": group})).await;
    assert_eq!(sketch(&hooked.rig.run("go").await).last().unwrap(), "agent_end Completed");

    let first = command(r#"echo '{"hookSpecificOutput":{"tool_input":{"file_path":"b.txt"}}}'"#);
    let second = notes(json!({}));
    let group = json!([{"matcher": "read", "sequential": true, "hooks": [first]}, {"matcher": "*", "hooks": [second]}]);
    let hooked = Setup::new(reads()).start(json!({"BeforeTool": group})).await;
    std::fs::write(hooked.dir().join("b.txt"), "two\n").unwrap();
    hooked.rig.run("go").await;
    assert_eq!(hooked.noted()[0]["tool_input"], json!({"file_path": "b.txt"}));
    assert!(hooked.told(1)[0]["output"].as_str().unwrap().contains("two"));
}

/// Waits until a process that was ended is gone.
async fn gone(pid: &str) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{stat}");
        tokio::task::yield_now().await;
    }
}
