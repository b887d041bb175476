//! `read_many_files`: what is in these files, folders and patterns?
//!
//! The reader behind `@` in a prompt. No model is told of it: it has `read_file`. Files are looked for below the roots
//! of the workspace, read one after the other within bounds, and whatever is left out is named with its reason.
//! Source: runtime specification §13.2, §15.7.

mod find;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke_adk::Part;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{files, read_file};
use crate::{Access, ErrorType, FileFiltering, ToolFailure, Workspace, params};
use find::{Candidate, Candidates};

// What fits into a request beside a conversation: the Gemini API takes 20 MB of it in all.
const TEXT_BYTES_MAX: usize = 4 << 20;
const MEDIA_BYTES_MAX: usize = 14 << 20;

/// Which files.
#[derive(Clone, Debug, Deserialize)]
pub struct ReadManyRequest {
    /// Files, folders, and patterns such as `src/**/*.rs`.
    pub include: Vec<String>,
    /// Patterns of files to leave out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether folders are read with all that is below them.
    #[serde(default = "yes")]
    pub recursive: bool,
    /// Whether files are left out that nobody means: dependencies, build output, archives.
    #[serde(default = "yes", rename = "useDefaultExcludes")]
    pub use_default_excludes: bool,
    /// Which ignore files count; where absent, the workspace's own choice.
    #[serde(default)]
    file_filtering_options: Filtering,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Filtering {
    #[serde(default)]
    respect_git_ignore: Option<bool>,
    #[serde(default)]
    respect_gemini_ignore: Option<bool>,
}

fn yes() -> bool {
    true
}

impl ReadManyRequest {
    /// These, with all defaults.
    #[must_use]
    pub fn of(include: Vec<String>) -> Self {
        Self {
            include,
            exclude: Vec::new(),
            recursive: true,
            use_default_excludes: true,
            file_filtering_options: Filtering::default(),
        }
    }

