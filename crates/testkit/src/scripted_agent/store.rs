//! The scripted agent's memory: every update of a session that was prompted, one a line.

use std::fs::{self, OpenOptions};
use std::io::Write;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Agent;

impl Agent {
    /// Keeps an update, if sessions are kept.
    pub(super) fn keep(&self, session: &str, update: &Value) {
        let Some(path) = &self.0.script.store else { return };
        let line = format!("{}\n", json!({"sessionId": session, "update": update}));
        // What can't be kept can't be loaded, and a test will tell.
        let _ = OpenOptions::new().create(true).append(true).open(path).and_then(|mut f| f.write_all(line.as_bytes()));
    }

    /// Tells a kept session again, then answers as for a new one.
    pub(super) async fn load_session(&self, session: &str, params: &Value) -> Result<Value, Value> {
        let text = self.0.script.store.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let kept: Vec<Value> = lines.filter(|line| line["sessionId"] == session).collect();
        if kept.is_empty() {
            return Err(json!({"code": -32002, "message": format!("Resource not found: {session}")}));
        }
        for line in kept {
            self.notify("session/update", line).await;
        }
        let cwd = params["cwd"].as_str().unwrap_or_default().to_owned();
        self.state().sessions.insert(session.to_owned(), (cwd, CancellationToken::new()));
        Ok(self.describe())
    }
}
