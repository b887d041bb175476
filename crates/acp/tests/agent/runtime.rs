//! A runtime that does what its prompts say, on the real event log.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentInfo, AgentProtocol, AgentSend, AnswerChoice, AnswerKind, ApprovalMode,
    ClientFiles, CommandInfo, ConfigCategory, ConfigChoice, ConfigOption, ContentPart, DisplayContent, ErrorStatus,
    EventLog, HostedSession, ListSessions, LoadFrom, LoadSession, LoadedSession, MessageRole, Meta, NewSession,
    PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome, PermissionPort, PermissionRequest,
    QuestionOutcome, QuestionRequest, SendError, SendReceipt, SessionControl, SessionError, SessionFactory, SessionId,
    SessionPage, SessionRecords, SetConfigError, SetModeError, SteerOutcome, StoredSession, StreamEndReason, StreamId,
    ToolDisplay, ToolKind, ToolLocation,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Chunks of the prompt `flood`; more than any queue on the way holds.
pub(crate) const FLOOD: usize = 2000;

#[derive(Default)]
pub(crate) struct Runtime {
    /// Ids of recorded sessions.
    recorded: Mutex<Vec<String>>,
    records: bool,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    closed: Arc<Mutex<Vec<SessionId>>>,
    next: AtomicU64,
    signs: Arc<Signs>,
}

/// What tests wait for.
#[derive(Default)]
struct Signs {
    aborted: watch::Sender<bool>,
    flooded: watch::Sender<bool>,
}

impl Runtime {
    /// With records of these sessions.
    pub(crate) fn recording(ids: &[&str]) -> Self {
        let recorded = Mutex::new(ids.iter().map(|id| (*id).to_owned()).collect());
        Self { recorded, records: true, ..Self::default() }
    }

    pub(crate) fn closed(&self) -> Vec<SessionId> {
        self.closed.lock().unwrap().clone()
    }

    pub(crate) async fn aborted(&self) {
        self.signs.aborted.subscribe().wait_for(|seen| *seen).await.unwrap();
    }

    pub(crate) async fn flooded(&self) {
        self.signs.flooded.subscribe().wait_for(|seen| *seen).await.unwrap();
    }
}

#[async_trait]
impl SessionFactory for Runtime {
    fn info(&self) -> AgentInfo {
        AgentInfo { name: "fake".into(), title: "Fake runtime".into(), version: "1.2.3".into() }
    }

    fn records(&self) -> Option<&dyn SessionRecords> {
        self.records.then_some(self)
    }

    async fn new_session(&self, new: NewSession) -> Result<HostedSession, SessionError> {
        if new.cwd.ends_with("credential") {
            return Err(SessionError::Auth("set GEMINI_API_KEY".into()));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = new.session_id.unwrap_or_else(|| SessionId(format!("session-{number}")));
        let session = Arc::new(Session {
            id: id.clone(),
            log: EventLog::new(),
            permission: new.permission,
            files: new.files,
            commands: Mutex::default(),
            said: watch::Sender::default(),
            mode: Mutex::new(ApprovalMode::Default),
            level: Mutex::new("low".into()),
            running: Mutex::default(),
            tasks: Mutex::default(),
            streams: AtomicU64::new(1),
            closed: Arc::clone(&self.closed),
            signs: Arc::clone(&self.signs),
        });
        if new.cwd.ends_with("commands") {
            session.learn("help", None);
        }
        let mut sessions = self.sessions.lock().unwrap();
        if sessions.contains_key(&id) {
            return Err(SessionError::Taken(id));
        }
        sessions.insert(id.clone(), Arc::clone(&session));
        Ok(HostedSession { id, agent: Arc::new(Agent(Arc::clone(&session))), control: session })
    }
}

#[async_trait]
impl SessionRecords for Runtime {
    async fn list_sessions(&self, list: ListSessions) -> Result<SessionPage, SessionError> {
        let stored = |id: &String| StoredSession {
            id: id.as_str().into(),
            cwd: "/work".into(),
            title: Some(format!("About {id}")),
            created_ms: 0,
            updated_ms: 1000,
            message_count: 2,
        };
        let recorded = self.recorded.lock().unwrap().clone();
        let from = list.cursor.map_or(Ok(0), |cursor| cursor.parse()).map_err(|_| SessionError::Cursor)?;
        let here = list.cwd.is_none_or(|cwd| cwd == std::path::Path::new("/work"));
        let sessions: Vec<_> = recorded.iter().skip(from).take(1).filter(|_| here).map(stored).collect();
        let next = (here && from + 1 < recorded.len()).then(|| (from + 1).to_string());
        Ok(SessionPage { sessions, next })
    }

