//! Whatever an agent or a client writes: the same lines in any pieces, and each a message or an error.

use std::path::Path;

use agent_client_protocol::RawJsonRpcMessage;
use futures::FutureExt;
use futures::stream;
use tokio_util::io::StreamReader;

use super::*;

const LIMIT: usize = 512;

fn target(bytes: &[u8]) {
    let whole = split(bytes, bytes.len().max(1));
    let size = usize::from(bytes.first().copied().unwrap_or(1) % 7) + 1;
    assert_eq!(split(bytes, size), whole, "cut into pieces of {size}");
    for line in whole {
        let Line::Bytes(line) = line else { continue };
        assert!(line.len() <= LIMIT);
        // A message that is taken can be told on without loss of what it is about.
        if let Ok(message) = serde_json::from_slice::<RawJsonRpcMessage>(&line) {
            let again = serde_json::to_vec(&message).expect("a message that was read can be written");
            let again: RawJsonRpcMessage = serde_json::from_slice(&again).expect("what was written can be read");
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
        }
    }
}

fn split(bytes: &[u8], size: usize) -> Vec<Line> {
    let pieces = bytes.chunks(size).map(Ok::<&[u8], io::Error>);
    let mut lines = Lines::new(StreamReader::new(stream::iter(pieces)), LIMIT);
    let mut all = Vec::new();
    loop {
        // Nothing here ever waits.
        let line = lines.next().now_or_never().expect("an answer at once").expect("memory can be read");
        let last = matches!(line, Line::End | Line::TooLong);
        all.push(line);
        if last {
            return all;
        }
    }
}

#[test]
fn json_rpc_lines() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/json-rpc");
    let words = [
        "\n",
        "\"id\":",
        "null",
        "{}",
        "[",
        "]",
        "\"method\":",
        "\"result\":",
        "\\u0000",
        "1e999",
        "\"jsonrpc\":\"2.0\"",
    ];
    convoke_testkit::fuzz(&corpus, &words, target);
}
