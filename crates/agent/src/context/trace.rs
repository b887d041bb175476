//! A trace of what the model gets to see, for those who look into long sessions.
//!
//! Where the front end names a folder, each request's contents are written there before the model is called, and when
//! the session had to be made shorter for it: a line each in `trace.log`, what is long in a file of `assets/`. The form
//! is that of Gemini CLI's context tracer, whose readers find their way. Each content has an id that is a digest of it,
//! so that a resumed session can be compared with what it was. A trace that can't be written keeps no session from
//! going on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use convoke_adk::{Content, FlowError, InvocationContext, LlmRequest, Part, RequestProcessor};
use convoke_stdx::{Clock, cut, iso8601};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

/// Most bytes of details in a line; more goes to a file of its own. Source: Gemini CLI's context tracer.
const INLINE_MAX: usize = 1_000;

/// Bytes of a shortened conversation's beginning, where its summary is, that are told in the log itself.
const HEAD_MAX: usize = 800;

/// Where a session's trace is written.
#[derive(Debug)]
pub(crate) struct ContextTrace {
    folder: PathBuf,
    clock: Clock,
    /// The session was made shorter for the request that comes next.
    shortened: AtomicBool,
}

impl ContextTrace {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, clock: Clock::start(), shortened: AtomicBool::new(false) }
    }

    /// The session was made shorter: from how many tokens, and to how many.
    pub(crate) async fn pressure(&self, before: u64, after: u64) {
        let action = format!("View exceeds maxTokens ({before} tokens). Hitting Synchronous Pressure Barrier.");
        self.shortened.store(true, Ordering::Relaxed);
        self.told(self.event(&action, "tokens", json!(after)).await);
    }

    async fn rendered(&self, contents: &[Arc<Content>]) {
        if self.shortened.swap(false, Ordering::Relaxed) {
            let texts = contents.iter().flat_map(|content| &content.parts).filter_map(Part::as_text);
            let texts: String = texts.collect::<Vec<_>>().join("\n");
            self.told(self.event("Context was shortened", "beginsWith", json!(cut::head(&texts, HEAD_MAX))).await);
        }
        let turns: Vec<Value> = contents.iter().map(|content| turn(content)).collect();
        self.told(self.event("Render Context for LLM", "renderedContext", Value::from(turns)).await);
    }

    fn told(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            tracing::debug!(folder = %self.folder.display(), %error, "a trace of the context can't be written");
        }
    }

    async fn event(&self, action: &str, name: &str, detail: Value) -> std::io::Result<()> {
        let assets = self.folder.join("assets");
        // What is in a conversation is its owner's only.
        tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(&assets).await?;
        let text = detail.to_string();
        let detail = if text.len() > INLINE_MAX {
            let asset = format!("{}-{name}.json", digest(&text));
            tokio::fs::write(assets.join(&asset), &text).await?;
            json!({"$asset": asset})
        } else {
            detail
        };
        let at = iso8601(self.clock.now().wall_ms);
        let line = format!("[{at}] [Render] {action} | Details: {}\n", json!({name: detail}));
        let mut log = tokio::fs::OpenOptions::new();
        let mut log = log.create(true).append(true).open(self.folder.join("trace.log")).await?;
        log.write_all(line.as_bytes()).await?;
        log.flush().await
    }
}

fn turn(content: &Content) -> Value {
    let content = serde_json::to_value(content).unwrap_or_default();
    json!({"id": digest(&content.to_string()), "content": content})
}

/// 32 hexadecimal digits.
fn digest(text: &str) -> String {
    let bytes = Sha256::digest(text.as_bytes());
    bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The trace as the last stage: it sees what is sent.
pub(crate) struct TraceProcessor(Arc<ContextTrace>);

impl TraceProcessor {
    pub(crate) fn new(trace: Arc<ContextTrace>) -> Self {
        Self(trace)
    }
}

#[async_trait]
impl RequestProcessor for TraceProcessor {
    fn name(&self) -> &'static str {
        "context trace"
    }

    async fn run(&self, _: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        self.0.rendered(&request.contents).await;
        Ok(())
    }
}
