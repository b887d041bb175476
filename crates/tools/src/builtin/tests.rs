//! What all built-in tools have in common.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::testing::Folder;
use crate::ErrorType;

const NAMES: [&str; 9] = [
    "list_directory",
    "read_file",
    "grep_search",
    "glob",
    "replace",
    "write_file",
    "run_shell_command",
    "list_background_processes",
    "read_background_output",
];

#[test]
fn declarations_are_complete_and_in_order() {
    let folder = Folder::with(&[]);
    for name in NAMES {
        let tool = folder.tool(name);
        let declaration = tool.declaration("any");
        assert_eq!((declaration.name.as_str(), tool.name()), (name, name));
        assert_eq!(declaration.parameters["type"], "object", "{name}");
        for (parameter, schema) in declaration.parameters["properties"].as_object().unwrap() {
            assert!(schema["type"].is_string(), "{name}.{parameter} has no type");
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 10), "{name}.{parameter}");
        }
        let alone = matches!(name, "replace" | "write_file" | "run_shell_command");
        assert_eq!(tool.parallelizable(), !alone, "{name}");
    }
}

#[tokio::test]
async fn paths_outside_are_refused_by_every_tool() {
    let folder = Folder::with(&[]);
    std::fs::write(folder.path("../outside/secret"), "secret").unwrap();
    symlink("../outside", folder.path("link")).unwrap();
    for path in ["../outside/secret", "link/secret", "/etc/passwd", "link/new", "sub/../../outside/secret"] {
        for (name, args) in [
            ("read_file", json!({"file_path": path})),
            ("list_directory", json!({"dir_path": path})),
            ("grep_search", json!({"pattern": "x", "dir_path": path})),
            ("glob", json!({"pattern": "*", "dir_path": path})),
            ("write_file", json!({"file_path": path, "content": "x"})),
            ("replace", json!({"file_path": path, "instruction": "", "old_string": "secret", "new_string": "x"})),
            ("run_shell_command", json!({"command": "ls", "dir_path": path})),
        ] {
            let failure = folder.build(name, args).err().unwrap();
            assert_eq!(failure.error_type(), Some(ErrorType::PathNotInWorkspace), "{name} {path}");
        }
    }
    assert_eq!(std::fs::read(folder.path("../outside/secret")).unwrap(), b"secret");
}

#[tokio::test]
async fn a_link_made_between_building_and_running_is_noticed() {
    let folder = Folder::with(&[("sub/a.txt", "old")]);
    std::fs::write(folder.path("../outside/a.txt"), "secret").unwrap();
    let calls = [
        folder.build("read_file", json!({"file_path": "sub/a.txt"})).unwrap(),
        folder.build("write_file", json!({"file_path": "sub/a.txt", "content": "new"})).unwrap(),
        folder.build("grep_search", json!({"pattern": "secret", "dir_path": "sub"})).unwrap(),
        folder.build("glob", json!({"pattern": "*", "dir_path": "sub"})).unwrap(),
        folder.build("list_directory", json!({"dir_path": "sub"})).unwrap(),
        folder.build("run_shell_command", json!({"command": "cat a.txt", "dir_path": "sub"})).unwrap(),
    ];
    std::fs::rename(folder.path("sub"), folder.path("moved")).unwrap();
    symlink("../outside", folder.path("sub")).unwrap();
    for call in calls {
        let failure = call.execute(&super::testing::context()).await.unwrap_err();
        assert_eq!(failure.error_type(), Some(ErrorType::PathNotInWorkspace), "{}", call.description());
    }
    assert_eq!(std::fs::read(folder.path("../outside/a.txt")).unwrap(), b"secret");
}

#[tokio::test]
async fn searches_do_not_follow_links() {
    let folder = Folder::with(&[("a.txt", "needle")]);
    std::fs::write(folder.path("../outside/b.txt"), "needle").unwrap();
    symlink("../outside", folder.path("link")).unwrap();
    symlink("../outside/b.txt", folder.path("b.txt")).unwrap();
    let found = folder.text("grep_search", json!({"pattern": "needle"})).await;
    assert!(found.starts_with("Found 1 match for pattern \"needle\" in the workspace directory:"), "{found}");
    let found = folder.text("glob", json!({"pattern": "**/*"})).await;
    assert!(!found.contains("outside") && !found.contains("link/"), "{found}");
}

