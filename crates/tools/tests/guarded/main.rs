//! Commands under a real guard: this executable is both the test and, as `guarded __guard …`, the guard.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test, though with a main of its own")]
#![expect(clippy::print_stderr, reason = "what was skipped is told by name")]

mod sandbox;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use convoke_adk::FunctionCall;
use convoke_stdx::guard::{Mechanism, SUBCOMMAND, Spawner, WatchOptions, watch};
use convoke_tools::builtin::{BuiltinOptions, ShellOptions, tools};
use convoke_tools::{
    BackgroundLimits, BackgroundProcesses, BackgroundStatus, Guards, Mode, PolicyOptions, SchedulerOptions,
    SessionPolicy, ToolRegistry, ToolScheduler, Workspace, WorkspaceOptions,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|first| first == SUBCOMMAND) {
        let options = WatchOptions::parse(args).expect("what the spawner writes");
        return watch(&options).map_or(ExitCode::from(127), |end| ExitCode::from(end.mirror()));
    }
    if let Some(probe) = std::env::args().skip_while(|arg| arg != "probe").nth(1) {
        return sandbox::probe(&probe);
    }
    if std::env::args().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        exits_and_signals_come_through().await;
        one_guard_runs_one_command_after_the_other().await;
        commands_at_the_same_time_have_a_guard_each().await;
        a_guard_that_was_killed_is_replaced().await;
        what_can_not_start_costs_no_guard().await;
        nothing_survives_a_command().await;
        nothing_survives_a_cancelled_command().await;
        nothing_survives_a_session().await;
        a_background_command_ends_by_its_id().await;
        for via in Mechanism::ALL {
            match via.check() {
                Ok(()) => sandbox::holds(via).await,
                Err(why) => eprintln!("skipped: sandbox by {}: {why}", via.name()),
            }
        }
        sandbox::needs_a_guard().await;
    });
    ExitCode::SUCCESS
}

struct Session {
    scheduler: ToolScheduler,
    background: Arc<BackgroundProcesses>,
    dir: tempfile::TempDir,
}

