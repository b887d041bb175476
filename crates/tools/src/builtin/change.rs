//! A change to one file: what it was, what it will be, and whether that is still what a person agreed to.

use std::sync::{Arc, Mutex, PoisonError};

use similar::TextDiff;

use super::files;
use crate::diff::{stat, unified_patch};
use crate::text::{self, Encoding, LineEnds};
use crate::{ConfirmationDetails, ErrorType, ResolvedPath, ResultDisplay, ToolFailure, ToolOutput, Workspace};

// Lines around a change that the model is shown. Source: runtime specification §13.3.
const SNIPPET_CONTEXT: usize = 5;
// The model wrote the text itself; this is for orientation.
const SNIPPET_BYTES_MAX: usize = 8 << 10;

/// A file as it is now.
pub(super) struct Existing {
    pub(super) bytes: Vec<u8>,
    /// With the line ends it has.
    pub(super) text: String,
    pub(super) encoding: Encoding,
    pub(super) line_ends: LineEnds,
}

impl Existing {
    /// The file at `path`; `None` if there is none. A file that is not text counts as empty text for
    /// `binary_is_empty`, and is refused otherwise.
    pub(super) async fn load(
        workspace: &Workspace,
        path: &ResolvedPath,
        binary_is_empty: bool,
    ) -> Result<Option<Self>, ToolFailure> {
        let Some(bytes) = files::read_existing(workspace, path).await? else { return Ok(None) };
        let decoded = match text::decode(bytes.clone()) {
            Some(decoded) => decoded,
            None if binary_is_empty => text::Decoded { text: String::new(), encoding: Encoding::Utf8 },
            None => {
                let message = format!("Cannot edit binary file: {}", path.as_path().display());
                return Err(ToolFailure::new(ErrorType::ReadContentFailure, message));
            }
        };
        let line_ends = LineEnds::of(&decoded.text);
        Ok(Some(Self { bytes, text: decoded.text, encoding: decoded.encoding, line_ends }))
    }
}

/// What a call would do to a file.
pub(super) struct Change {
    path: ResolvedPath,
    old_bytes: Option<Vec<u8>>,
    old: Option<Arc<str>>,
    new: Arc<str>,
    new_bytes: Vec<u8>,
}

impl Change {
    /// `new` comes with the line ends it is to have. A character that the old encoding lacks makes the file UTF-8.
    pub(super) fn new(path: ResolvedPath, existing: Option<Existing>, new: &str) -> Self {
        let encoding = existing.as_ref().map(|existing| existing.encoding).unwrap_or_default();
        let new_bytes = text::encode(new, encoding).unwrap_or_else(|| new.as_bytes().to_vec());
        let (old_bytes, old) = match existing {
            Some(existing) => (Some(existing.bytes), Some(existing.text.into())),
            None => (None, None),
        };
        Self { path, old_bytes, old, new: new.into(), new_bytes }
    }

    pub(super) fn is_new_file(&self) -> bool {
        self.old.is_none()
    }

    fn path_text(&self) -> String {
        self.path.as_path().display().to_string()
    }

    fn patch(&self, workspace: &Workspace) -> String {
        unified_patch(&workspace.shorten(self.path.as_path()), self.old.as_deref().unwrap_or_default(), &self.new)
    }

    /// What a person should see.
    pub(super) fn details(&self, workspace: &Workspace) -> ConfirmationDetails {
        ConfirmationDetails::Edit {
            path: self.path_text(),
            old_text: self.old.clone(),
            new_text: Arc::clone(&self.new),
            diff: self.patch(workspace),
        }
    }

    /// Writes the file, and says `done` with the changed lines behind it.
    pub(super) async fn carry_out(self, workspace: &Workspace, done: &str) -> Result<ToolOutput, ToolFailure> {
        let patch = self.patch(workspace);
        let (added, removed) = stat(&patch);
        let text = format!("{done} Here is the updated code:\n{}", snippet(self.old.as_deref(), &self.new));
        let display = ResultDisplay::Diff {
            path: self.path_text(),
            old_text: self.old.clone(),
            new_text: Arc::clone(&self.new),
            patch,
        };
        let data = serde_json::json!({
            "filePath": self.path_text(),
            "isNewFile": self.is_new_file(),
            "diffStat": {"linesAdded": added, "linesRemoved": removed},
        });
        self.write(workspace).await?;
        Ok(ToolOutput {
            text,
            display,
            summary: Some(format!("+{added} -{removed}")),
            data: Some(data),
            ..ToolOutput::default()
        })
    }

    async fn write(self, workspace: &Workspace) -> Result<(), ToolFailure> {
        let name = self.path_text();
        let Self { path, new, new_bytes, .. } = self;
        // What goes to a client is text: a file in another encoding would come out of it in UTF-8.
        let plain = *new_bytes == *new.as_bytes();
        if let Some(client) = workspace.client_files(path.as_path()).filter(|client| plain && client.writes()) {
            if !path.is_unmoved().unwrap_or(false) {
                let message = format!("Failed to write {name}: a link was put into the path meanwhile");
                return Err(ToolFailure::new(ErrorType::FileWriteFailure, message));
            }
            return client.write_text(path.as_path(), &new).await.map_err(|error| {
                ToolFailure::new(
                    ErrorType::FileWriteFailure,
                    format!("Failed to write {name}: the client says: {error}"),
                )
            });
        }
        let written = tokio::task::spawn_blocking(move || {
            if let Some(folder) = path.as_path().parent() {
                std::fs::create_dir_all(folder)?;
            }
            if !path.is_unmoved()? {
                return Err(std::io::Error::other("a link was put into the path meanwhile"));
            }
            convoke_stdx::write_atomic(path.as_path(), &new_bytes)
        })
        .await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let kind = match ErrorType::of_io(&error, ErrorType::FileWriteFailure) {
                    // The folder vanished: what is missing is not the file that was to be written.
                    ErrorType::FileNotFound => ErrorType::FileWriteFailure,
                    kind => kind,
                };
                Err(ToolFailure::new(kind, format!("Failed to write {name}: {error}")))
            }
            Err(_) => Err(ToolFailure::new(ErrorType::FileWriteFailure, format!("Writing {name} was interrupted"))),
        }
    }
}