    /// Reads the arguments of a call.
    pub fn from_args(args: &Value) -> Result<Self, ToolFailure> {
        let strings = json!({"type": "array", "items": {"type": "string"}});
        let flag = json!({"type": "boolean"});
        let schema = json!({
            "type": "object",
            "properties": {
                "include": strings,
                "exclude": strings,
                "recursive": flag,
                "useDefaultExcludes": flag,
                "file_filtering_options": {
                    "type": "object",
                    "properties": {"respect_git_ignore": flag, "respect_gemini_ignore": flag},
                },
            },
            "required": ["include"],
        });
        params::read(&schema, args)
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadMany {
    /// Files, in the order of their paths.
    pub files: Vec<FileContent>,
    /// What was asked for or found, and is not among the files.
    pub skipped: Vec<SkippedFile>,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileContent {
    /// Where it is.
    pub path: PathBuf,
    /// Its path for people and models: relative to the working folder where it lies inside.
    pub name: String,
    /// Its text, or the medium it is. Text that was cut says so itself.
    pub parts: Vec<Part>,
}

/// A file, folder or pattern that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedFile {
    /// As it was asked for, or where it is.
    pub name: String,
    /// Why, as a phrase.
    pub reason: String,
}

impl ReadMany {
    /// One line about it, for a person.
    #[must_use]
    pub fn summary(&self) -> String {
        match (self.files.len(), self.skipped.len()) {
            (0, _) => "No files were read.".to_owned(),
            (read, 0) => format!("Read {read} file(s)."),
            (read, skipped) => format!("Read {read} file(s), skipped {skipped}."),
        }
    }

    /// The files as one text with their media between, each file under its name.
    #[must_use]
    pub fn into_parts(self) -> Vec<Part> {
        if self.files.is_empty() {
            return vec![Part::text("No files matching the criteria were found or all were skipped.")];
        }
        let mut parts = Vec::new();
        for FileContent { path, parts: content, .. } in self.files {
            parts.push(Part::text(format!("--- {} ---\n\n", path.display())));
            parts.extend(content);
            parts.push(Part::text("\n\n"));
        }
        parts.push(Part::text("--- End of content ---"));
        parts
    }
}

/// Reads what `request` names and `workspace` lets be read. A pattern that is none fails the whole; a file that can't be
/// read is skipped.
///
/// Cancellation: ends with [`ToolFailure::Cancelled`] at the next file.
pub async fn read_many(
    workspace: &Arc<Workspace>,
    request: ReadManyRequest,
    cancel: &CancellationToken,
) -> Result<ReadMany, ToolFailure> {
    let filtering = workspace
        .filtering()
        .with(request.file_filtering_options.respect_git_ignore, request.file_filtering_options.respect_gemini_ignore);
    let search = find::Search::new(request, filtering)?;
    let (folders, stop) = (Arc::clone(workspace), cancel.clone());
    let found = tokio::task::spawn_blocking(move || search.run(&folders, &stop)).await;
    let cancelled = || ToolFailure::cancelled("Reading files was cancelled before it was done.");
    let Ok(Candidates { files, skipped, .. }) = found else {
        return Err(ToolFailure::new(ErrorType::ReadManyFilesSearchError, "Looking for files was interrupted"));
    };
    let mut done = ReadMany { skipped, ..ReadMany::default() };
    let mut room = Room { text: TEXT_BYTES_MAX, media: MEDIA_BYTES_MAX };
    for (path, candidate) in files {
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        let name = workspace.shorten(&path);
        match read_one(workspace, &path, &name, candidate, filtering, &mut room).await {
            Ok(content) => done.files.push(content),
            Err(reason) => done.skipped.push(SkippedFile { name, reason }),
        }
    }
    if cancel.is_cancelled() {
        return Err(cancelled());
    }
    Ok(done)
}

/// What may still be read.
struct Room {
    text: usize,
    media: usize,
}

async fn read_one(
    workspace: &Workspace,
    path: &Path,
    name: &str,
    candidate: Candidate,
    filtering: FileFiltering,
    room: &mut Room,
) -> Result<FileContent, String> {
    // The walk saw a name. What it leads to is resolved and opened like any path that a model wrote.
    let resolved = match path.to_str() {
        Some(path) => {
            workspace.resolve(path, Access::Read).map_err(|error| ToolFailure::from(error).message().to_owned())?
        }
        None => return Err("its name is not Unicode".to_owned()),
    };
    if let Some(by) = workspace.ignored(resolved.as_path(), filtering) {
        return Err(format!("ignored by {by}"));
    }
    if room.text == 0 {
        return Err("there is no room for more text".to_owned());
    }
    let told = |failure: ToolFailure| failure.message().to_owned();
    let bytes = match candidate {
        Candidate::Found => files::read_saved(&resolved).await,
        _ => files::read(workspace, &resolved).await,
    };
    let bytes = bytes.map_err(told)?;
    let parts = match read_file::content(name, resolved.as_path(), bytes).map_err(told)? {
        read_file::Content::Binary => return Err("it is a binary file".to_owned()),
        read_file::Content::Media { .. } if candidate == Candidate::Found => {
            return Err("an image, sound, video or PDF is read only if it is named, or its extension is".to_owned());
        }
        read_file::Content::Media { mime, bytes } => {
            let left = room.media.checked_sub(bytes.len());
            room.media = left.ok_or("there is no room for more media")?;
            Part::inline_data(mime, STANDARD.encode(bytes))
        }
        read_file::Content::Text(text) => {
            let mut text = read_file::excerpt(&text, 1, None).text;
            if text.len() > room.text {
                text.truncate(convoke_stdx::cut::head(&text, room.text).len());
                text.push_str("\n... [cut: there is no room for more text]");
            }
            room.text = room.text.saturating_sub(text.len());
            Part::text(text)
        }
    };
    Ok(FileContent { path: resolved.as_path().to_owned(), name: name.to_owned(), parts: vec![parts] })
}
