//! What changes in a file, and what must not.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::super::testing::Folder;
use crate::{ConfirmationDetails, ErrorType, ResultDisplay};

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"file_path": path, "instruction": "improve it", "old_string": old, "new_string": new})
}

#[tokio::test]
async fn text_is_replaced() {
    let folder = Folder::with(&[("f.txt", "one\ntwo\nthree\n")]);
    let output = folder.run("replace", edit("f.txt", "two", "2")).await.unwrap();
    let path = folder.path("f.txt").display().to_string();
    let expected =
        format!("Successfully modified file: {path} (1 replacement). Here is the updated code:\none\n2\nthree\n");
    assert_eq!((output.text, folder.read("f.txt")), (expected, "one\n2\nthree\n".to_owned()));
    let ResultDisplay::Diff { old_text, new_text, patch, .. } = output.display else { panic!("an edit shows a diff") };
    assert_eq!((old_text.as_deref(), &*new_text), (Some("one\ntwo\nthree\n"), "one\n2\nthree\n"));
    assert!(patch.contains("-two\n+2\n"), "{patch}");
    assert_eq!(output.summary.as_deref(), Some("+1 -1"));
}

#[tokio::test]
async fn every_error_has_its_type_and_changes_nothing() {
    let folder = Folder::with(&[("f", "aa\nb\naa\n")]);
    folder.write("binary", b"\0\0\0");
    std::fs::create_dir(folder.path("dir")).unwrap();
    for (args, kind, words) in [
        (edit("f", "nope", "x"), ErrorType::EditNoOccurrenceFound, "0 occurrences found"),
        (edit("f", "aa", "x"), ErrorType::EditExpectedOccurrenceMismatch, "expected 1 occurrence but found 2"),
        (edit("f", "b", "b"), ErrorType::EditNoChange, "identical"),
        (edit("f", "", "x"), ErrorType::AttemptToCreateExistingFile, "exists"),
        (edit("nope", "a", "b"), ErrorType::FileNotFound, "not found"),
        (edit("dir", "a", "b"), ErrorType::TargetIsDirectory, "directory"),
        (edit("binary", "a", "b"), ErrorType::ReadContentFailure, "binary"),
        (edit("f", "b", "// rest of the code ..."), ErrorType::InvalidToolParams, "new_string"),
    ] {
        let (actual, message) = folder.fails("replace", args.clone()).await;
        assert_eq!(actual, kind, "{args}");
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(folder.read("f"), "aa\nb\naa\n");
}

#[tokio::test]
async fn several_can_be_replaced() {
    let folder = Folder::with(&[("f", "aa\nb\naa\n")]);
    let mut args = edit("f", "aa", "c");
    args["allow_multiple"] = json!(true);
    assert!(folder.text("replace", args).await.contains("(2 replacements)"));
    assert_eq!(folder.read("f"), "c\nb\nc\n");
}

#[tokio::test]
async fn line_ends_and_encodings_are_kept() {
    let folder = Folder::with(&[("crlf", "a\r\nb\r\nc\r\n"), ("mixed", "a\r\nb\nc\n"), ("no-end", "a\nb")]);
    folder.write("bom", b"\xEF\xBB\xBFa\n");
    folder.write("latin", b"caf\xe9\nb\n");
    folder.text("replace", edit("crlf", "a\nb\n", "x\ny\nz\n")).await;
    assert_eq!(folder.read("crlf"), "x\r\ny\r\nz\r\nc\r\n");
    folder.text("replace", edit("mixed", "b\nc", "d\ne")).await;
    assert_eq!(folder.read("mixed"), "a\r\nd\ne\n");
    folder.text("replace", edit("no-end", "b", "c")).await;
    assert_eq!(folder.read("no-end"), "a\nc");
    folder.text("replace", edit("bom", "a", "b")).await;
    assert_eq!(folder.read("bom"), "\u{feff}b\n");
    folder.text("replace", edit("latin", "b", "ü")).await;
    assert_eq!(std::fs::read(folder.path("latin")).unwrap(), b"caf\xe9\n\xfc\n");
}

#[tokio::test]
async fn the_last_line_end_comes_back() {
    let folder = Folder::with(&[("f", "a\r\nb\r\n"), ("all", "a\n")]);
    folder.text("replace", edit("f", "b\r\n", "c")).await;
    assert_eq!(folder.read("f"), "a\r\nc\r\n");
    folder.text("replace", edit("all", "a\n", "")).await;
    assert_eq!(folder.read("all"), "", "an emptied file is empty");
}

#[tokio::test]
async fn a_new_file_is_created_and_shown_first() {
    let folder = Folder::with(&[]);
    let ConfirmationDetails::Edit { old_text, new_text, diff, .. } =
        folder.confirmation("replace", edit("a/new.txt", "", "hello\n")).await
    else {
        panic!("a replacement is confirmed as an edit")
    };
    assert_eq!((old_text, &*new_text), (None, "hello\n"));
    assert!(diff.contains("+hello"), "{diff}");
    assert!(!folder.path("a").exists());
    assert!(folder.text("replace", edit("a/new.txt", "", "hello\n")).await.starts_with("Created new file: "));
    assert_eq!(folder.read("a/new.txt"), "hello\n");
}

#[tokio::test]
async fn an_edit_that_cannot_work_is_not_asked_about() {
    let folder = Folder::with(&[("f", "a")]);
    let failure = folder.build("replace", edit("f", "b", "c")).unwrap().confirmation().await.unwrap_err();
    assert_eq!(failure.error_type(), Some(ErrorType::EditNoOccurrenceFound));
}
