//! What a client has open, and the disk beneath it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;

use super::super::testing::{Folder, context};
use crate::{ClientFiles, ErrorType};

/// An editor with some files open. It says no to files that it does not have.
#[derive(Default)]
struct Editor {
    open: Mutex<BTreeMap<PathBuf, String>>,
    asked: Mutex<Vec<String>>,
    refuses_writes: bool,
}

impl Editor {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn note(&self, what: &str, path: &Path) {
        self.asked.lock().unwrap().push(format!("{what} {}", path.file_name().unwrap().to_str().unwrap()));
    }
}

#[async_trait]
impl ClientFiles for Editor {
    fn reads(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        true
    }

    async fn read_text(&self, path: &Path) -> Result<String, String> {
        self.note("read", path);
        self.open.lock().unwrap().get(path).cloned().ok_or_else(|| "not open".to_owned())
    }

    async fn write_text(&self, path: &Path, text: &str) -> Result<(), String> {
        self.note("write", path);
        if self.refuses_writes {
            return Err("read-only".to_owned());
        }
        self.open.lock().unwrap().insert(path.to_owned(), text.to_owned());
        Ok(())
    }
}

fn open(folder: &mut Folder, editor: Editor, files: &[(&str, &str)]) -> Arc<Editor> {
    for (name, text) in files {
        editor.open.lock().unwrap().insert(folder.path(name), (*text).to_owned());
    }
    let editor = Arc::new(editor);
    folder.client = Some(editor.clone());
    editor
}

async fn run(folder: &Folder, tool: &str, args: serde_json::Value) -> Result<String, crate::ToolFailure> {
    let call = folder.tool(tool).build(&args)?;
    call.execute(&context()).await.map(|output| output.text)
}

#[tokio::test]
async fn what_is_open_is_read_before_what_is_saved() {
    let mut folder = Folder::with(&[("a.txt", "saved\n"), ("b.txt", "only saved\n")]);
    let editor = open(&mut folder, Editor::default(), &[("a.txt", "typed\n"), ("new.txt", "never saved\n")]);
    assert_eq!(run(&folder, "read_file", json!({"file_path": "a.txt"})).await.unwrap(), "typed\n");
    assert_eq!(run(&folder, "read_file", json!({"file_path": "b.txt"})).await.unwrap(), "only saved\n");
    assert_eq!(run(&folder, "read_file", json!({"file_path": "new.txt"})).await.unwrap(), "never saved\n");
    assert_eq!(editor.asked(), ["read a.txt", "read b.txt", "read new.txt"]);
    let missing = run(&folder, "read_file", json!({"file_path": "none.txt"})).await.unwrap_err();
    assert_eq!(missing.error_type(), Some(ErrorType::FileNotFound));
}

#[tokio::test]
async fn what_is_no_text_or_lies_outside_is_the_disks() {
    let mut folder = Folder::with(&[("a.txt", "saved\n")]);
    folder.write("x.bin", b"\0\x01\x02binary");
    folder.write("latin.txt", b"gr\xfc\xdfe\n");
    let editor = open(&mut folder, Editor::default(), &[("x.bin", "text?"), ("latin.txt", "gr\u{fffd}\u{fffd}e\n")]);
    // A binary file is described, not shown; neither is asked for.
    let _ = run(&folder, "read_file", json!({"file_path": "x.bin"})).await;
    assert_eq!(run(&folder, "read_file", json!({"file_path": "latin.txt"})).await.unwrap(), "grüße\n");
    let outside = folder.dir.path().join("outside/o.txt").display().to_string();
    run(&folder, "read_file", json!({"file_path": outside})).await.unwrap_err();
    let found = run(&folder, "grep_search", json!({"pattern": "saved"})).await.unwrap();
    assert!(found.contains("a.txt"), "{found}");
    assert_eq!(editor.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn an_edit_starts_from_what_is_open_and_goes_through_the_client() {
    let mut folder = Folder::with(&[("a.txt", "one\ntwo\n")]);
    let editor = open(&mut folder, Editor::default(), &[("a.txt", "one\ntwo\nthree\n")]);
    let edit = json!({"file_path": "a.txt", "instruction": "x", "old_string": "three", "new_string": "3"});
    run(&folder, "replace", edit).await.unwrap();
    assert_eq!(editor.open.lock().unwrap()[&folder.path("a.txt")], "one\ntwo\n3\n");
    assert_eq!(folder.read("a.txt"), "one\ntwo\n", "saving is the client's business");
    run(&folder, "write_file", json!({"file_path": "deep/new.txt", "content": "x\n"})).await.unwrap();
    assert_eq!(editor.open.lock().unwrap()[&folder.path("deep/new.txt")], "x\n");
}

#[tokio::test]
async fn line_ends_stay_and_other_encodings_are_written_to_the_disk() {
    let mut folder = Folder::with(&[("crlf.txt", "one\r\ntwo\r\n")]);
    folder.write("bom.txt", "\u{feff}grün\n".as_bytes());
    let open_files = [("crlf.txt", "one\ntwo\n"), ("bom.txt", "grün\n")];
    let editor = open(&mut folder, Editor::default(), &open_files);
    let edit = |file: &str, old: &str, new: &str| json!({"file_path": file, "instruction": "x", "old_string": old, "new_string": new});
    run(&folder, "replace", edit("crlf.txt", "two", "2")).await.unwrap();
    assert_eq!(editor.open.lock().unwrap()[&folder.path("crlf.txt")], "one\r\n2\r\n");
    editor.asked();
    run(&folder, "replace", edit("bom.txt", "grün", "blau")).await.unwrap();
    assert_eq!(folder.read("bom.txt"), "\u{feff}blau\n");
    assert_eq!(editor.asked(), ["read bom.txt"]);
}

#[tokio::test]
async fn a_client_that_does_not_write_is_not_overruled() {
    let mut folder = Folder::with(&[("a.txt", "one\n")]);
    open(&mut folder, Editor { refuses_writes: true, ..Editor::default() }, &[("a.txt", "one\n")]);
    let failure = run(&folder, "write_file", json!({"file_path": "a.txt", "content": "two\n"})).await.unwrap_err();
    assert_eq!(failure.error_type(), Some(ErrorType::FileWriteFailure));
    assert!(failure.message().ends_with("the client says: read-only"), "{failure}");
    assert_eq!(folder.read("a.txt"), "one\n");
}

#[tokio::test]
async fn text_typed_while_a_person_decides_stops_the_edit() {
    let mut folder = Folder::with(&[("a.txt", "one\n")]);
    let editor = open(&mut folder, Editor::default(), &[("a.txt", "one\n")]);
    let call = folder.tool("write_file").build(&json!({"file_path": "a.txt", "content": "two\n"})).unwrap();
    call.confirmation().await.unwrap();
    editor.open.lock().unwrap().insert(folder.path("a.txt"), "one and a half\n".to_owned());
    let failure = call.execute(&context()).await.unwrap_err();
    assert!(failure.message().contains("changed while the edit waited"), "{failure}");
    assert_eq!(editor.asked(), ["read a.txt", "read a.txt"]);
}
