//! Where does the whole of an output go, and what if it is there already?
//!
//! The name comes from the tool and the call, as for output that is cut when it is made, so an output is kept once. A
//! name that is taken by something else (a provider that counts its calls from 1 in each answer) gets a digest behind
//! it. Nothing is flushed to the disk: a file that a crash takes was a convenience.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use convoke_stdx::open_regular;
use convoke_tools::output_file_name;
use sha2::{Digest as _, Sha256};

use super::preview::Kept;

/// How much of a digest a mask shows and a name carries: enough to tell outputs of one session apart.
const SHOWN: usize = 16;
const NAMED: usize = 8;

/// Keeps `text` and says where.
pub(super) fn keep(folder: &Path, tool: &str, call_id: Option<&str>, text: &str) -> io::Result<Kept> {
    let digest = digest(text.as_bytes());
    let tool = if tool.is_empty() { "unknown_tool" } else { tool };
    // Without an id the content itself is the most stable name.
    let path = folder.join(output_file_name(tool, call_id.unwrap_or(&digest)));
    // Cut when it was made: the whole of it is there, and what the session has is only its ends.
    if text.starts_with("Output too large. Showing first")
        && text.lines().next().is_some_and(|line| line.ends_with(&*path.to_string_lossy()))
        && let Ok(whole) = read(&path)
    {
        return Ok(facts(&path, &whole, &self::digest(&whole)));
    }
    let path = match create(&path, text)? {
        Created::Yes | Created::Same => path,
        Created::Taken => {
            let other = with_digest(&path, &digest);
            // What has this name has this content, or it was changed by somebody, who then wanted that.
            create(&other, text)?;
            other
        }
    };
    Ok(facts(&path, text.as_bytes(), &digest))
}

enum Created {
    Yes,
    Same,
    Taken,
}

fn create(path: &Path, text: &str) -> io::Result<Created> {
    match std::fs::File::create_new(path) {
        Ok(mut file) => {
            file.write_all(text.as_bytes())?;
            Ok(Created::Yes)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let same = read(path).is_ok_and(|there| there == text.as_bytes());
            Ok(if same { Created::Same } else { Created::Taken })
        }
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn with_digest(path: &Path, digest: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}_{}.txt", digest.get(..NAMED).unwrap_or_default()))
}

fn facts(path: &Path, bytes: &[u8], digest: &str) -> Kept {
    let unfinished = usize::from(bytes.last().is_some_and(|last| *last != b'\n'));
    Kept {
        path: path.display().to_string(),
        lines: bytes.iter().filter(|byte| **byte == b'\n').count() + unfinished,
        bytes: bytes.len(),
        sha256: digest.get(..SHOWN).unwrap_or_default().to_owned(),
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_same_output_is_kept_once_under_the_same_name() {
        let dir = tempfile::tempdir().unwrap();
        let first = keep(dir.path(), "Grep", Some("Call/1"), "a\nb").unwrap();
        let second = keep(dir.path(), "Grep", Some("Call/1"), "a\nb").unwrap();
        assert_eq!((&first.path, first.lines, first.bytes), (&second.path, 2, 3));
        assert_eq!(names(dir.path()), ["grep_call_1.txt"]);
        assert_eq!(std::fs::read_to_string(first.path).unwrap(), "a\nb");
    }

    #[test]
    fn ids_that_come_again_do_not_overwrite() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<_> =
            ["a", "b", "c", "b"].map(|text| keep(dir.path(), "t", Some("1"), text).unwrap().path).into();
        assert_eq!(paths[1], paths[3]);
        for (path, text) in paths.iter().zip(["a", "b", "c"]) {
            assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        }
        assert_eq!(names(dir.path()).len(), 3);
        let unnamed = keep(dir.path(), "", None, "x").unwrap().path;
        assert!(unnamed.contains("unknown_tool_"), "{unnamed}");
    }

    #[tokio::test]
    async fn what_was_cut_when_it_was_made_is_pointed_to() {
        let dir = tempfile::tempdir().unwrap();
        let truncation = convoke_tools::Truncation { threshold: 10, folder: Some(dir.path().to_owned()) };
        let whole = "0123456789\n".repeat(9);
        let cut = truncation.apply("run_shell_command", "7", whole.clone()).await;
        let kept = keep(dir.path(), "run_shell_command", Some("7"), &cut.text).unwrap();
        assert_eq!(kept.path, cut.file.unwrap());
        assert_eq!((kept.lines, kept.bytes), (9, whole.len()));
        assert_eq!(names(dir.path()).len(), 1);
    }
}