    async fn load_session(&self, load: LoadSession) -> Result<LoadedSession, SessionError> {
        let LoadFrom::Session(id) = load.from else { unreachable!("nobody names a file") };
        if !self.recorded.lock().unwrap().contains(&id.0) {
            return Err(SessionError::Unknown(id));
        }
        let event = |number: usize, body| AgentEvent {
            id: format!("past-{number}").into(),
            thread_id: None,
            stream_id: StreamId("past".into()),
            timestamp: String::new(),
            body,
            meta: Meta::new(),
        };
        let says = |role, words: &str| AgentEventBody::Message { role, content: text(words) };
        let call = AgentEventBody::ToolRequest {
            request_id: "old-call".into(),
            name: "replace".into(),
            args: json!({}),
            display: None,
            kind: ToolKind::Edit,
            locations: vec![],
        };
        let called = AgentEventBody::ToolResponse {
            request_id: "old-call".into(),
            name: "replace".into(),
            display: None,
            content: Some(text("replaced")),
            data: None,
            is_error: false,
        };
        let mut bodies = vec![says(MessageRole::User, "do it"), AgentEventBody::AgentStart, call, called];
        bodies.extend((0..FLOOD).map(|number| says(MessageRole::Agent, &format!("chunk {number}"))));
        let history = bodies.into_iter().enumerate().map(|(number, body)| event(number, body)).collect();
        // Whoever closed it may have it again.
        self.sessions.lock().unwrap().retain(|_, session| !self.closed().contains(&session.id));
        let session = self.new_session(NewSession { session_id: Some(id), ..load.session }).await?;
        let history = if load.replay { history } else { vec![] };
        Ok(LoadedSession { session, history, title: Some("Old things".into()), damaged: 3 })
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), SessionError> {
        let mut recorded = self.recorded.lock().unwrap();
        let place = recorded.iter().position(|recorded| *recorded == id.0);
        recorded.remove(place.ok_or_else(|| SessionError::Unknown(id.clone()))?);
        Ok(())
    }
}

pub(crate) struct Session {
    id: SessionId,
    log: EventLog,
    permission: Arc<dyn PermissionPort>,
    files: Option<Arc<dyn ClientFiles>>,
    commands: Mutex<Vec<CommandInfo>>,
    said: watch::Sender<Option<String>>,
    mode: Mutex<ApprovalMode>,
    level: Mutex<String>,
    running: Mutex<Option<CancellationToken>>,
    tasks: Mutex<JoinSet<()>>,
    streams: AtomicU64,
    closed: Arc<Mutex<Vec<SessionId>>>,
    signs: Arc<Signs>,
}

#[async_trait]
impl SessionControl for Session {
    fn approval_mode(&self) -> ApprovalMode {
        *self.mode.lock().unwrap()
    }

    fn approval_modes(&self) -> Vec<ApprovalMode> {
        vec![ApprovalMode::Plan, ApprovalMode::Default, ApprovalMode::AutoEdit]
    }

    fn set_approval_mode(&self, mode: ApprovalMode) -> Result<(), SetModeError> {
        *self.mode.lock().unwrap() = mode;
        Ok(())
    }

    fn model(&self) -> String {
        "fake-model".into()
    }

    fn commands(&self) -> Vec<CommandInfo> {
        self.commands.lock().unwrap().clone()
    }

    fn steer(&self, said: &str) -> SteerOutcome {
        if self.running.lock().unwrap().is_none() {
            return SteerOutcome::NoTurn;
        }
        self.said.send_replace(Some(said.to_owned()));
        SteerOutcome::Taken
    }