#[tokio::test]
async fn missing_parameters_are_named() {
    let folder = Folder::with(&[]);
    for (name, parameter) in [
        ("read_file", "file_path"),
        ("list_directory", "dir_path"),
        ("grep_search", "pattern"),
        ("glob", "pattern"),
        ("replace", "file_path"),
        ("write_file", "file_path"),
        ("run_shell_command", "command"),
        ("read_background_output", "pid"),
    ] {
        let failure = folder.build(name, json!({})).err().unwrap();
        assert_eq!(failure.error_type(), Some(ErrorType::InvalidToolParams));
        assert!(failure.message().contains(&format!("'{parameter}'")), "{name}: {failure}");
    }
}

#[tokio::test]
async fn folders_are_listed() {
    let files =
        [("b.txt", "12345"), ("a/x", ""), (".hidden", ""), ("skip.log", ""), (".gitignore", "*.log\n"), ("z/y", "")];
    let folder = Folder::with(&files);
    std::fs::create_dir_all(folder.path(".git")).unwrap();
    let listing = folder.text("list_directory", json!({"dir_path": "."})).await;
    let expected = format!(
        "Directory listing for {}:\n[DIR] a\n[DIR] z\n.gitignore (6 bytes)\n.hidden (0 bytes)\nb.txt (5 bytes)\n\n(2 ignored)",
        folder.path("").display().to_string().trim_end_matches('/')
    );
    assert_eq!(listing, expected);
    let all = json!({"dir_path": ".", "file_filtering_options": {"respect_git_ignore": false}, "ignore": ["[az]"]});
    let listing = folder.text("list_directory", all).await;
    assert!(listing.contains("skip.log") && !listing.contains("[DIR] a"), "{listing}");
    std::fs::create_dir(folder.path("empty")).unwrap();
    assert!(folder.text("list_directory", json!({"dir_path": "empty"})).await.ends_with("is empty."));
    for (path, kind) in [("b.txt", ErrorType::PathIsNotADirectory), ("nope", ErrorType::FileNotFound)] {
        assert_eq!(folder.fails("list_directory", json!({"dir_path": path})).await.0, kind);
    }
}

#[tokio::test]
async fn files_are_found_by_name() {
    let folder = Folder::with(&[
        ("src/a.rs", ""),
        ("src/deep/B.RS", ""),
        ("c.txt", ""),
        ("target/d.rs", ""),
        ("node_modules/e.rs", ""),
        ("own.rs", ""),
        (".gitignore", "target\n"),
        (".convokeignore", "own.rs\n"),
    ]);
    let name = |relative: &str| folder.path(relative).display().to_string();
    let found = folder.text("glob", json!({"pattern": "**/*.rs"})).await;
    let mut lines: Vec<_> = found.lines().skip(1).map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, [name("src/a.rs"), name("src/deep/B.RS")]);
    assert!(
        found.starts_with("Found 2 file(s) matching \"**/*.rs\"")
            && found.contains("(3 additional files were ignored)")
    );
    let strict = folder.text("glob", json!({"pattern": "src/**/*.rs", "case_sensitive": true})).await;
    assert!(strict.contains("a.rs") && !strict.contains("B.RS"), "{strict}");
    let found =
        folder.text("glob", json!({"pattern": "*.rs", "respect_git_ignore": false, "dir_path": "target"})).await;
    assert!(found.ends_with(&name("target/d.rs")), "{found}");
    assert!(folder.text("glob", json!({"pattern": "*.go"})).await.starts_with("No files found"));
    assert_eq!(folder.fails("glob", json!({"pattern": "[z-a"})).await.0, ErrorType::InvalidToolParams);
    assert_eq!(
        folder.fails("glob", json!({"pattern": "*", "dir_path": "c.txt"})).await.0,
        ErrorType::SearchPathNotADirectory
    );
    assert_eq!(
        folder.fails("glob", json!({"pattern": "*", "dir_path": "nope"})).await.0,
        ErrorType::SearchPathNotFound
    );
}

