//! What happens to output that is too large for a model? The middle goes to a file, and the model is told where.
//!
//! Source: runtime specification §6.5.

use std::path::PathBuf;

use convoke_stdx::write_atomic;

/// How large output is cut.
#[derive(Clone, Debug)]
pub struct Truncation {
    /// Characters that the model gets; 0 for no limit.
    pub threshold: usize,
    /// Where the whole output is kept: `…/tool-outputs/session-<id>`. Without it, what is cut is lost, and the model
    /// is told so.
    pub folder: Option<PathBuf>,
}

impl Default for Truncation {
    fn default() -> Self {
        Self { threshold: 40_000, folder: None }
    }
}

/// Output that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// What the model reads.
    pub text: String,
    /// Where the whole of it is, if it was cut.
    pub file: Option<String>,
}

impl Truncation {
    /// Cuts `text` if it is too large, and keeps the whole of it first.
    pub async fn apply(&self, tool: &str, call_id: &str, text: String) -> Truncated {
        // Bytes are never fewer than characters, so this spares the counting almost always.
        if self.threshold == 0 || text.len() <= self.threshold {
            return Truncated { text, file: None };
        }
        let total = text.chars().count();
        if total <= self.threshold {
            return Truncated { text, file: None };
        }
        let head_chars = self.threshold / 5;
        let tail_chars = self.threshold - head_chars;
        let head_end = byte_of(&text, head_chars);
        let tail_start = byte_of(&text, total - tail_chars);
        let head = text.get(..head_end).unwrap_or_default().to_owned();
        let tail = text.get(tail_start..).unwrap_or_default().to_owned();
        let omitted = total - head_chars - tail_chars;
        let file = self.keep(tool, call_id, text).await;
        let place = match &file {
            Some(file) => format!("For full output see: {file}"),
            None => "The full output was not kept.".to_owned(),
        };
        let text = format!(
            "Output too large. Showing first {head_chars} and last {tail_chars} characters. {place}\n{head}\n\n\
             ... [{omitted} characters omitted] ...\n\n{tail}"
        );
        Truncated { text, file }
    }

    async fn keep(&self, tool: &str, call_id: &str, text: String) -> Option<String> {
        let folder = self.folder.clone()?;
        let path = folder.join(output_file_name(tool, call_id));
        let written = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || {
                std::fs::create_dir_all(&folder).and_then(|()| write_atomic(&path, text.as_bytes()))
            })
            .await
        };
        match written {
            Ok(Ok(())) => Some(path.display().to_string()),
            Ok(Err(error)) => {
                tracing::warn!(%error, path = %path.display(), "failed to keep a tool's output");
                None
            }
            Err(_) => None,
        }
    }
}

/// `<tool>_<call id>.txt` in lower case; the tool is left out where the id begins with it.
///
/// Whatever keeps a call's output keeps it under this name, so that it is kept once.
#[must_use]
pub fn output_file_name(tool: &str, call_id: &str) -> String {
    // Names in most file systems end at 255 bytes.
    const NAME_MAX: usize = 200;
    let name = if call_id.starts_with(tool) { call_id.to_owned() } else { format!("{tool}_{call_id}") };
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    let name: String = name.chars().map(safe).take(NAME_MAX).collect();
    format!("{name}.txt")
}

fn byte_of(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_middle_goes_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let truncation = Truncation { threshold: 10, folder: Some(dir.path().join("a/b")) };
        let whole = "éé0123456789abcdefghé".to_owned();
        let cut = truncation.apply("run_shell_command", "Call/../1", whole.clone()).await;
        let file = dir.path().join("a/b/run_shell_command_call____1.txt");
        assert_eq!(cut.file.as_deref(), file.to_str());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
        let expected = format!(
            "Output too large. Showing first 2 and last 8 characters. For full output see: {}\néé\n\n\
             ... [11 characters omitted] ...\n\nbcdefghé",
            file.display()
        );
        assert_eq!(cut.text, expected);
    }

    #[tokio::test]
    async fn what_fits_is_left_alone_and_what_is_lost_is_said() {
        let truncation = Truncation { threshold: 4, folder: None };
        let fits = truncation.apply("t", "1", "éééé".to_owned()).await;
        assert_eq!(fits, Truncated { text: "éééé".to_owned(), file: None });
        let lost = truncation.apply("t", "1", "ééééé".to_owned()).await;
        assert!(lost.text.contains("was not kept") && lost.text.contains("[1 characters omitted]"), "{}", lost.text);
        let off = Truncation { threshold: 0, folder: None };
        assert_eq!(off.apply("t", "1", "x".repeat(99)).await.text.len(), 99);
    }

    #[test]
    fn a_tool_is_not_named_twice() {
        assert_eq!(output_file_name("read_file", "read_file__12"), "read_file__12.txt");
        assert!(output_file_name("t", &"x".repeat(999)).len() < 255);
    }
}
