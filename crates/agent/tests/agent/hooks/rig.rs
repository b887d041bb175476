//! A session with hooks: scripts in its folder, which note what they were told.

use std::path::Path;
use std::sync::{Arc, Mutex};

use convoke_agent::{AgentFactory, HookDefinition, HookLayer, HookOptions, HookSource, HookTrust};
use convoke_protocol::{AgentEvent, AgentEventBody, NewSession, SessionFactory};
use convoke_tools::Mode;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::*;

/// Agrees to what it was told before, and remembers the rest.
#[derive(Default)]
pub(crate) struct Remembers(pub(crate) Mutex<Vec<String>>);

impl HookTrust for Remembers {
    fn is_trusted(&self, digest: &str) -> bool {
        self.0.lock().unwrap().iter().any(|known| known == digest)
    }

    fn trust(&self, hooks: &[Arc<HookDefinition>]) -> Result<(), String> {
        self.0.lock().unwrap().extend(hooks.iter().map(|hook| hook.digest()));
        Ok(())
    }
}

pub(crate) struct Hooked {
    pub(crate) rig: Rig,
    pub(crate) trust: Arc<Remembers>,
}

/// How a session is made.
pub(crate) struct Setup {
    pub(crate) answers: Vec<Answer>,
    pub(crate) source: HookSource,
    pub(crate) interactive: bool,
    pub(crate) mode: Mode,
    pub(crate) secrets: Vec<String>,
    pub(crate) trust: Arc<Remembers>,
}

impl Setup {
    pub(crate) fn new(answers: Vec<Answer>) -> Self {
        Self {
            answers,
            source: HookSource::User,
            interactive: true,
            mode: Mode::Yolo,
            secrets: Vec::new(),
            trust: Arc::default(),
        }
    }

    /// Starts a session with these hooks. `sh!` stands for a script's text.
    pub(crate) async fn start(self, hooks: Value) -> Hooked {
        let dir = tempfile::Builder::new().prefix("a hook's ").tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), "one\n").unwrap();
        let (mut options, requests) = options(self.answers, Arc::new(convoke_agent::NoLifecycleHooks));
        options.interactive = self.interactive;
        options.policy.interactive = self.interactive;
        options.policy.mode = self.mode;
        options.secret_variables = self.secrets;
        options.plan_folder = Some("plans".into());
        let layer = HookLayer { source: self.source, hooks, config: Value::Null };
        options.user_hooks = HookOptions { layers: vec![layer], trust: self.trust.clone() };
        let (ask, questions) = mpsc::channel(4);
        let new = NewSession {
            session_id: Some("s".into()),
            ..NewSession::new(dir.path().canonicalize().unwrap(), Arc::new(Asked(ask)))
        };
        let session = AgentFactory::new(options).new_session(new).await.unwrap();
        Hooked { rig: Rig { dir, session, questions, requests }, trust: self.trust }
    }
}

impl Hooked {
    pub(crate) fn dir(&self) -> &Path {
        self.rig.dir.path()
    }

    /// What the hooks noted, a line each.
    pub(crate) fn noted(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir().join("noted")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the model was told of its calls by the request of that number.
    pub(crate) fn told(&self, request: usize) -> Vec<Value> {
        let requests = self.rig.requests.lock().unwrap();
        let contents = &requests[request].contents;
        contents.last().unwrap().function_responses().into_iter().map(|response| response.response).collect()
    }

    /// All that the model was asked with the request of that number.
    pub(crate) fn asked(&self, request: usize) -> String {
        let requests = self.rig.requests.lock().unwrap();
        requests[request].contents.iter().map(|content| content.joined_text() + "\n").collect()
    }
}

/// A hook that keeps what it is told and says `output`.
pub(crate) fn notes(output: Value) -> Value {
    let said = output.to_string().replace('\'', r"'\''");
    json!({"type": "command", "command": format!("cat >> \"$CONVOKE_PROJECT_DIR/noted\"; echo >> noted; echo '{said}'")})
}

/// One group with one hook, for everything.
pub(crate) fn one(hook: Value) -> Value {
    json!([{"hooks": [hook]}])
}

pub(crate) fn command(command: &str) -> Value {
    json!({"type": "command", "command": command})
}

/// A Python program, as a command.
pub(crate) fn python(program: &str) -> Value {
    assert!(!program.contains('\''));
    command(&format!("python3 -c '{program}'"))
}

/// What hooks said to the user.
pub(crate) fn messages(events: &[Arc<AgentEvent>]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match &event.body {
            AgentEventBody::Custom { kind, data: Some(data) } if kind == "hook_message" => {
                Some(data["message"].as_str().unwrap().to_owned())
            }
            _ => None,
        })
        .collect()
}