    fn context_window(&self) -> Option<u64> {
        Some(1000)
    }

    fn config_options(&self) -> Vec<ConfigOption> {
        let level = self.level.lock().unwrap().clone();
        vec![ConfigOption {
            id: "thought_level",
            name: "Thinking",
            description: "How much",
            category: ConfigCategory::ThoughtLevel,
            current: level,
            choices: vec![ConfigChoice::new("low", "Low"), ConfigChoice::new("high", "High")],
        }]
    }

    fn set_config_option(&self, id: &str, value: &str) -> Result<(), SetConfigError> {
        if id != "thought_level" {
            return Err(SetConfigError::UnknownOption(id.into()));
        }
        *self.level.lock().unwrap() = value.into();
        Ok(())
    }

    async fn close(&self) {
        self.abort().await;
        self.log.close();
        self.closed.lock().unwrap().push(self.id.clone());
    }
}

impl Session {
    fn learn(&self, name: &str, hint: Option<&str>) {
        let (name, description) = (name.to_owned(), format!("Does {name}"));
        self.commands.lock().unwrap().push(CommandInfo { name, description, hint: hint.map(Into::into) });
    }

    async fn abort(&self) {
        let running = self.running.lock().unwrap().clone();
        if let Some(running) = running {
            running.cancel();
            let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
            while tasks.join_next().await.is_some() {}
        }
    }
}

struct Agent(Arc<Session>);

#[async_trait]
impl AgentProtocol for Agent {
    async fn send(&self, payload: AgentSend) -> Result<SendReceipt, SendError> {
        let AgentSend::Message(message) = payload else { return Ok(SendReceipt { stream_id: None }) };
        let text: String = message.content.iter().filter_map(ContentPart::as_text).collect();
        if message.content.is_empty() {
            return Err(SendError::Empty);
        }
        assert!(!text.contains("panic"), "a bug, on purpose");
        let cancel = CancellationToken::new();
        if self.0.running.lock().unwrap().replace(cancel.clone()).is_some() {
            return Err(SendError::Busy);
        }
        let stream = StreamId(format!("stream-{}", self.0.streams.fetch_add(1, Ordering::Relaxed)));
        let turn = Turn { session: Arc::clone(&self.0), stream: stream.clone(), next: AtomicU64::new(0), cancel };
        turn.emit(AgentEventBody::Message { role: MessageRole::User, content: message.content });
        if text == "hasty" {
            turn.run(&text).await;
            tokio::task::yield_now().await;
        } else {
            self.0.tasks.lock().unwrap().spawn(async move { turn.run(&text).await });
        }
        Ok(SendReceipt { stream_id: Some(stream) })
    }

    fn log(&self) -> &EventLog {
        &self.0.log
    }

    async fn abort(&self) {
        self.0.abort().await;
    }
}

struct Turn {
    session: Arc<Session>,
    stream: StreamId,
    next: AtomicU64,
    cancel: CancellationToken,
}

fn text(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}

impl Turn {
    fn emit(&self, body: AgentEventBody) {
        self.emit_with(body, None, Meta::new());
    }

    fn emit_with(&self, body: AgentEventBody, thread: Option<&str>, meta: Meta) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.session.log.push(AgentEvent {
            id: format!("{}-{number}", self.stream).into(),
            thread_id: thread.map(Into::into),
            stream_id: self.stream.clone(),
            timestamp: "2026-11-21T02:02:33.118Z".into(),
            body,
            meta,
        });
    }

    fn says(&self, content: Vec<ContentPart>) {
        self.emit(AgentEventBody::Message { role: MessageRole::Agent, content });
    }

