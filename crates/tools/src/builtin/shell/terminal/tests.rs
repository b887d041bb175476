//! A client whose terminals do what the test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use convoke_stdx::guard::Mechanism;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::super::super::testing::{Folder, within};
use super::*;
use crate::SandboxOptions;

/// What was asked of it, in order, and how its commands end: never, if there is no exit.
#[derive(Debug, Default)]
struct Client {
    asked: Mutex<Vec<String>>,
    exit: Option<TerminalExit>,
    output: TerminalOutput,
    killed: Notify,
    refuses: bool,
}

impl Client {
    fn note(&self, what: impl Into<String>) {
        self.asked.lock().unwrap().push(what.into());
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[derive(Debug)]
struct Shared(Arc<Client>);

#[async_trait]
impl ClientTerminals for Shared {
    fn offered(&self) -> bool {
        true
    }

    async fn start(&self, command: TerminalCommand) -> Result<Box<dyn ClientTerminal>, String> {
        self.0.note(format!("{} {}", command.program, command.args.join(" ")));
        if self.0.refuses {
            return Err("no more terminals".to_owned());
        }
        Ok(Box::new(Terminal(self.0.clone())))
    }
}

struct Terminal(Arc<Client>);

#[async_trait]
impl ClientTerminal for Terminal {
    fn id(&self) -> &str {
        "t1"
    }

    async fn output(&self) -> Result<TerminalOutput, String> {
        Ok(self.0.output.clone())
    }

    async fn exited(&self) -> Result<TerminalExit, String> {
        match &self.0.exit {
            Some(exit) => Ok(exit.clone()),
            None => {
                self.0.killed.notified().await;
                Ok(TerminalExit { code: None, signal: Some("SIGTERM".to_owned()) })
            }
        }
    }

    async fn kill(&self) -> Result<(), String> {
        self.0.note("kill");
        self.0.killed.notify_one();
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.0.note("release");
    }
}

fn folder(client: &Arc<Client>) -> Folder {
    let mut folder = Folder::with(&[]);
    folder.shell.terminals = Some(Arc::new(Shared(client.clone())));
    folder.shell.unset = vec!["SECRET_KEY".to_owned()];
    folder
}

fn shell(command: &str) -> Value {
    json!({"command": command})
}

fn exits(code: i32, text: &str) -> Arc<Client> {
    let exit = Some(TerminalExit { code: Some(code), signal: None });
    Arc::new(Client { exit, output: TerminalOutput { text: text.to_owned(), is_cut: false }, ..Client::default() })
}

#[tokio::test]
async fn the_model_reads_what_it_would_read_of_a_child() {
    for (client, expected) in [
        (exits(0, "out\n"), "Output: out"),
        (exits(0, ""), "Output: (empty)"),
        (exits(3, "no\n"), "Output: no\nExit Code: 3"),
    ] {
        let output = folder(&client).run("run_shell_command", shell("make it")).await.unwrap();
        assert_eq!(output.text, expected);
        assert_eq!(client.asked(), ["env -u SECRET_KEY bash -c make it", "release"]);
        assert_eq!(output.data.unwrap()["terminalId"], "t1");
    }
    let signal = TerminalExit { code: None, signal: Some("SIGKILL".to_owned()) };
    let cut = TerminalOutput { text: "end".to_owned(), is_cut: true };
    let client = Arc::new(Client { exit: Some(signal), output: cut, ..Client::default() });
    let text = folder(&client).text("run_shell_command", shell("x")).await;
    assert_eq!(text, "Output: [the beginning is not kept by the terminal]\nend\nSignal: SIGKILL");
}

#[tokio::test]
async fn what_has_to_be_ours_never_runs_there() {
    let client = exits(0, "there");
    let folder = folder(&client);
    let background = json!({"command": "true", "is_background": true, "delay_ms": 0});
    folder.run("run_shell_command", background).await.unwrap();
    let mut confined = folder;
    confined.shell.sandbox = Some(SandboxOptions { via: Mechanism::Landlock, writable: Vec::new(), network: false });
    // Whether this machine can confine it or not.
    let _ = confined.run("run_shell_command", shell("true")).await;
    assert_eq!(client.asked(), Vec::<String>::new());
    confined.background.close().await;
}

#[tokio::test]
async fn a_cancelled_or_silent_command_is_ended_and_its_terminal_released() {
    let client =
        Arc::new(Client { output: TerminalOutput { text: "half".into(), is_cut: false }, ..Client::default() });
    let started = Arc::new(Notify::new());
    let seen = started.clone();
    let cancel = CancellationToken::new();
    let cx = ExecutionContext::new("call", cancel.clone(), move |live| {
        assert_eq!(live.data, Some(json!({"terminalId": "t1"})));
        seen.notify_one();
    });
    let place = folder(&client);
    let call = place.build("run_shell_command", shell("sleep 1000")).unwrap();
    let (failure, ()) = within(async {
        tokio::join!(call.execute(&cx), async {
            started.notified().await;
            cancel.cancel();
        })
    })
    .await;
    assert!(matches!(failure, Err(ToolFailure::Cancelled { message, .. }) if message.contains("half")));
    assert_eq!(client.asked()[1..], ["kill", "release"]);

    let client = Arc::new(Client::default());
    let mut folder = folder(&client);
    folder.shell.inactivity_timeout = Some(Duration::from_millis(40));
    let (_, message) = within(folder.fails("run_shell_command", shell("sleep 1000"))).await;
    assert!(message.starts_with("Command was ended because it printed nothing"), "{message}");
    assert_eq!(client.asked()[1..], ["kill", "release"]);
}

#[tokio::test]
async fn a_client_that_makes_no_terminal_is_told_of() {
    let client = Arc::new(Client { refuses: true, ..Client::default() });
    let (_, message) = folder(&client).fails("run_shell_command", shell("true")).await;
    assert!(message.ends_with("in a terminal of the client: no more terminals"), "{message}");
}