#[tokio::test]
async fn a_file_is_written() {
    use crate::{ConfirmationDetails, ResultDisplay};
    let folder = Folder::with(&[("old.txt", "one\r\ntwo\r\n")]);
    let output = folder.run("write_file", json!({"file_path": "new/deep/f.txt", "content": "a\nb\n"})).await.unwrap();
    let path = folder.path("new/deep/f.txt");
    let expected =
        format!("Successfully created and wrote to new file: {}. Here is the updated code:\na\nb\n", path.display());
    assert_eq!((output.text, folder.read("new/deep/f.txt")), (expected, "a\nb\n".to_owned()));
    assert!(matches!(output.display, ResultDisplay::Diff { old_text: None, .. }));
    assert_eq!(output.data.unwrap()["isNewFile"], true);

    let text = folder.text("write_file", json!({"file_path": "old.txt", "content": "one\n2\n"})).await;
    assert!(text.starts_with("Successfully overwrote file: "), "{text}");
    assert_eq!(folder.read("old.txt"), "one\r\n2\r\n", "line ends are kept");

    let args = json!({"file_path": "old.txt", "content": "3"});
    let ConfirmationDetails::Edit { path, old_text, new_text, diff } = folder.confirmation("write_file", args).await
    else {
        panic!("a write is confirmed as an edit")
    };
    assert_eq!(path, folder.path("old.txt").display().to_string());
    assert_eq!((old_text.as_deref(), &*new_text), (Some("one\r\n2\r\n"), "3"));
    assert!(diff.contains("-one\r\n") && diff.contains("+3"), "{diff}");
    assert_eq!(folder.read("old.txt"), "one\r\n2\r\n", "asking changes nothing");
}

#[tokio::test]
async fn encodings_are_kept() {
    let folder = Folder::with(&[]);
    folder.write("utf16", &[0xFF, 0xFE, b'a', 0]);
    folder.write("bom", b"\xEF\xBB\xBFa");
    folder.write("latin", b"caf\xe9\n");
    for name in ["utf16", "bom", "latin"] {
        folder.text("write_file", json!({"file_path": name, "content": "\u{fc}\n"})).await;
    }
    assert_eq!(std::fs::read(folder.path("utf16")).unwrap(), [0xFF, 0xFE, 0xFC, 0, b'\n', 0]);
    assert_eq!(std::fs::read(folder.path("bom")).unwrap(), b"\xEF\xBB\xBF\xC3\xBC\n");
    assert_eq!(std::fs::read(folder.path("latin")).unwrap(), b"\xFC\n");
    folder.text("write_file", json!({"file_path": "latin", "content": "日本"})).await;
    assert_eq!(folder.read("latin"), "日本", "what the encoding lacks makes the file UTF-8");
}

#[tokio::test]
async fn placeholders_and_impossible_places_are_refused() {
    let folder = Folder::with(&[("f", "x"), ("p", "// rest of code ...\n")]);
    std::fs::create_dir(folder.path("dir")).unwrap();
    let placeholder = "fn a() {}\n// rest of code ...\n";
    for (path, content, kind) in [
        ("new", placeholder, ErrorType::InvalidToolParams),
        ("f", placeholder, ErrorType::InvalidToolParams),
        ("dir", "x", ErrorType::TargetIsDirectory),
        ("f/below", "x", ErrorType::ReadContentFailure),
    ] {
        assert_eq!(folder.fails("write_file", json!({"file_path": path, "content": content})).await.0, kind, "{path}");
    }
    assert!(!folder.path("new").exists());
    folder.text("write_file", json!({"file_path": "p", "content": placeholder})).await;
    assert_eq!(folder.read("p"), placeholder, "it was there before");
}

#[tokio::test]
async fn a_file_that_changed_after_the_question_is_not_written() {
    let folder = Folder::with(&[("f", "old\n")]);
    for (name, args) in [
        ("write_file", json!({"file_path": "f", "content": "new\n"})),
        ("replace", json!({"file_path": "f", "instruction": "", "old_string": "old", "new_string": "new"})),
    ] {
        folder.write("f", b"old\n");
        let call = folder.build(name, args.clone()).unwrap();
        call.confirmation().await.unwrap();
        folder.write("f", b"old and theirs\n");
        let failure = call.execute(&super::testing::context()).await.unwrap_err();
        assert_eq!(failure.error_type(), Some(ErrorType::EditPreparationFailure), "{name}");
        assert_eq!(folder.read("f"), "old and theirs\n");
        folder.write("f", b"old\n");
        call.execute(&super::testing::context()).await.unwrap();
        assert_eq!(folder.read("f"), "new\n");
    }
}