    async fn run(self, prompt: &str) {
        self.emit(AgentEventBody::AgentStart);
        let end = tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                // What the turn does ends with it.
                (StreamEndReason::Aborted, None)
            }
            end = self.act(prompt) => end,
        };
        if end.0 == StreamEndReason::Aborted {
            self.session.signs.aborted.send_replace(true);
        }
        *self.session.running.lock().unwrap() = None;
        self.emit(AgentEventBody::AgentEnd { reason: end.0, data: end.1 });
    }

    async fn act(&self, prompt: &str) -> (StreamEndReason, Option<Value>) {
        let data = Some(json!({"code": "END"}));
        match prompt {
            "fail quota" => {
                let mut meta = Meta::new();
                meta.insert("retryDelayMs".into(), json!(1500));
                self.error(ErrorStatus::Unavailable, "it was slow", false, Meta::new());
                self.error(ErrorStatus::ResourceExhausted, "no quota is left", true, meta);
                return (StreamEndReason::Failed, data);
            }
            "ask once" => {
                self.emit(AgentEventBody::Message {
                    role: MessageRole::Agent,
                    content: vec![ContentPart::Thought { thought: "hm".into(), thought_signature: None }],
                });
                self.call(0).await;
            }
            "ask thrice" => {
                futures::future::join_all((0..3).map(|n| self.call(n))).await;
            }
            "ask and forget" => {
                let mut asking = std::pin::pin!(self.session.permission.request(self.question("call-0")));
                // Asked, and dropped unanswered.
                for _ in 0..20 {
                    assert!(futures::poll!(&mut asking).is_pending());
                    tokio::task::yield_now().await;
                }
            }
            "hang" => {
                self.says(text("hanging"));
                std::future::pending::<()>().await;
            }
            "flood" => {
                for n in 0..FLOOD {
                    self.says(text(&format!("chunk {n}")));
                }
                self.session.signs.flooded.send_replace(true);
                std::future::pending::<()>().await;
            }
            "switch to plan" => {
                *self.session.mode.lock().unwrap() = ApprovalMode::Plan;
                self.emit(AgentEventBody::SessionUpdate { title: Some("Planning".into()), model: None, config: None });
            }
            "learn" => self.session.learn("plan", Some("goal")),
            "listen" => {
                self.says(text("listening"));
                let said = self.session.said.subscribe().wait_for(Option::is_some).await.unwrap().clone();
                self.says(text(&said.unwrap()));
            }
            "question" => self.ask_in_words().await,
            "everything" => self.everything().await,
            _ => {}
        }
        if let Some(path) = prompt.strip_prefix("shout ") {
            self.shout(path).await;
        }
        match prompt.strip_prefix("end ") {
            Some(reason) => (serde_json::from_value(json!(reason)).unwrap(), data),
            None => (StreamEndReason::Completed, None),
        }
    }

    fn error(&self, status: ErrorStatus, message: &str, fatal: bool, meta: Meta) {
        self.emit_with(AgentEventBody::Error { status, message: message.into(), fatal }, None, meta);
    }

    fn question(&self, call: &str) -> PermissionRequest {
        let option = |id: &str, name: &str, kind| PermissionOption { option_id: id.into(), name: name.into(), kind };
        PermissionRequest {
            session_id: self.session.id.clone(),
            tool_call_id: call.into(),
            tool_name: "replace".into(),
            title: "src/main.rs: a => b".into(),
            kind: ToolKind::Edit,
            content: vec![PermissionContent::Diff {
                path: "/work/src/main.rs".into(),
                old_text: Some("a\n".into()),
                new_text: "b\n".into(),
            }],
            locations: vec![ToolLocation { path: "/work/src/main.rs".into(), line: Some(1) }],
            raw_input: json!({"file_path": "src/main.rs", "old_string": "a", "new_string": "b"}),
            options: vec![
                option("proceed_once", "Allow", PermissionOptionKind::AllowOnce),
                option("proceed_always", "Always allow", PermissionOptionKind::AllowAlways),
                option("cancel", "Reject", PermissionOptionKind::RejectOnce),
            ],
            origin: vec![],
        }
    }

    fn announce(&self, id: &str) {
        self.emit(AgentEventBody::ToolRequest {
            request_id: id.into(),
            name: "replace".into(),
            args: json!({"file_path": "src/main.rs", "old_string": "a", "new_string": "b"}),
            display: Some(ToolDisplay {
                name: Some("Edit".into()),
                description: Some("src/main.rs: a => b".into()),
                ..ToolDisplay::default()
            }),
            kind: ToolKind::Edit,
            locations: vec![ToolLocation { path: "/work/src/main.rs".into(), line: None }],
        });
    }

    /// A call that asks; its result is the answer.
    async fn call(&self, number: usize) {
        let id = format!("call-{number}");
        self.announce(&id);
        let answer = match self.session.permission.request(self.question(&id)).await {
            PermissionOutcome::Selected { option_id } => option_id,
            PermissionOutcome::Cancelled => "cancelled".into(),
        };
        self.emit(AgentEventBody::ToolResponse {
            request_id: id.as_str().into(),
            name: "replace".into(),
            display: None,
            content: Some(text(&answer)),
            data: None,
            is_error: !answer.starts_with("proceed"),
        });
    }

    /// A question that a choice can't answer; the answer is said.
    async fn ask_in_words(&self) {
        if !self.session.permission.takes_questions() {
            return self.says(text("nobody takes questions"));
        }
        let choice = |label: &str| AnswerChoice { label: label.into(), description: String::new() };
        let question = QuestionRequest {
            session_id: self.session.id.clone(),
            tool_call_id: "call-0".into(),
            question: "Which colours?".into(),
            header: "Colours".into(),
            answer: AnswerKind::Several(vec![choice("red"), choice("blue")]),
        };
        let said = match self.session.permission.ask(question).await {
            QuestionOutcome::Answered(answers) => answers.join("+"),
            QuestionOutcome::Declined => "declined".into(),
            QuestionOutcome::Cancelled => "cancelled".into(),
        };
        self.says(text(&said));
    }

    /// Writes a file's text in capitals, through the client; what it said instead is said.
    async fn shout(&self, path: &str) {
        let Some(files) = self.session.files.as_ref().filter(|files| files.reads() && files.writes()) else {
            return self.says(text("no files"));
        };
        let path = std::path::Path::new(path);
        let done = match files.read_text(path).await {
            Ok(read) => files.write_text(path, &read.to_uppercase()).await,
            Err(error) => Err(error),
        };
        self.says(text(&done.map_or_else(|error| error.to_string(), |()| "done".into())));
    }

    /// One of each event, for the wire's golden file.
    async fn everything(&self) {
        self.emit(AgentEventBody::SessionUpdate { title: None, model: Some("fake-pro".into()), config: None });
        self.says(vec![ContentPart::Thought { thought: "Let me see.".into(), thought_signature: Some("sig".into()) }]);
        self.says(text("I edit "));
        self.says(text("the file."));
        self.announce("call-0");
        let status = |status: &str| AgentEventBody::ToolUpdate {
            request_id: "call-0".into(),
            display: None,
            content: None,
            data: Some(json!({"status": status})),
        };
        self.emit(status("awaiting_approval"));
        self.session.permission.request(self.question("call-0")).await;
        self.emit(status("executing"));
        self.emit(AgentEventBody::ToolResponse {
            request_id: "call-0".into(),
            name: "replace".into(),
            display: Some(ToolDisplay {
                result: Some(DisplayContent::Diff {
                    path: "/work/src/main.rs".into(),
                    before_text: Some("a\n".into()),
                    after_text: "b\n".into(),
                }),
                ..ToolDisplay::default()
            }),
            content: Some(text("Successfully modified file")),
            data: Some(json!({"contentLength": 2})),
            is_error: false,
        });
        self.error(ErrorStatus::Internal, "Loop detected, stopping execution", false, {
            let mut meta = Meta::new();
            meta.insert("code".into(), json!("LOOP_DETECTED"));
            meta
        });
        self.emit_with(
            AgentEventBody::Message { role: MessageRole::Agent, content: text("a subagent's words") },
            Some("thread-1"),
            Meta::new(),
        );
        self.says(text("Done."));
        self.emit(AgentEventBody::Usage {
            model: "fake-pro".into(),
            input_tokens: Some(10),
            output_tokens: Some(5),
            cached_tokens: Some(4),
        });
    }
}
