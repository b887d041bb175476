//! Servers that are new, old, slow or silent, over a pipe and on a clock that only moves when everybody waits.

use std::time::Duration;

use rmcp::service::RoleClient;
use rmcp::transport::IntoTransport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::*;

/// What a server does about one question.
#[derive(Clone, Copy, PartialEq)]
enum To {
    Answer,
    Refuse,
    /// Refuses without saying what.
    RefuseNamelessly,
    Nothing,
}

/// Begins to read after `delay`, and then answers line by line; what it was asked is the result.
async fn server(pipe: DuplexStream, delay: Duration, discover: To, initialize: To) -> Vec<String> {
    tokio::time::sleep(delay).await;
    let (read, mut write) = tokio::io::split(pipe);
    let mut lines = BufReader::new(read).lines();
    let mut asked = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let method = message["method"].as_str().unwrap().to_owned();
        let (to, result) = match method.as_str() {
            "server/discover" => (
                discover,
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}),
            ),
            "initialize" => (
                initialize,
                json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "o", "version": "1"}}),
            ),
            _ => (To::Nothing, Value::Null),
        };
        asked.push(method);
        let error = json!({"code": -32601, "message": "Method not found"});
        let answer = match to {
            To::Answer => json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
            To::Refuse => json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
            To::RefuseNamelessly => json!({"jsonrpc": "2.0", "error": error}),
            To::Nothing => continue,
        };
        write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
    asked
}

fn handler() -> Handler {
    let (changed, _) = tokio::sync::mpsc::channel(1);
    Handler {
        server: "s".to_owned(),
        client: ("c".to_owned(), "1".to_owned()),
        roots: Vec::new().into(),
        progress: Arc::default(),
        changed,
    }
}

/// The protocol that was come to, or why none; and what the server was asked.
async fn met(delay: u64, discover: To, initialize: To, old: bool) -> (Result<String, String>, Vec<String>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let server = tokio::spawn(server(theirs, Duration::from_secs(delay), discover, initialize));
    let transport = IntoTransport::<RoleClient, _, _>::into_transport(ours);
    let shaken = tokio::time::timeout(Duration::from_mins(2), shake(handler, transport, old)).await;
    let met = match shaken {
        Ok(Ok(running)) => {
            let version = running.peer().peer_info().unwrap().protocol_version.to_string();
            // What comes late must not harm the connection.
            assert!(!running.is_closed());
            drop(running.cancel().await);
            Ok(version)
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("late".to_owned()),
    };
    (met, server.await.unwrap())
}

const NEW: &str = "2026-07-28";
const OLD: &str = "2025-06-18";

#[tokio::test(start_paused = true)]
async fn quick_servers_are_asked_what_they_know() {
    let (version, asked) = met(0, To::Answer, To::Nothing, false).await;
    assert_eq!((version.as_deref(), asked), (Ok(NEW), vec!["server/discover".to_owned()]));
    for refusal in [To::Refuse, To::RefuseNamelessly] {
        let (version, asked) = met(0, refusal, To::Answer, false).await;
        assert_eq!(version.as_deref(), Ok(OLD));
        assert_eq!(asked, ["server/discover", "initialize", "notifications/initialized"]);
    }
    let (version, asked) = met(0, To::Refuse, To::Answer, true).await;
    assert_eq!(version.as_deref(), Ok(OLD));
    assert_eq!(asked, ["initialize", "notifications/initialized"]);
}

#[tokio::test(start_paused = true)]
async fn slow_servers_are_waited_for_and_whichever_answer_they_give_is_used() {
    for delay in [9, 11, 60] {
        for refusal in [To::Refuse, To::RefuseNamelessly, To::Nothing] {
            let (version, _) = met(delay, refusal, To::Answer, false).await;
            assert_eq!(version.as_deref(), Ok(OLD), "after {delay} s");
        }
        // A new one answers the first question, and refuses or answers the second or says nothing to it.
        for second in [To::Refuse, To::Answer, To::Nothing] {
            let (version, asked) = met(delay, To::Answer, second, false).await;
            assert_eq!(version.as_deref(), Ok(NEW), "after {delay} s");
            assert_eq!(asked.iter().filter(|method| *method == "server/discover").count(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_everything_or_says_nothing_is_not_met() {
    let (refused, _) = met(0, To::Refuse, To::Refuse, false).await;
    assert!(refused.unwrap_err().contains("Method not found"));
    let (refused, _) = met(20, To::Refuse, To::Refuse, false).await;
    assert!(refused.unwrap_err().contains("Method not found"));
    assert_eq!(met(0, To::Nothing, To::Nothing, false).await.0, Err("late".to_owned()));
}
