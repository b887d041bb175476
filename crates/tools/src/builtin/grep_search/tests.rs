//! What is found, what is not, and what stops a search.

use std::time::Instant;

use pretty_assertions::assert_eq;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::testing::Folder;
use super::search::{Stopped, run};
use super::{Params, query};
use crate::{ErrorType, ExecutionContext};

fn sources() -> Folder {
    Folder::with(&[
        ("src/a.rs", "fn one() {}\nlet Needle = 1;\nfn two() {}\n"),
        ("src/b.txt", "a needle here\n"),
        ("target/c.rs", "needle\n"),
        (".gitignore", "target\n"),
        (".geminiignore", "private\n"),
        ("private/d.rs", "needle\n"),
    ])
}

#[tokio::test]
async fn few_matches_come_with_their_surroundings() {
    let folder = sources();
    let text = folder.text("grep_search", json!({"pattern": "needle"})).await;
    let expected = "Found 2 matches for pattern \"needle\" in the workspace directory:\n---\nFile: src/a.rs\n\
                    L1- fn one() {}\nL2: let Needle = 1;\nL3- fn two() {}\n---\nFile: src/b.txt\nL1: a needle here\n---";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn options_narrow_a_search() {
    let folder = sources();
    for (args, expected) in [
        (
            json!({"pattern": "needle", "include_pattern": "*.rs", "context": 0}),
            "Found 1 match for pattern \"needle\" in the workspace directory (filter: \"*.rs\"):\n---\n\
             File: src/a.rs\nL2: let Needle = 1;\n---",
        ),
        (
            json!({"pattern": "needle", "case_sensitive": true, "dir_path": "src", "context": 0}),
            "Found 1 match for pattern \"needle\" in path \"src\":\n---\nFile: src/b.txt\nL1: a needle here\n---",
        ),
        (
            json!({"pattern": "needle", "dir_path": "src/a.rs", "after": 1}),
            "Found 1 match for pattern \"needle\" in path \"src/a.rs\":\n---\nFile: src/a.rs\n\
             L2: let Needle = 1;\nL3- fn two() {}\n---",
        ),
        (
            json!({"pattern": "needle", "names_only": true, "no_ignore": true}),
            "Found 3 file(s) with matches for pattern \"needle\" in the workspace directory:\n\
             src/a.rs\nsrc/b.txt\ntarget/c.rs",
        ),
        (
            json!({"pattern": "needle", "exclude_pattern": "HERE", "context": 0}),
            "Found 1 match for pattern \"needle\" in the workspace directory:\n---\nFile: src/a.rs\n\
             L2: let Needle = 1;\n---",
        ),
        (
            json!({"pattern": "one()", "fixed_strings": true, "context": 0}),
            "Found 1 match for pattern \"one()\" in the workspace directory:\n---\nFile: src/a.rs\nL1: fn one() {}\n---",
        ),
        (
            json!({"pattern": "fn", "max_matches_per_file": 1, "context": 0}),
            "Found 1 match for pattern \"fn\" in the workspace directory:\n---\nFile: src/a.rs\nL1: fn one() {}\n---",
        ),
        (
            json!({"pattern": "fn", "total_max_matches": 1}),
            "Found 1 match for pattern \"fn\" in the workspace directory (results limited to 1 matches):\n---\n\
             File: src/a.rs\nL1: fn one() {}\n---",
        ),
        (json!({"pattern": "absent"}), "No matches found for pattern \"absent\" in the workspace directory."),
    ] {
        assert_eq!(folder.text("grep_search", args.clone()).await, expected, "{args}");
    }
}

#[tokio::test]
async fn matches_have_a_limit() {
    let many: String = (0..500).map(|line| format!("needle {line}\n")).collect();
    let folder = Folder::with(&[("a", &many), ("b", &many)]);
    let text = folder.text("grep_search", json!({"pattern": "needle"})).await;
    assert!(text.starts_with("Found 100 matches") && text.contains("(results limited to 100 matches)"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with('L')).count(), 100);
    let text = folder.text("grep_search", json!({"pattern": "needle", "total_max_matches": 1000})).await;
    assert!(text.starts_with("Found 1000 matches") && !text.contains("limited"));
}

#[tokio::test]
async fn odd_files_do_no_harm() {
    let folder = Folder::with(&[("wide", &format!("{}needle\n", "x".repeat(5000)))]);
    folder.write("binary", b"needle\0needle\n");
    folder.write("latin", b"caf\xe9 needle\n");
    folder.write("crlf", b"needle\r\n");
    folder.write("utf16", b"\xff\xfen\0e\0e\0d\0l\0e\0\n\0");
    let pipe = folder.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let text = folder.text("grep_search", json!({"pattern": "needle", "context": 0})).await;
    let expected = format!(
        "Found 4 matches for pattern \"needle\" in the workspace directory:\n---\nFile: crlf\nL1: needle\n---\n\
         File: latin\nL1: caf\u{fffd} needle\n---\nFile: utf16\nL1: needle\n---\nFile: wide\nL1: {}... [truncated]\n---",
        "x".repeat(2000)
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn what_cannot_be_searched_is_an_error() {
    let folder = sources();
    for (args, kind, word) in [
        (json!({"pattern": "("}), ErrorType::InvalidToolParams, "pattern"),
        (json!({"pattern": ""}), ErrorType::InvalidToolParams, "pattern"),
        (json!({"pattern": "a", "exclude_pattern": "["}), ErrorType::InvalidToolParams, "exclude_pattern"),
        (json!({"pattern": "a", "include_pattern": "[z-a"}), ErrorType::InvalidToolParams, "include_pattern"),
        (json!({"pattern": "a", "context": -1}), ErrorType::InvalidToolParams, "context"),
        (json!({"pattern": "a", "dir_path": "nope"}), ErrorType::SearchPathNotFound, "nope"),
    ] {
        let (actual, message) = folder.fails("grep_search", args).await;
        assert_eq!(actual, kind);
        assert!(message.contains(word), "{message}");
    }
}

#[tokio::test]
async fn a_search_stops_when_it_has_to() {
    let folder = sources();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let call = folder.build("grep_search", json!({"pattern": "needle"})).unwrap();
    let failure = call.execute(&ExecutionContext::new("c", cancel.clone(), |_| ())).await.unwrap_err();
    assert_eq!(failure.error_type(), None, "{failure}");

    let params: Params = serde_json::from_value(json!({"pattern": "needle"})).unwrap();
    let query = query(&params, crate::FileFiltering::default()).unwrap();
    let found = run(&[folder.path("")], &query, Instant::now(), &CancellationToken::new());
    assert_eq!((found.stopped, found.matches), (Some(Stopped::Time), 0));
    let found = run(&[folder.path("")], &query, Instant::now(), &cancel);
    assert_eq!(found.stopped, Some(Stopped::Cancelled));
}
