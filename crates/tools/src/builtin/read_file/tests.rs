//! Parts of files, and files that are no text.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::super::testing::Folder;
use crate::ErrorType;

fn lines(count: usize) -> String {
    (1..=count).map(|line| format!("line {line}\n")).collect()
}

#[tokio::test]
async fn a_whole_file_or_a_part() {
    let folder = Folder::with(&[("f.txt", "one\ntwo\nthree"), ("empty", "")]);
    for (args, expected) in [
        (json!({"file_path": "f.txt"}), "one\ntwo\nthree"),
        (json!({"file_path": "f.txt", "start_line": 2}), "two\nthree"),
        (json!({"file_path": "f.txt", "start_line": 2, "end_line": 2}), "two\n"),
        (json!({"file_path": "f.txt", "end_line": 2.0}), "one\ntwo\n"),
        (json!({"file_path": "f.txt", "end_line": 99}), "one\ntwo\nthree"),
        (json!({"file_path": "f.txt", "start_line": 4}), "The file has 3 lines; there is nothing at line 4 and after."),
        (json!({"file_path": "empty"}), ""),
    ] {
        assert_eq!(folder.text("read_file", args.clone()).await, expected, "{args}");
    }
    for args in [
        json!({"file_path": "f.txt", "start_line": 3, "end_line": 2}),
        json!({"file_path": "f.txt", "start_line": 0}),
        json!({"file_path": 7}),
    ] {
        assert_eq!(folder.fails("read_file", args).await.0, ErrorType::InvalidToolParams);
    }
}

#[tokio::test]
async fn a_long_file_says_how_to_read_on() {
    let folder = Folder::with(&[("long", &lines(2500)), ("exact", &lines(2000)), ("wide", &"x".repeat(2500))]);
    let text = folder.text("read_file", json!({"file_path": "long"})).await;
    let header = "IMPORTANT: The file content has been truncated.\nStatus: Showing lines 1-2000 of 2500 total lines.\n\
                  Action: To read on, call read_file again with start_line: 2001.\n\n\
                  --- FILE CONTENT (truncated) ---\nline 1\n";
    assert!(text.starts_with(header) && text.ends_with("line 2000\n"), "{}", &text[..300]);
    let text = folder.text("read_file", json!({"file_path": "long", "start_line": 2001})).await;
    assert!(text.starts_with("line 2001\n") && text.ends_with("line 2500\n"));
    assert_eq!(folder.text("read_file", json!({"file_path": "exact"})).await, lines(2000));
    let text = folder.text("read_file", json!({"file_path": "wide"})).await;
    assert!(text.contains("1 of them were cut at 2000 characters."), "{}", &text[..200]);
    assert!(text.ends_with("x... [truncated]\n") && text.len() < 2300);
    folder.write("just", format!("{}\r\n", "é".repeat(2000)).as_bytes());
    assert_eq!(folder.text("read_file", json!({"file_path": "just"})).await, format!("{}\r\n", "é".repeat(2000)));
}

#[tokio::test]
async fn files_that_are_no_text() {
    let folder = Folder::with(&[("pic.svg", "<svg/>"), ("big.svg", &"x".repeat((1 << 20) + 1))]);
    folder.write("a.dat", b"\x89PNG\r\n\x1a\n\0\0\0\0");
    folder.write("b.txt", b"\x7fELF\0\0\0\0\0\0\0\0");
    folder.write("latin", b"caf\xe9");
    folder.write("utf16", b"\xff\xfeh\0i\0");
    let image = folder.run("read_file", json!({"file_path": "a.dat"})).await.unwrap();
    assert_eq!(image.text, "Read a.dat (image/png, 12 bytes). Its content is attached.");
    assert_eq!(image.parts[0].raw()["inlineData"], json!({"mimeType": "image/png", "data": "iVBORw0KGgoAAAAA"}));
    for (name, expected) in [
        ("b.txt", "Cannot display content of binary file: b.txt"),
        ("latin", "café"),
        ("utf16", "hi"),
        ("pic.svg", "<svg/>"),
    ] {
        assert_eq!(folder.text("read_file", json!({"file_path": name})).await, expected);
    }
    assert_eq!(folder.fails("read_file", json!({"file_path": "big.svg"})).await.0, ErrorType::FileTooLarge);
}

#[tokio::test]
async fn files_that_cannot_be_read() {
    let folder = Folder::with(&[]);
    std::fs::create_dir(folder.path("dir")).unwrap();
    let huge = std::fs::File::create(folder.path("huge")).unwrap();
    huge.set_len(super::super::files::FILE_BYTES_MAX + 1).unwrap();
    let pipe = folder.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for (name, kind) in [
        ("nope", ErrorType::FileNotFound),
        ("dir", ErrorType::TargetIsDirectory),
        ("huge", ErrorType::FileTooLarge),
        ("pipe", ErrorType::ReadContentFailure),
    ] {
        let (actual, message) = folder.fails("read_file", json!({"file_path": name})).await;
        assert_eq!(actual, kind, "{message}");
        assert!(message.contains(name), "{message}");
    }
}

#[tokio::test]
async fn what_ignore_files_leave_out_is_not_shown() {
    let folder =
        Folder::with(&[(".geminiignore", "secret\n"), (".gitignore", "*.log\n"), ("secret", "s"), ("a.log", "l")]);
    std::os::unix::fs::symlink("secret", folder.path("link")).unwrap();
    for name in ["secret", "a.log", "link"] {
        let (kind, message) = folder.fails("read_file", json!({"file_path": name})).await;
        assert_eq!(kind, ErrorType::InvalidToolParams);
        assert!(message.contains("is ignored by configured ignore patterns"), "{message}");
    }
    let (kind, _) = folder.fails("grep_search", json!({"pattern": "s", "dir_path": "secret"})).await;
    assert_eq!(kind, ErrorType::InvalidToolParams);
    folder.write(".convokeignore", b"!secret\n");
    assert_eq!(folder.text("read_file", json!({"file_path": "link"})).await, "s");
}

#[test]
fn a_call_describes_itself() {
    let folder = Folder::with(&[]);
    let call = folder.build("read_file", json!({"file_path": "./a/../b.rs", "start_line": 3, "end_line": 5})).unwrap();
    assert_eq!(call.description(), "b.rs lines 3-5");
    assert_eq!(call.locations()[0].path, folder.path("b.rs").display().to_string());
    assert_eq!(call.locations()[0].line, Some(3));
}
