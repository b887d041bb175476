//! `floor-headless PROMPT BODY_BYTES`: the least agent that answers one prompt.
//!
//! Sends the same streaming request to the same server (`GOOGLE_GEMINI_BASE_URL`), as long as the product's request is,
//! prints the text as it comes, and does what calls of `read_file` and `run_shell_command` ask for until there is none.
//! What is on stdin goes before the prompt. The history is kept as bytes that were serialised once; each request appends
//! to it.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

const PATH: &str = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse";

#[derive(Deserialize)]
struct Chunk {
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    content: Content,
}

#[derive(Deserialize)]
struct Content {
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
    #[serde(rename = "functionCall")]
    call: Option<Call>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    args: Args,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Args {
    Read { file_path: String },
    Shell { command: String },
}

impl Args {
    fn done(&self) -> anyhow::Result<String> {
        match self {
            Self::Read { file_path } => Ok(std::fs::read_to_string(file_path)?),
            Self::Shell { command } => {
                let output = Command::new("bash").args(["-c", command]).stdin(Stdio::null()).output()?;
                Ok(String::from_utf8(output.stdout)?)
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut prompt = String::new();
    std::io::stdin().read_to_string(&mut prompt)?;
    prompt.push_str(&args.next().context("no prompt")?);
    let body_bytes: usize = args.next().context("no length of the request")?.parse()?;
    let base = std::env::var("GOOGLE_GEMINI_BASE_URL")?;
    let host = base.strip_prefix("http://").context("only plain HTTP")?;

    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));

    let filler = "x".repeat(body_bytes.saturating_sub(150));
    let mut history = format!(
        "{{\"systemInstruction\":{{\"parts\":[{{\"text\":\"{filler}\"}}]}},\
         \"contents\":[{{\"role\":\"user\",\"parts\":[{{\"text\":{}}}]}}",
        json!(prompt)
    );
    while let Some(call) = ask(&mut sender, host, &history).await? {
        let output = call.args.done()?;
        let Call { name, args } = call;
        let made = json!({"role": "model", "parts": [{"functionCall": {"name": name, "args": args}}]});
        let answer = json!({"functionResponse": {"name": name, "response": {"output": output}}});
        history.push_str(&format!(",{made},{}", json!({"role": "user", "parts": [answer]})));
    }
    std::io::stdout().write_all(b"\n")?;
    Ok(())
}

/// One request: prints the text of the answer and returns the call in it, if there is one.
async fn ask(sender: &mut SendRequest<Full<Bytes>>, host: &str, history: &str) -> anyhow::Result<Option<Call>> {
    let request = Request::post(PATH)
        .header("host", host)
        .header("content-type", "application/json")
        .header("x-goog-api-key", "x")
        .body(Full::new(Bytes::from(format!("{history}]}}"))))?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        bail!("answered with {}", response.status());
    }
    let mut body = response.into_body();
    let mut pending = Vec::new();
    let mut call = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            let event: Vec<u8> = pending.drain(..end + 4).collect();
            let chunk: Chunk = serde_json::from_slice(event.strip_prefix(b"data: ").context("not an event")?)?;
            for part in chunk.candidates.into_iter().flat_map(|candidate| candidate.content.parts) {
                if let Some(text) = part.text {
                    let mut stdout = std::io::stdout().lock();
                    stdout.write_all(text.as_bytes())?;
                    stdout.flush()?;
                }
                call = part.call.or(call);
            }
        }
    }
    Ok(call)
}