/// What a person saw before agreeing. A file that changed since is not written: the agreement was about another change.
#[derive(Default)]
pub(super) struct Agreed(Mutex<Option<Seen>>);

struct Seen {
    old: Option<Vec<u8>>,
    new: Vec<u8>,
}

impl Agreed {
    pub(super) fn remember(&self, change: &Change) {
        let seen = Seen { old: change.old_bytes.clone(), new: change.new_bytes.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    pub(super) fn check(&self, change: &Change) -> Result<(), ToolFailure> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.as_ref() {
            Some(seen) if seen.old != change.old_bytes || seen.new != change.new_bytes => Err(ToolFailure::new(
                ErrorType::EditPreparationFailure,
                format!(
                    "{} changed while the edit waited for approval, so it was not written. Read the file and try again.",
                    change.path_text()
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }
}

/// The changed lines of the new text, with their surroundings.
fn snippet(old: Option<&str>, new: &str) -> String {
    let Some(old) = old else { return bounded(new.to_owned()) };
    let diff = TextDiff::from_lines(old, new);
    let lines: Vec<&str> = new.split_inclusive('\n').collect();
    let mut text = String::new();
    for group in diff.grouped_ops(SNIPPET_CONTEXT) {
        let start = group.first().map_or(0, |op| op.new_range().start);
        let end = group.last().map_or(0, |op| op.new_range().end);
        if start > 0 || !text.is_empty() {
            text.push_str("...\n");
        }
        text.extend(lines.iter().skip(start).take(end.saturating_sub(start)).copied());
        if end < lines.len() && !text.ends_with('\n') {
            text.push('\n');
        }
    }
    bounded(text)
}

fn bounded(text: String) -> String {
    if text.len() <= SNIPPET_BYTES_MAX {
        return text;
    }
    let half = SNIPPET_BYTES_MAX / 2;
    format!("{}\n...\n{}", convoke_stdx::cut::head(&text, half), convoke_stdx::cut::tail(&text, half))
}

/// Lines that stand for code which the model left out: `// rest of the code ...`.
pub(super) fn placeholders(text: &str) -> usize {
    const WORDS: [&str; 6] = ["rest of", "remaining", "existing", "unchanged", "previous", "same as before"];
    text.lines()
        .filter(|line| {
            let line = line.trim().to_ascii_lowercase();
            let bare = line.trim_start_matches(['/', '#', '*', '-', ';', '<', '!', '(', '{', ' ', '.', '…']);
            let has_dots = line.contains("...") || line.contains('…');
            let is_comment = bare.len() < line.len();
            // A whole line of prose that happens to have dots in it is longer than a placeholder.
            has_dots && is_comment && line.len() <= 80 && WORDS.iter().any(|word| bare.starts_with(word))
        })
        .count()
}

/// Refuses text that has more placeholders than what it replaces.
pub(super) fn refuse_placeholders(parameter: &str, old: &str, new: &str) -> Result<(), ToolFailure> {
    if placeholders(new) <= placeholders(old) {
        return Ok(());
    }
    let message = format!(
        "params/{parameter} has a placeholder for omitted code, such as 'rest of the code ...'. Write the text in full."
    );
    Err(ToolFailure::new(ErrorType::InvalidToolParams, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_recognised_and_prose_is_not() {
        for (line, expected) in [
            ("// rest of the code ...", 1),
            ("    # ... existing code ...", 1),
            ("/* remaining methods … */", 1),
            ("<!-- unchanged ... -->", 1),
            ("(rest of methods ...)", 1),
            ("// existing users keep their settings", 0),
            ("let rest = of(...);", 0),
            ("The rest of the story ...", 0),
            ("...", 0),
        ] {
            assert_eq!(placeholders(line), expected, "{line}");
        }
        assert!(refuse_placeholders("content", "// rest of code ...", "// rest of code ...").is_ok());
        assert!(refuse_placeholders("content", "", "// rest of code ...").is_err());
    }

    #[test]
    fn a_snippet_shows_the_change_and_its_surroundings() {
        let old: String = (1..=30).map(|i| format!("line {i}\n")).collect();
        let new = old.replace("line 15\n", "LINE 15\nand more\n");
        let shown = snippet(Some(&old), &new);
        assert!(shown.starts_with("...\nline 10\n") && shown.ends_with("line 20\n"), "{shown}");
        assert!(shown.contains("LINE 15\nand more\n") && !shown.contains("line 15\n"));
        assert_eq!(snippet(None, "x\n"), "x\n");
        assert!(snippet(None, &"y\n".repeat(99_999)).len() < SNIPPET_BYTES_MAX + 10);
    }
}
