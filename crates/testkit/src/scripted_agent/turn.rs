//! What one prompt makes the scripted agent do.

use std::future;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Agent;
use super::chaos::Step;

/// Between the chunks of the slow scenario.
const TICK: Duration = Duration::from_millis(20);

/// One running prompt.
pub(super) struct Turn {
    pub(super) agent: Agent,
    pub(super) session: String,
    pub(super) cwd: String,
    pub(super) cancel: CancellationToken,
}

/// How a question about a tool call came back.
enum Verdict {
    Allowed,
    Refused,
    TurnCancelled,
}

fn stop(reason: &str) -> Result<Value, Value> {
    Ok(json!({"stopReason": reason}))
}

/// The number behind `name=`, or `default`.
fn number(text: &str, name: &str, default: usize) -> usize {
    let after = text.split_once(name).map(|(_, rest)| rest).unwrap_or_default();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(default)
}

impl Turn {
    pub(super) async fn run(&self, text: &str) -> Result<Value, Value> {
        let has = |word: &str| text.contains(word);
        self.agent.chaos(Step::Prompt, &self.session).await;
        if has("approvals at once") {
            return self.approvals(2, true, false).await;
        }
        if has("two approvals") {
            return self.approvals(2, false, false).await;
        }
        if has("many approvals") {
            for _ in 0..number(text, "n=", 2) {
                self.approvals(1, false, false).await?;
            }
            return stop("end_turn");
        }
        if has("approval") {
            return self.approvals(1, false, has("classifier")).await;
        }
        if has("withdraw") {
            return self.withdraw().await;
        }
        if has("flood scenario") {
            let pad = "x".repeat(number(text, "pad=", 0));
            for n in 0..number(text, "n=", 1000) {
                self.chunk(&format!("{n} {pad}")).await;
            }
            return stop("end_turn");
        }
        if has("slow scenario") {
            return self.slow(number(text, "n=", 11)).await;
        }
        if has("endless line") {
            self.agent.clone().endless_line().await;
        }
        if has("rubbish") {
            self.agent.rubbish().await;
        }
        if has("unknown update") {
            let update =
                json!({"sessionUpdate": "brand_new_thing", "zzz": {"b": 1, "a": [null, 1.50]}, "_meta": {"x": 1}});
            let params = json!({"sessionId": self.session, "update": update, "_meta": {"beside": true}});
            self.agent.notify("session/update", params).await;
        }
        if has("read a file") {
            let params = json!({"sessionId": self.session, "path": "/etc/hostname"});
            let (_, answer) = self.agent.ask("fs/read_text_file", params).await;
            let answer = answer.await.unwrap_or_default();
            self.chunk(&answer["error"]["code"].to_string()).await;
            return stop("end_turn");
        }
        if has("usage") {
            self.update(json!({"sessionUpdate": "usage_update", "used": 1200, "size": 200_000})).await;
        }
        if has("deeds") {
            return self.deeds().await;
        }
        if has("ignore cancel") {
            return future::pending().await;
        }
        if has("hang") {
            self.cancel.cancelled().await;
            return stop("cancelled");
        }
        if has("fail") {
            return Err(json!({"code": 429, "message": "quota exceeded", "data": {"retryDelayMs": 1000}}));
        }
        if has("exit ") {
            let code = u8::try_from(number(text, "exit ", 0)).unwrap_or(u8::MAX);
            // The channel holds one: the first exit wins.
            let _ = self.agent.0.exit.send(code).await;
            return future::pending().await;
        }
        self.chunk(if has("echo") { text } else { "Hello from mock." }).await;
        self.usage().await;
        stop("end_turn")
    }

    async fn update(&self, update: Value) {
        self.agent.update(&self.session, update).await;
    }

    async fn chunk(&self, text: &str) {
        self.update(json!({"content": {"text": text, "type": "text"}, "sessionUpdate": "agent_message_chunk"})).await;
    }

    async fn usage(&self) {
        let usage = json!({
            "inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "thoughtTokens": 0, "cachedReadTokens": 0,
        });
        self.update(json!({
            "_meta": {"usage": usage, "durationMs": 160},
            "content": {"text": "", "type": "text"},
            "sessionUpdate": "agent_message_chunk",
        }))
        .await;
    }

