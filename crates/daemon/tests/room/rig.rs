//! A daemon for one test, with the scripted agent in it or beside it.

use std::path::PathBuf;
use std::sync::Arc;

use convoke_bridge::BridgeOptions;
use convoke_daemon::{
    AgentCommand, AgentSource, AgentStreams, Daemon, DaemonLimits, DaemonOptions, ExitOutcome, Isolation, NamedAgents,
    PortOption, TokenOption,
};
use convoke_protocol::ApprovalMode;
use convoke_stdx::guard::Spawner;
use convoke_testkit::{Script, run_scripted_agent, scripted_agent_binary};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Events, soon};

pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) workspace: PathBuf,
    pub(crate) shutdown: CancellationToken,
    pub(crate) kill: CancellationToken,
    running: JoinHandle<ExitOutcome>,
    folder: tempfile::TempDir,
}

/// The scripted agent inside of this process.
pub(crate) fn in_memory(script: Script) -> AgentSource {
    AgentSource::Streams(Arc::new(move || {
        let (input, agent_input) = tokio::io::duplex(64 * 1024);
        let (agent_output, output) = tokio::io::duplex(64 * 1024);
        let script = script.clone();
        tokio::spawn(async move { run_scripted_agent(script, agent_input, agent_output).await });
        AgentStreams { output: Box::new(output), input: Box::new(input) }
    }))
}

/// The scripted agent as a process of its own.
pub(crate) fn process(args: &[&str]) -> AgentSource {
    let args = args.iter().map(Into::into).collect();
    AgentSource::Command(AgentCommand { program: scripted_agent_binary().into(), args, ..AgentCommand::default() })
}

pub(crate) fn options(folder: &std::path::Path) -> DaemonOptions {
    DaemonOptions {
        tcp: true,
        hostname: "127.0.0.1".to_owned(),
        port: PortOption::Given(0),
        socket: None,
        tls: None,
        rate: None,
        page: true,
        workspace: folder.to_owned(),
        token: TokenOption::NoAuth,
        require_auth: false,
        allow_origins: Vec::new(),
        token_file: None,
        audit_file: None,
        audit_sink: None,
        sessions_folder: None,
        agent: in_memory(Script::default()),
        agents: NamedAgents::default(),
        isolation: Isolation::Workspace,
        spawner: Spawner::unguarded(),
        bridge: BridgeOptions::default(),
        limits: DaemonLimits::default(),
        version: "0.1.0-test".to_owned(),
        approval_mode: ApprovalMode::Default,
        trusted: true,
    }
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut DaemonOptions)) -> Self {
        Self::within(tempfile::tempdir().unwrap(), change).await
    }

    /// A daemon whose workspace is this folder.
    pub(crate) async fn within(folder: tempfile::TempDir, change: impl FnOnce(&mut DaemonOptions)) -> Self {
        let workspace = folder.path().canonicalize().unwrap();
        let mut options = options(&workspace);
        change(&mut options);
        let daemon = Daemon::bind(options).await.unwrap();
        let client = Client { address: daemon.address().unwrap(), token: None };
        let (shutdown, kill) = (CancellationToken::new(), CancellationToken::new());
        let running = tokio::spawn(daemon.run(shutdown.clone(), kill.clone()));
        Self { client, workspace, shutdown, kill, running, folder }
    }

    /// Its client shows this token from now on.
    pub(crate) fn authorized(mut self, token: &str) -> Self {
        self.client.token = Some(token.to_owned());
        self
    }

    /// Waits for the daemon's end.
    pub(crate) async fn ended(self) -> ExitOutcome {
        soon(self.running).await.unwrap()
    }

    /// Waits for the daemon's end, and leaves its workspace to another one.
    pub(crate) async fn ended_in_place(self) -> tempfile::TempDir {
        soon(self.running).await.unwrap();
        self.folder
    }

    /// Joins the shared session, or with `thread` makes a new one.
    pub(crate) async fn join(&self, scope: &str) -> Member {
        let body = self.client.post("/session", "", json!({"sessionScope": scope})).await;
        assert_eq!(body.status, 200, "{}", body.text());
        let body = body.json();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        Member { client: self.client.clone(), session: text("sessionId"), id: text("clientId") }
    }
}

/// A client that is registered on a session.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) client: Client,
    pub(crate) session: String,
    pub(crate) id: String,
}

impl Member {
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/session/{}/{rest}", self.session)
    }

    pub(crate) async fn events(&self) -> Events {
        self.client.events(&self.path("events"), &[]).await
    }

    pub(crate) async fn events_after(&self, last: &str) -> Events {
        self.client.events(&self.path("events"), &[("Last-Event-ID", last)]).await
    }

    /// Sends a prompt and returns its id.
    pub(crate) async fn prompt(&self, text: &str) -> String {
        let body = json!({"prompt": [{"type": "text", "text": text}]});
        let answer = self.client.post(&self.path("prompt"), &self.id, body).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["promptId"].as_str().unwrap().to_owned()
    }

    /// Votes, and returns status and body.
    pub(crate) async fn vote(&self, request: &str, option: &str) -> (u16, Value) {
        let body = json!({"outcome": {"outcome": "selected", "optionId": option}});
        let answer = self.client.post(&self.path(&format!("permission/{request}")), &self.id, body).await;
        (answer.status, answer.json())
    }

    pub(crate) async fn status(&self) -> Value {
        self.client.get(&self.path("status")).await.json()
    }
}

/// The id of a `permission_request`.
pub(crate) fn request_id(frame: &Value) -> String {
    frame["data"]["requestId"].as_str().unwrap().to_owned()
}