impl Session {
    fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// A session whose options `change` had a hand in.
    fn with(change: impl FnOnce(&mut ShellOptions, &mut SchedulerOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = WorkspaceOptions { cwd: dir.path().to_path_buf(), ..WorkspaceOptions::default() };
        let background = Arc::new(BackgroundProcesses::new(BackgroundLimits::default()));
        let spawner = Spawner::guarded(std::env::current_exe().unwrap(), Duration::from_millis(200));
        let policy = SessionPolicy::new(PolicyOptions { mode: Mode::Yolo, ..PolicyOptions::default() }).unwrap();
        let registry = Arc::new(ToolRegistry::new(policy.clone()));
        let mut shell = ShellOptions::new(Guards::new(spawner));
        let mut scheduler = SchedulerOptions::new(registry.clone(), policy);
        change(&mut shell, &mut scheduler);
        for tool in tools(BuiltinOptions {
            workspace: Arc::new(Workspace::new(options).unwrap()),
            shell,
            background: Arc::clone(&background),
        }) {
            registry.register(tool).unwrap();
        }
        Self { scheduler: ToolScheduler::start(scheduler), background, dir }
    }

    async fn run(&self, args: Value, cancel: &CancellationToken) -> String {
        let call = FunctionCall { id: Some("1".to_owned()), name: "run_shell_command".to_owned(), args };
        let outcome = within(self.scheduler.schedule(vec![call], cancel)).await;
        let response = outcome.responses[0].response.as_object().unwrap().values().next().unwrap();
        response.as_str().unwrap().to_owned()
    }

    async fn text(&self, command: &str) -> String {
        self.run(json!({"command": command}), &CancellationToken::new()).await
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it never happened")
}

fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    !matches!(state, None | Some('Z' | 'X'))
}

async fn exits_and_signals_come_through() {
    let session = Session::new();
    assert_eq!(session.text("echo hi; exit 3").await, "Output: hi\nExit Code: 3");
    assert_eq!(session.text("kill -KILL $$").await, "Signal: 9");
    assert_eq!(session.text("cat").await, "Output: (empty)");
}

/// Who runs a command: the guard.
async fn guard_of(session: &Session) -> String {
    session.text("echo $PPID").await
}

async fn one_guard_runs_one_command_after_the_other() {
    let session = Session::new();
    let guard = guard_of(&session).await;
    assert_eq!(session.text("exit 3").await, "Exit Code: 3");
    assert_eq!(session.text("(setsid sleep 1000 &) ; kill -TERM $$").await, "Signal: 15");
    assert_eq!(guard_of(&session).await, guard);
    let pid = guard.strip_prefix("Output: ").unwrap();
    assert!(runs(pid));
    drop(session);
    within(async {
        while runs(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn commands_at_the_same_time_have_a_guard_each() {
    let session = Session::new();
    let first = guard_of(&session).await;
    session.text("mkfifo bell").await;
    let args = json!({"command": "echo $PPID; cat bell", "is_background": true, "delay_ms": 0});
    session.run(args, &CancellationToken::new()).await;
    let second = guard_of(&session).await;
    assert_ne!(first, second);
    // Both are done at about the same time, and one of them stays.
    session.text("echo > bell").await;
    assert!([first, second].contains(&guard_of(&session).await));
    within(session.background.close()).await;
}

async fn a_guard_that_was_killed_is_replaced() {
    let session = Session::new();
    let guard = guard_of(&session).await;
    let pid = guard.strip_prefix("Output: ").unwrap();
    // While it waits, and while it runs something.
    assert!(std::process::Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    let next = guard_of(&session).await;
    assert_ne!(next, guard);
    assert_eq!(session.text("sleep 0.2; kill -KILL $PPID").await, "Signal: 9");
    assert!(!guard_of(&session).await.is_empty());
}

async fn what_can_not_start_costs_no_guard() {
    let session = Session::new();
    let guard = guard_of(&session).await;
    let long = "x".repeat(200_000);
    let text = session.text(&format!(": {long}")).await;
    assert!(text.contains("failed to start the command: Argument list too long"), "{text}");
    assert_eq!(guard_of(&session).await, guard);
}

async fn nothing_survives_a_command() {
    let session = Session::new();
    let text = session.text("setsid sleep 1000 & echo $!").await;
    let pid = text.strip_prefix("Output: ").unwrap();
    assert!(!runs(pid), "a process that left the group");
}

async fn nothing_survives_a_cancelled_command() {
    let session = Session::new();
    let bell = session.dir.path().join("bell");
    assert!(session.text("mkfifo bell").await.starts_with("Output: (empty)"));
    let cancel = CancellationToken::new();
    let command = json!({"command": "trap '' TERM; setsid sleep 1000 & echo $! > bell; wait; sleep 1000"});
    let cancelling = async {
        let pid = within(tokio::task::spawn_blocking(move || std::fs::read_to_string(bell))).await.unwrap().unwrap();
        cancel.cancel();
        pid
    };
    let (text, pid) = tokio::join!(session.run(command, &cancel), cancelling);
    assert!(text.starts_with("[Operation Cancelled] Reason: User cancelled tool execution."), "{text}");
    assert!(text.contains("Command was cancelled by user before it could complete."), "{text}");
    assert!(!runs(pid.trim()), "a process that left the group and would not hear");
}

async fn nothing_survives_a_session() {
    let session = Session::new();
    let bell = session.dir.path().join("bell");
    session.text("mkfifo bell").await;
    let command = "setsid sleep 1000 & echo $! > bell; wait";
    let args = json!({"command": command, "is_background": true, "delay_ms": 0});
    let text = session.run(args, &CancellationToken::new()).await;
    assert!(text.starts_with("Command is running in background. PID: "), "{text}");
    let pid = within(tokio::task::spawn_blocking(move || std::fs::read_to_string(bell))).await.unwrap().unwrap();
    assert!(runs(pid.trim()));
    within(session.background.close()).await;
    assert!(!runs(pid.trim()));
}

/// The id that the model is told is one that it can end, with all that the command started.
async fn a_background_command_ends_by_its_id() {
    for signal in ["TERM", "KILL"] {
        let session = Session::new();
        let bell = session.dir.path().join("bell");
        session.text("mkfifo bell").await;
        let started = json!({"command": "sleep 1000 & echo $! > bell; wait", "is_background": true, "delay_ms": 0});
        session.run(started, &CancellationToken::new()).await;
        let pid = within(tokio::task::spawn_blocking(move || std::fs::read_to_string(bell))).await.unwrap().unwrap();
        assert!(runs(pid.trim()));
        // Told in the first answer too, unless the program was not there yet.
        let told = session.background.list()[0].pid;
        let (found, _) = session.background.output(told, 1000).unwrap();
        assert_eq!((found.pid, found.status), (told, BackgroundStatus::Running));
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap();
        let group = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap();
        assert_eq!(group, told.to_string(), "it is the group's, too");
        assert_eq!(session.text(&format!("kill -{signal} {told}")).await, "Output: (empty)");
        within(async {
            while runs(pid.trim()) || matches!(session.background.list()[0].status, BackgroundStatus::Running) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}