    async fn slow(&self, count: usize) -> Result<Value, Value> {
        for n in 0..count {
            tokio::select! {
                () = self.cancel.cancelled() => return stop("cancelled"),
                () = tokio::time::sleep(TICK) => self.chunk(&format!("tick{n} ")).await,
            }
        }
        stop("end_turn")
    }

    async fn withdraw(&self) -> Result<Value, Value> {
        let call = self.call().await;
        let (id, answer) = self.ask(&call, false).await;
        self.agent.notify("$/cancel_request", json!({"requestId": id})).await;
        let answer = answer.await.unwrap_or_default();
        self.chunk(&format!("withdrawn: {}", answer["result"]["outcome"]["outcome"])).await;
        stop("end_turn")
    }

    /// A file and a terminal through the client, and a tool call, all without asking.
    async fn deeds(&self) -> Result<Value, Value> {
        let id = "call_unasked";
        self.update(json!({
            "sessionUpdate": "tool_call", "toolCallId": id, "kind": "edit", "title": "Edit note.txt", "status": "pending",
        }))
        .await;
        let path = format!("{}/note.txt", self.cwd);
        let params = |fields: Value| {
            let mut params = json!({"sessionId": self.session});
            for (name, value) in fields.as_object().into_iter().flatten() {
                params[name] = value.clone();
            }
            params
        };
        let calls = [
            ("fs/write_text_file", json!({"path": path, "content": "noted\n"})),
            ("fs/read_text_file", json!({"path": path})),
            ("fs/read_text_file", json!({"path": "/etc/hostname"})),
        ];
        for (method, fields) in calls {
            let (_, answer) = self.agent.ask(method, params(fields)).await;
            let answer = answer.await.unwrap_or_default();
            let said = answer.get("result").unwrap_or(&answer["error"]["code"]).to_string();
            self.chunk(&format!("{method}: {said}")).await;
        }
        let command = json!({"command": "sh", "args": ["-c", "cat note.txt; exit 4"]});
        let (_, made) = self.agent.ask("terminal/create", params(command)).await;
        let terminal = json!({"terminalId": made.await.unwrap_or_default()["result"]["terminalId"]});
        for method in ["terminal/wait_for_exit", "terminal/output", "terminal/release", "terminal/output"] {
            let (_, answer) = self.agent.ask(method, params(terminal.clone())).await;
            let answer = answer.await.unwrap_or_default();
            let said = answer.get("result").unwrap_or(&answer["error"]["code"]).to_string();
            self.chunk(&format!("{method}: {said}")).await;
        }
        self.update(json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed"})).await;
        stop("end_turn")
    }

    /// `count` shell calls, asked about together or in turn.
    async fn approvals(&self, count: usize, at_once: bool, classifier: bool) -> Result<Value, Value> {
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(self.call().await);
        }
        self.usage().await;
        let mut questions = Vec::new();
        if at_once {
            for call in &calls {
                questions.push(self.ask(call, classifier).await.1);
            }
        }
        let mut ended = "end_turn";
        let mut all_allowed = true;
        for (n, call) in calls.iter().enumerate() {
            let question = match questions.is_empty() {
                true => self.ask(call, classifier).await.1,
                false => questions.remove(0),
            };
            let verdict = self.verdict(question).await;
            self.settle(call, &verdict).await;
            match verdict {
                Verdict::Allowed => {}
                Verdict::Refused => all_allowed = false,
                Verdict::TurnCancelled => {
                    all_allowed = false;
                    ended = "cancelled";
                }
            }
            // Like the peer, which ends the turn at a refusal; what was asked already is still waited for.
            if !all_allowed && !at_once {
                for rest in calls.iter().skip(n + 1) {
                    self.settle(rest, &Verdict::TurnCancelled).await;
                }
                break;
            }
        }
        if all_allowed {
            self.chunk("Done after the tool.").await;
            self.usage().await;
        }
        stop(ended)
    }

