//! Commands that print, flood, hang, fork and hide.

use std::path::Path;
use std::time::Duration;

use pretty_assertions::assert_eq;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::testing::{Folder, context, within};
use crate::{BackgroundStatus, ErrorType, ExecutionContext, ResultDisplay, ToolFailure};

const NAME: &str = "run_shell_command";

fn shell(command: &str) -> Value {
    json!({"command": command})
}

/// Whether a process still runs; one that only waits to be reaped does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    !matches!(state, None | Some('Z' | 'X'))
}

async fn gone(pid: &str) {
    within(async {
        while runs(pid) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn kill(pid: &str) {
    let pid = pid.parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// A pipe with a name, through which a command tells that it got somewhere.
struct Bell(std::path::PathBuf);

impl Bell {
    fn in_folder(folder: &Folder) -> Self {
        let path = folder.path("bell");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        Self(path)
    }

    async fn rings(&self) -> String {
        let path = self.0.clone();
        let text = within(tokio::task::spawn_blocking(move || std::fs::read_to_string(path))).await;
        text.unwrap().unwrap().trim().to_owned()
    }
}

#[tokio::test]
async fn sections_say_what_happened() {
    let folder = Folder::with(&[("sub/f", "")]);
    for (command, expected) in [
        ("echo out; echo err >&2; echo again", "Output: out\nerr\nagain"),
        ("true", "Output: (empty)"),
        ("exit 3", "Exit Code: 3"),
        ("echo no; exit 1", "Output: no\nExit Code: 1"),
        ("kill -TERM $$", "Signal: 15"),
        ("nope-nope", "Output: bash: line 1: nope-nope: command not found\nExit Code: 127"),
        ("cat; echo end", "Output: end"),
        ("echo $GEMINI_CLI$CONVOKE $TERM $PAGER $GIT_PAGER", "Output: 11 xterm-256color cat cat"),
        ("printf 'caf\\xe9'", "Output: caf\u{fffd}"),
        ("head -c 100 /dev/zero", "Output: [Binary output: 100 bytes, not shown]"),
    ] {
        assert_eq!(folder.text(NAME, shell(command)).await, expected, "{command}");
    }
    let text = folder.text(NAME, json!({"command": "pwd", "dir_path": "sub"})).await;
    assert_eq!(text, format!("Output: {}", folder.path("sub").display()));
    let (kind, _) = folder.fails(NAME, json!({"command": "pwd", "dir_path": "nope"})).await;
    assert_eq!(kind, ErrorType::PathIsNotADirectory);
    for command in [" ", "a\0b"] {
        assert_eq!(folder.fails(NAME, shell(command)).await.0, ErrorType::InvalidToolParams);
    }
}

#[tokio::test]
async fn credentials_are_kept_from_commands() {
    let mut folder = Folder::with(&[]);
    // Set by cargo, so that the test needs no variable of its own.
    let name = "CARGO_MANIFEST_DIR";
    assert!(std::env::var_os(name).is_some());
    let command = shell("echo ${CARGO_MANIFEST_DIR-unset} ${MINE-unset}");
    assert!(!folder.text(NAME, command.clone()).await.contains("unset unset"));
    folder.shell.unset = vec![name.to_owned(), "MINE".to_owned()];
    assert_eq!(folder.text(NAME, command.clone()).await, "Output: unset unset");
    folder.shell.set.push(("MINE".to_owned(), "set".to_owned()));
    assert_eq!(folder.text(NAME, command).await, "Output: unset unset", "what is kept back can't be set either");
}

#[tokio::test]
async fn a_flood_is_bounded() {
    let mut folder = Folder::with(&[]);
    folder.shell.output_bytes_max = 10_000;
    let text = folder.text(NAME, shell("echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last")).await;
    assert!(text.starts_with("Output: first\nxxx") && text.ends_with("xxx\nlast"), "{}", text.len());
    assert!(text.contains("\n\n... [29990012 bytes omitted] ...\n\n"));
    assert!(text.len() < 10_100);
}

#[tokio::test]
async fn a_process_that_hides_does_not_hold_the_call() {
    let folder = Folder::with(&[]);
    // The shell stays until the other one has left its group; it would end with the group otherwise.
    let command = "setsid sh -c 'touch hidden; exec sleep 1000' & echo $!; until [ -e hidden ]; do sleep 0.01; done";
    let text = within(folder.text(NAME, shell(command))).await;
    let pid = text.strip_prefix("Output: ").unwrap();
    // Without a guard it survives; with one it does not, see `tests/guarded.rs`.
    assert!(runs(pid));
    kill(pid);
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let folder = Folder::with(&[]);
    let text = within(folder.text(NAME, shell("sleep 1000 & echo $!"))).await;
    gone(text.strip_prefix("Output: ").unwrap()).await;
}

#[tokio::test]
async fn cancelling_ends_the_whole_group_and_keeps_the_output() {
    let folder = Folder::with(&[]);
    let bell = Bell::in_folder(&folder);
    let call = folder.build(NAME, shell("echo begun; (sleep 1000 & echo $! > bell; wait); echo never")).unwrap();
    let cancel = CancellationToken::new();
    let cx = ExecutionContext::new("c", cancel.clone(), |_| ());
    let cancelling = async {
        let pid = bell.rings().await;
        assert!(runs(&pid));
        cancel.cancel();
        pid
    };
    let (result, pid) = within(async { tokio::join!(call.execute(&cx), cancelling) }).await;
    let message = "Command was cancelled by user before it could complete. Below is the output before it ended:\nbegun";
    let Err(ToolFailure::Cancelled { message: actual, display }) = result else { panic!("{result:?}") };
    assert_eq!(actual, message);
    assert!(matches!(display, ResultDisplay::Terminal { text, .. } if text == "begun\n"));
    gone(&pid).await;
    let before = call.execute(&cx).await.unwrap_err();
    assert!(matches!(before, ToolFailure::Cancelled { .. }), "a cancelled call does not start");
}

#[tokio::test]
async fn dropping_a_call_ends_its_command() {
    let folder = Folder::with(&[]);
    let bell = Bell::in_folder(&folder);
    let call = folder.build(NAME, shell("sleep 1000 & echo $! > bell; wait")).unwrap();
    let cx = context();
    let pid = tokio::select! {
        _ = call.execute(&cx) => panic!("it can't be done"),
        pid = bell.rings() => pid,
    };
    gone(&pid).await;
}

#[tokio::test]
async fn silence_has_a_limit_and_noise_has_none() {
    let mut folder = Folder::with(&[]);
    folder.shell.inactivity_timeout = Some(Duration::from_millis(300));
    let (kind, message) = within(folder.fails(NAME, shell("echo hello; sleep 1000"))).await;
    assert_eq!(kind, ErrorType::ShellExecuteError);
    assert!(message.contains("printed nothing for 0 seconds") && message.ends_with("hello"), "{message}");
    folder.shell.inactivity_timeout = None;
    assert_eq!(folder.text(NAME, shell("echo hello")).await, "Output: hello");
}

#[tokio::test]
async fn live_output_names_the_process() {
    let folder = Folder::with(&[]);
    let (sender, mut updates) = tokio::sync::mpsc::unbounded_channel();
    let cx = ExecutionContext::new("c", CancellationToken::new(), move |output| {
        let _ = sender.send(output);
    });
    let call = folder.build(NAME, shell("echo hello; sleep 1000")).unwrap();
    let watching = async {
        loop {
            let update = updates.recv().await.unwrap();
            if update.total_bytes > 0 {
                cx.cancel.cancel();
                return update;
            }
        }
    };
    let (_, update) = within(async { tokio::join!(call.execute(&cx), watching) }).await;
    assert_eq!((update.text.as_str(), update.total_bytes), ("hello\n", 6));
    assert!(update.pid.is_some());
}

fn background(command: &str, delay_ms: u64) -> Value {
    json!({"command": command, "is_background": true, "delay_ms": delay_ms})
}

fn pid_of(text: &str) -> String {
    let (_, rest) = text.split_once("PID: ").unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect()
}

#[tokio::test]
async fn background_commands_end_with_their_session() {
    let folder = Folder::with(&[]);
    let bell = Bell::in_folder(&folder);
    let text = folder.text(NAME, background("echo ready; sleep 1000 & echo $! > bell; wait", 0)).await;
    let pid = pid_of(&text);
    assert!(text.starts_with("Command is running in background. PID: ") && text.ends_with(&format!("PGID: {pid}")));
    let grandchild = bell.rings().await;
    within(async {
        while folder.background.list()[0].total_bytes < 6 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let output = folder.text("read_background_output", json!({"pid": pid.parse::<u32>().unwrap()})).await;
    assert!(output.starts_with(&format!("[PID {pid}] running, 6 bytes of output: `echo ready;")), "{output}");
    assert!(output.ends_with("\nready"), "{output}");
    assert!(folder.text("list_background_processes", json!({})).await.contains(&pid));
    assert!(runs(&pid) && runs(&grandchild));
    within(folder.background.close()).await;
    assert!(!runs(&pid), "closing waits");
    gone(&grandchild).await;
    assert!(matches!(folder.background.list()[0].status, BackgroundStatus::Ended { .. }));
    let (_, message) = folder.fails(NAME, background("sleep 1000", 0)).await;
    assert_eq!(message, "The command was not started: the session is closed.");
}

#[tokio::test]
async fn background_commands_end_when_their_owner_is_dropped() {
    let folder = Folder::with(&[]);
    let bell = Bell::in_folder(&folder);
    folder.text(NAME, background("sleep 1000 & echo $! > bell; wait", 0)).await;
    let grandchild = bell.rings().await;
    drop(folder);
    gone(&grandchild).await;
}

#[tokio::test]
async fn a_background_command_that_ends_at_once_says_so() {
    let folder = Folder::with(&[]);
    let text = within(folder.text(NAME, background("echo no; exit 4", 20_000))).await;
    assert_eq!(text, "Command ended at once, nothing runs.\nOutput: no\nExit Code: 4");
    let listed = folder.text("list_background_processes", json!({})).await;
    assert!(listed.contains("exited with code 4"), "{listed}");
    let (kind, message) = folder.fails("read_background_output", json!({"pid": 1})).await;
    assert_eq!(kind, ErrorType::ExecutionFailed);
    assert!(message.contains("no background process 1"), "{message}");
}

#[tokio::test]
async fn who_waits_for_a_background_command_is_called_off_and_the_command_goes_on() {
    let folder = Folder::with(&[]);
    let bell = Bell::in_folder(&folder);
    // Longer than any test waits.
    let hour = 3_600_000;
    let call = folder.build(NAME, background("sleep 1000 & echo $! > bell; wait", hour)).unwrap();
    let cancel = CancellationToken::new();
    let cx = ExecutionContext::new("c", cancel.clone(), |_| ());
    let calling_off = async {
        let pid = bell.rings().await;
        cancel.cancel();
        pid
    };
    let (started, grandchild) = within(async { tokio::join!(call.execute(&cx), calling_off) }).await;
    assert!(started.unwrap().text.starts_with("Command is running in background. PID: "));
    let pid = folder.background.list()[0].pid;
    let reading = folder.build("read_background_output", json!({"pid": pid, "delay_ms": hour})).unwrap();
    let cancel = CancellationToken::new();
    let cx = ExecutionContext::new("c", cancel.clone(), |_| ());
    let calling_off = async { cancel.cancel() };
    let (read, ()) = within(async { tokio::join!(reading.execute(&cx), calling_off) }).await;
    let failure = read.unwrap_err();
    assert!(matches!(failure, ToolFailure::Cancelled { .. }), "{failure}");
    assert_eq!(failure.message(), "Cancelled while waiting for output.");
    assert!(runs(&grandchild) && folder.background.list()[0].status == BackgroundStatus::Running);
    within(folder.background.close()).await;
    gone(&grandchild).await;
}

#[tokio::test]
async fn background_commands_have_a_limit() {
    let mut folder = Folder::with(&[]);
    let limits = crate::BackgroundLimits { running_max: 1, ended_max: 1, output_bytes_max: 100 };
    folder.background = std::sync::Arc::new(crate::BackgroundProcesses::new(limits));
    for _ in 0..3 {
        folder.text(NAME, background("head -c 5000 /dev/zero | tr '\\0' x", 20_000)).await;
    }
    assert_eq!(folder.background.list().len(), 2, "one that ended is forgotten when the next one starts");
    let pid = folder.background.list()[1].pid;
    let (process, text) = folder.background.output(pid, 1 << 20).unwrap();
    assert_eq!((process.total_bytes, text.len()), (5000, 50));
    folder.text(NAME, background("sleep 1000", 0)).await;
    let (_, message) = folder.fails(NAME, background("sleep 1000", 0)).await;
    assert!(message.contains("too many background processes"), "{message}");
}

#[tokio::test]
async fn a_question_shows_the_whole_command() {
    use crate::ConfirmationDetails::Exec;
    let folder = Folder::with(&[]);
    for (command, roots) in [("git log -p", &["git"][..]), ("a && sudo b", &["a", "sudo", "b"])] {
        let Exec { command: shown, root_commands } = folder.confirmation(NAME, shell(command)).await else {
            panic!("a command is confirmed as one")
        };
        assert_eq!(
            (shown.as_str(), root_commands.as_slice()),
            (command, roots.iter().map(|root| (*root).to_owned()).collect::<Vec<_>>().as_slice())
        );
    }
    let args = json!({"command": "make", "description": "Builds\nit", "dir_path": "sub", "is_background": true});
    assert_eq!(folder.build(NAME, args).unwrap().description(), "make [in sub] (Builds it) [background]");
}
