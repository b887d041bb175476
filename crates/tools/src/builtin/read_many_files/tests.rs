//! Names, folders, patterns; what is left out, and why.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use pretty_assertions::assert_eq;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::testing::Folder;
use super::*;
use crate::WorkspaceOptions;

async fn read(folder: &Folder, args: Value) -> ReadMany {
    let workspace = Workspace::new(WorkspaceOptions { cwd: folder.path(""), ..WorkspaceOptions::default() }).unwrap();
    let request = ReadManyRequest::from_args(&args).unwrap();
    read_many(&Arc::new(workspace), request, &CancellationToken::new()).await.unwrap()
}

async fn names(folder: &Folder, include: &[&str]) -> Vec<String> {
    read(folder, json!({"include": include})).await.files.into_iter().map(|file| file.name).collect()
}

async fn skipped(folder: &Folder, include: &[&str]) -> Vec<(String, String)> {
    let read = read(folder, json!({"include": include})).await;
    read.skipped.into_iter().map(|file| (file.name, file.reason)).collect()
}

#[tokio::test]
async fn names_folders_and_patterns() {
    let folder = Folder::with(&[
        ("a.rs", "A"),
        ("src/b.rs", "B"),
        ("src/deep/c.RS", "C"),
        ("src/deep/d.md", "D"),
        ("[odd].rs", "odd"),
        ("src/node_modules/x.rs", ""),
        ("src/build/y.rs", ""),
        (".env", "KEY=1"),
    ]);
    for (include, expected) in [
        (&["a.rs"][..], &["a.rs"][..]),
        (&["src"], &["src/b.rs", "src/deep/c.RS", "src/deep/d.md"]),
        (&["**/*.rs"], &["[odd].rs", "a.rs", "src/b.rs", "src/deep/c.RS"]),
        (&["./*.rs"], &["[odd].rs", "a.rs"]),
        (&["[odd].rs"], &["[odd].rs"]),
        (&["src/*"], &["src/b.rs"]),
        (&["a.rs", "*.rs", "src/../a.rs"], &["[odd].rs", "a.rs"]),
        // By its own name, what a pattern does not mean is meant.
        (&["*"], &["[odd].rs", "a.rs"]),
        (&[".env"], &[".env"]),
        (&["src/build/y.rs"], &["src/build/y.rs"]),
    ] {
        assert_eq!(names(&folder, include).await, expected, "{include:?}");
    }
    let shallow = read(&folder, json!({"include": ["src"], "recursive": false, "exclude": ["src/deep/**"]})).await;
    assert_eq!(shallow.files.len(), 1);
    let some = read(&folder, json!({"include": ["src"], "exclude": ["**/*.md", "src/b.rs"]})).await;
    assert_eq!(some.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["src/deep/c.RS"]);
    let all = read(&folder, json!({"include": ["src"], "useDefaultExcludes": false})).await;
    assert_eq!(all.files.len(), 4, "build, but not node_modules: .gitignore counts");
    assert_eq!(shallow.summary(), "Read 1 file(s).");
    let text: Vec<_> = shallow.into_parts().iter().map(|part| part.as_text().unwrap().to_owned()).collect();
    let header = format!("--- {} ---\n\n", folder.path("src/b.rs").display());
    assert_eq!(text, [header.as_str(), "B", "\n\n", "--- End of content ---"]);
}