    /// Announces a shell call and returns its id.
    async fn call(&self) -> String {
        let id = format!("call_1795226556205_{}", self.agent.number());
        self.update(json!({
            "_meta": {"toolName": "run_shell_command", "provenance": "builtin", "phase": "preparing"},
            "content": [], "kind": "execute", "locations": [], "rawInput": {}, "status": "pending",
            "title": "Shell", "toolCallId": id, "sessionUpdate": "tool_call",
        }))
        .await;
        self.agent.chaos(Step::Turn, &self.session).await;
        id
    }

    async fn ask(&self, call: &str, classifier: bool) -> (u64, oneshot::Receiver<Value>) {
        let command = self.command(call);
        let notice = "Auto Mode couldn't classify this action (Classifier stage 1 unavailable). Review it manually. \
                      Switching to Default Mode is recommended if you want to continue without the classifier.";
        let content = match classifier {
            true => json!([{"content": {"text": notice, "type": "text"}, "type": "content"}]),
            false => json!([]),
        };
        let params = json!({
            "sessionId": self.session,
            "toolCall": {
                "_meta": {"toolName": "run_shell_command"},
                "content": content, "kind": "execute", "locations": [],
                "rawInput": {"command": command, "description": "mock approval", "is_background": false},
                "status": "pending", "title": format!("{command} (mock approval)"), "toolCallId": call,
            },
            "options": options(classifier),
        });
        let asked = self.agent.ask("session/request_permission", params).await;
        self.agent.chaos(Step::Permission, &self.session).await;
        asked
    }

    fn command(&self, call: &str) -> String {
        format!("touch {}/made_{}", self.cwd, call.trim_start_matches("call_"))
    }

    /// Like the peer, the agent heeds a cancelled turn without waiting for its questions.
    async fn verdict(&self, question: oneshot::Receiver<Value>) -> Verdict {
        let answer = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Verdict::TurnCancelled,
            answer = question => answer.unwrap_or_default(),
        };
        match answer["result"]["outcome"]["optionId"].as_str() {
            Some(option) if option.starts_with("proceed") => Verdict::Allowed,
            _ => Verdict::Refused,
        }
    }

    async fn settle(&self, call: &str, verdict: &Verdict) {
        let text = match verdict {
            Verdict::Refused => "Tool \"run_shell_command\" was canceled by the user.".to_owned(),
            Verdict::TurnCancelled => "Tool call was cancelled before execution.".to_owned(),
            Verdict::Allowed => format!(
                "Command: {}\nDirectory: (root)\nOutput: (empty)\nError: (none)\nExit Code: 0\nSignal: (none)\n\
                 Process Group PGID: 25731",
                self.command(call)
            ),
        };
        let allowed = matches!(verdict, Verdict::Allowed);
        let mut update = json!({
            "_meta": {"toolName": "run_shell_command", "provenance": "builtin"},
            "content": [{"content": {"text": text, "type": "text"}, "type": "content"}],
        });
        if allowed {
            update["rawOutput"] = json!({
                "type": "shell_result", "version": 1, "text": "", "output": "", "directory": self.cwd,
                "exitCode": 0, "signal": null, "pid": 25731, "error": null, "outcome": "completed",
                "notices": [], "truncated": false, "outputFiles": [],
            });
        }
        update["status"] = json!(if allowed { "completed" } else { "failed" });
        update["toolCallId"] = json!(call);
        update["sessionUpdate"] = json!("tool_call_update");
        self.update(update).await;
    }
}

fn options(classifier: bool) -> Value {
    if classifier {
        return json!([
            {"kind": "allow_once", "name": "Allow", "optionId": "proceed_once"},
            {
                "kind": "allow_once",
                "name": "Switch to Default Mode and allow once (recommended)",
                "optionId": "proceed_once_and_switch_to_default",
            },
            {"kind": "reject_once", "name": "Reject", "optionId": "cancel"},
        ]);
    }
    json!([
        {"kind": "allow_always", "name": "Always Allow in project: touch *", "optionId": "proceed_always_project"},
        {"kind": "allow_always", "name": "Always Allow for user: touch *", "optionId": "proceed_always_user"},
        {"kind": "allow_once", "name": "Allow", "optionId": "proceed_once"},
        {"kind": "reject_once", "name": "Reject", "optionId": "cancel"},
    ])
}
