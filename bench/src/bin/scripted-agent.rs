//! An ACP agent that does what its prompt says: the other end of the daemon's benches.
//!
//! Speaks newline-delimited JSON-RPC on standard input and output. A turn is one [`Script`]; chunks carry the time at
//! which they were written.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use convoke_bench::clock::monotonic_nanos;
use convoke_bench::script::{Script, stamp};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

struct Agent {
    lines: Lines<BufReader<Stdin>>,
    sessions: u32,
    asked: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut agent = Agent { lines: BufReader::new(tokio::io::stdin()).lines(), sessions: 0, asked: 0 };
    while let Some(message) = agent.read().await? {
        agent.answer(&message).await?;
    }
    Ok(())
}

impl Agent {
    async fn read(&mut self) -> anyhow::Result<Option<Value>> {
        let Some(line) = self.lines.next_line().await? else { return Ok(None) };
        Ok(Some(serde_json::from_str(&line).context("read a message")?))
    }

    async fn answer(&mut self, message: &Value) -> anyhow::Result<()> {
        // Notifications, and answers that came too late, need no answer.
        let (Some(id), Some(method)) = (message.get("id"), message.get("method").and_then(Value::as_str)) else {
            return Ok(());
        };
        let result = match method {
            "initialize" => json!({"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}),
            "session/new" => {
                self.sessions += 1;
                json!({"sessionId": format!("5c121b7e-0000-4000-8000-{:012x}", self.sessions)})
            }
            "session/prompt" => {
                let text = message.pointer("/params/prompt/0/text").and_then(Value::as_str).unwrap_or_default();
                let session = message.pointer("/params/sessionId").cloned().unwrap_or_default();
                match text.parse().map_err(anyhow::Error::msg)? {
                    Script::Chunks { count, per_second, bytes } => chunks(&session, count, per_second, bytes).await?,
                    Script::Ask { count, gap_ms } => self.ask(&session, count, gap_ms).await?,
                }
                json!({"stopReason": "end_turn"})
            }
            _ => {
                let error = json!({"code": -32601, "message": "method not found"});
                return write(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        write(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    async fn ask(&mut self, session: &Value, count: u32, gap_ms: u64) -> anyhow::Result<()> {
        for _ in 0..count {
            self.asked += 1;
            let id = format!("ask-{}", self.asked);
            let call = json!({"toolCallId": id, "title": "rm -r build", "kind": "execute", "status": "pending",
                "content": [], "locations": [], "rawInput": {"command": "rm -r build"}});
            let options = json!([
                {"optionId": "proceed_once", "name": "Yes", "kind": "allow_once"},
                {"optionId": "cancel", "name": "No", "kind": "reject_once"}]);
            let params = json!({"sessionId": session, "toolCall": call, "options": options});
            write(&json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}))?;
            // One turn at a time: what else comes in meanwhile is a cancel, and this turn ends soon anyway.
            while let Some(message) = self.read().await? {
                if message.get("id").and_then(Value::as_str) == Some(&id) {
                    break;
                }
            }
            sleep(Duration::from_millis(gap_ms)).await;
        }
        Ok(())
    }
}

async fn chunks(session: &Value, count: u32, per_second: u32, bytes: usize) -> anyhow::Result<()> {
    let mut pace = (per_second > 0).then(|| interval(Duration::from_secs(1) / per_second));
    if let Some(pace) = &mut pace {
        // A late chunk is not made up for: bursts would measure something else.
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pace.reset_at(Instant::now());
    }
    for _ in 0..count {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        let content = json!({"type": "text", "text": stamp(monotonic_nanos(), bytes)});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        let params = json!({"sessionId": session, "update": update});
        write(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))?;
    }
    Ok(())
}

/// One message, one write.
fn write(message: &Value) -> anyhow::Result<()> {
    let mut line = message.to_string();
    line.push('\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    Ok(stdout.flush()?)
}
