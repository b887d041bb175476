//! Whatever a client sends as a body, and as its content type.

use std::path::Path;

use super::*;

/// The first line is the content type, the rest the body.
fn target(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (head, body) = bytes.split_at(end);
    let mut headers = HeaderMap::new();
    if let Ok(value) = http::HeaderValue::from_bytes(head) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    let known = is_json(&headers);
    let parsed = parse(body);
    if let Ok(fields) = &parsed {
        let text = serde_json::to_vec(fields).expect("fields can be written");
        assert_eq!(parse(&text).as_ref(), Ok(fields), "what was read reads the same again");
    } else {
        assert!(!body.trim_ascii().is_empty(), "an empty body is an empty object");
    }
    assert!(!known || head.to_ascii_lowercase().windows(16).any(|part| part == b"application/json"));
}

#[test]
fn bodies() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/body");
    let words = [
        "application/json",
        ";charset=utf-8",
        "\n",
        "{",
        "}",
        "[]",
        "null",
        "\"prompt\":",
        "\\ud800",
        "1e400",
        "\u{feff}",
    ];
    convoke_testkit::fuzz(&corpus, &words, target);
}