#[tokio::test]
async fn what_is_left_out_is_named() {
    let folder =
        Folder::with(&[(".geminiignore", "secret*\n"), ("secret.txt", "s"), ("d/secret.md", "s"), ("e/ok", "")]);
    folder.write("pic.png", b"\x89PNG\r\n\x1a\n\0\0\0\0");
    folder.write("raw.dat", b"\x7fELF\0\0\0\0\0\0\0\0");
    std::fs::write(folder.dir.path().join("outside/o"), "out").unwrap();
    symlink("../outside/o", folder.path("e/link")).unwrap();
    symlink("../secret.txt", folder.path("e/to-secret")).unwrap();
    symlink("../outside", folder.path("out")).unwrap();
    let reason = async |include: &str| skipped(&folder, &[include]).await;
    let one = |name: &str, reason: &str| vec![(name.to_owned(), reason.to_owned())];
    assert_eq!(reason("secret.txt").await, one("secret.txt", "ignored by .geminiignore or .convokeignore"));
    assert_eq!(reason("nope").await, one("nope", "there is no such file"));
    assert_eq!(reason("*.nope").await, one("*.nope", "no file there is to be read"));
    assert_eq!(reason("raw.dat").await, one("raw.dat", "it is a binary file"));
    assert_eq!(reason("d").await, one("d", "no file there is to be read"));
    for outside in ["../outside/o", "/etc/passwd", "out/o", "out"] {
        let [(_, why)] = &reason(outside).await[..] else { panic!("{outside}") };
        assert!(why.starts_with("Path not in workspace"), "{why}");
    }
    let below = read(&folder, json!({"include": ["e"]})).await;
    assert_eq!(below.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["e/ok"]);
    assert_eq!(below.skipped.len(), 2, "{:?}", below.skipped);
    assert_eq!(below.skipped[1].reason, "ignored by .geminiignore or .convokeignore", "a link shows what it leads to");
    let lifted = json!({"include": ["secret.txt"], "file_filtering_options": {"respect_gemini_ignore": false}});
    assert_eq!(read(&folder, lifted).await.files.len(), 1);
}

#[tokio::test]
async fn media_only_if_meant() {
    let folder = Folder::with(&[("d/a.txt", "a")]);
    folder.write("d/pic.png", b"\x89PNG\r\n\x1a\n\0\0\0\0");
    for (include, expected) in
        [("d", 1), ("d/*", 1), ("d/*.*", 1), ("d/*.png", 1), ("**/*.{png,txt}", 2), ("d/pic.png", 1)]
    {
        let read = read(&folder, json!({"include": [include]})).await;
        assert_eq!(read.files.len(), expected, "{include}");
        let has_picture = read.files.iter().any(|file| file.parts[0].raw().contains_key("inlineData"));
        assert_eq!(has_picture, include.contains("png"), "{include}");
        assert_eq!(read.skipped.len(), usize::from(!has_picture), "{include}");
    }
}

#[tokio::test]
async fn there_is_an_end_to_it() {
    let folder = Folder::with(&[]);
    for index in 0..1010 {
        folder.write(&format!("many/{index:04}"), b"x");
    }
    let many = read(&folder, json!({"include": ["many", "many/*"]})).await;
    assert_eq!((many.files.len(), many.skipped.len()), (1000, 1));
    assert!(many.skipped[0].name.ends_with("1000") && many.skipped[0].reason.starts_with("at most 1000"));

    let line = format!("{}\n", "y".repeat(1999));
    for index in 0..3 {
        folder.write(&format!("big/{index}"), line.repeat(1000).as_bytes());
    }
    let big = read(&folder, json!({"include": ["big"]})).await;
    let sizes: Vec<usize> = big.files.iter().map(|file| file.parts[0].as_text().unwrap().len()).collect();
    assert_eq!(sizes[..2], [2_000_000, 2_000_000]);
    assert!(big.files[2].parts[0].as_text().unwrap().ends_with("[cut: there is no room for more text]"));

    let huge = std::fs::File::create(folder.path("huge")).unwrap();
    huge.set_len(super::super::files::FILE_BYTES_MAX + 1).unwrap();
    assert!(skipped(&folder, &["huge"]).await[0].1.starts_with("File too large"));

    let workspace = Workspace::new(WorkspaceOptions { cwd: folder.path(""), ..WorkspaceOptions::default() }).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let request = ReadManyRequest::of(vec!["many".to_owned()]);
    let failure = read_many(&Arc::new(workspace), request, &cancel).await.unwrap_err();
    assert_eq!(failure.error_type(), None);
    assert!(ReadManyRequest::from_args(&json!({"include": "x"})).is_err());
}
