//! `@path` in a prompt: which files are meant, and how do they come with it?
//!
//! A path begins at an `@` that stands at the beginning of a word and ends at white space, unless that is escaped (`\ `) or
//! the path is quoted (`@"a b.txt"`). A file comes whole, a folder with what is below it. A path that is not there is looked
//! for by its name anywhere in the workspace; what is found nowhere stays the text that it is. `@server:uri` brings a resource
//! of an MCP server that the session has. Source: runtime specification §15.7.

use std::sync::Arc;

use convoke_adk::Part;
use convoke_tools::builtin::{ReadMany, ReadManyRequest, read_many};
use convoke_tools::{Access, Workspace};
use tokio_util::sync::CancellationToken;

use crate::mcp::ServersAtHand;

/// Most paths of one prompt that are followed. A pasted log may hold thousands of words that begin so.
const PATHS_MAX: usize = 100;

/// A prompt and what it brought with it.
#[derive(Debug)]
pub(super) struct Included {
    /// The prompt, with paths as they were found.
    pub(super) text: String,
    /// The files, as they come behind it.
    pub(super) parts: Vec<Part>,
    /// What was left out, and why.
    pub(super) notes: Vec<String>,
}

/// A path in a prompt: bytes `start..end` are its place, with the `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mention {
    start: usize,
    end: usize,
    path: String,
}

/// The name and the parts of one file or resource.
type Content = (String, Vec<Part>);

/// Follows the paths in `text`.
pub(super) async fn expand(
    workspace: &Arc<Workspace>,
    servers: &ServersAtHand,
    text: &str,
    cancel: &CancellationToken,
) -> Included {
    let mut shown = String::with_capacity(text.len());
    let mut read: Vec<(String, Vec<Content>)> = Vec::new();
    let mut notes = Vec::new();
    let mut copied = 0;
    for mention in mentions(text) {
        if let Some((server, uri)) = servers.names(&mention.path) {
            match servers.read(&server, &uri, cancel).await {
                Ok(_) if read.iter().any(|(known, _)| *known == mention.path) => {}
                Ok(content) => read.push((mention.path.clone(), vec![(mention.path, content)])),
                Err(reason) => notes.push(format!("@{} was left out: {reason}", mention.path)),
            }
            continue;
        }
        let Some(found) = find(workspace, &mention.path, cancel, &mut notes).await else { continue };
        let (name, content) = found;
        shown.push_str(text.get(copied..mention.start).unwrap_or_default());
        shown.push('@');
        shown.push_str(&name);
        copied = mention.end;
        let skipped =
            content.skipped.iter().map(|skipped| format!("{} was left out: {}", skipped.name, skipped.reason));
        notes.extend(skipped);
        if !content.files.is_empty() && !read.iter().any(|(known, _)| *known == name) {
            let files = content.files.into_iter().map(|file| (file.name, file.parts)).collect();
            read.push((name, files));
        }
    }
    shown.push_str(text.get(copied..).unwrap_or_default());
    let mut parts = Vec::new();
    if !read.is_empty() {
        parts.push(Part::text("\n--- Content from referenced files ---"));
        for (name, content) in read.into_iter().flat_map(|(_, files)| files) {
            parts.push(Part::text(format!("\nContent from @{name}:\n")));
            parts.extend(content);
        }
        parts.push(Part::text("\n--- End of content ---"));
    }
    Included { text: shown, parts, notes }
}

/// What a path stands for: its name as it was found, and what is in it. `None` if nothing has that name.
async fn find(
    workspace: &Arc<Workspace>,
    path: &str,
    cancel: &CancellationToken,
    notes: &mut Vec<String>,
) -> Option<(String, ReadMany)> {
    let resolved = match workspace.resolve(path, Access::Read) {
        Ok(resolved) => resolved,
        Err(error) => {
            // A word such as `@` or `@here` resolves; only what leads outside, or can't be looked at, gets here.
            notes.push(format!("@{path} was left out: {error}"));
            return None;
        }
    };
    let there = resolved.as_path().to_owned();
    let (is_folder, exists) = (there.is_dir(), there.exists());
    if !exists {
        return search(workspace, path, cancel).await;
    }
    let shortened = workspace.shorten(&there);
    let name = if is_folder { format!("{}/**", shortened.trim_end_matches('/')) } else { shortened };
    match read_many(workspace, ReadManyRequest::of(vec![there.to_str()?.to_owned()]), cancel).await {
        Ok(content) => Some((name, content)),
        Err(failure) => {
            notes.push(format!("@{path} was left out: {}", failure.message()));
            None
        }
    }
}

/// The first file, in the order of paths, whose name holds the last part of `path`.
async fn search(workspace: &Arc<Workspace>, path: &str, cancel: &CancellationToken) -> Option<(String, ReadMany)> {
    let wanted = path.trim_end_matches('/');
    // Shorter names are in every other file's, and a pattern is no name.
    if wanted.chars().count() < 3 || wanted.contains(['*', '?', '[', '{', '\\']) {
        return None;
    }
    let pattern = format!("**/*{}*", wanted.trim_start_matches(['.', '/']));
    let mut content = read_many(workspace, ReadManyRequest::of(vec![pattern]), cancel).await.ok()?;
    content.files.truncate(1);
    content.skipped.clear();
    let name = content.files.first()?.name.clone();
    Some((name, content))
}

fn mentions(text: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = text.get(at..).and_then(|rest| rest.find('@')) {
        let start = at + offset;
        at = start + 1;
        let before = text.get(..start).and_then(|before| before.chars().next_back());
        if before.is_some_and(|c| !c.is_whitespace() && !"([{<\"'`,;:".contains(c)) {
            continue;
        }
        let Some((length, path)) = path_at(text.get(at..).unwrap_or_default()) else { continue };
        at += length;
        found.push(Mention { start, end: at, path });
        if found.len() == PATHS_MAX {
            break;
        }
    }
    found
}

/// The path at the beginning of `text`, and how many bytes it takes.
fn path_at(text: &str) -> Option<(usize, String)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let end = quoted.find('"')?;
        let path = quoted.get(..end).filter(|path| !path.is_empty())?;
        return Some((end + 2, path.to_owned()));
    }
    let mut path = String::new();
    let mut end = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => match chars.next_if(|(_, next)| next.is_whitespace() || "\\()[]{},;!?@\"'".contains(*next)) {
                Some((_, escaped)) => {
                    path.push(escaped);
                    end = index + 1 + escaped.len_utf8();
                    continue;
                }
                None => path.push(c),
            },
            c if c.is_whitespace() || ",;!?()[]{}\"'`<>".contains(c) => break,
            // The end of a sentence is no part of a path.
            '.' | ':' if chars.peek().is_none_or(|(_, next)| next.is_whitespace()) => break,
            c => path.push(c),
        }
        end = index + c.len_utf8();
    }
    (!path.is_empty()).then_some((end, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        mentions(text).into_iter().map(|mention| mention.path).collect()
    }

    #[test]
    fn what_is_a_path() {
        assert_eq!(paths("look at @a/b.txt, and (@c.rs). Also @d."), ["a/b.txt", "c.rs", "d"]);
        assert_eq!(paths(r#"@a\ b.txt @"c d.txt" @~/x"#), ["a b.txt", "c d.txt", "~/x"]);
        assert_eq!(paths("me@example.org @ @\"\" \\@x"), [""; 0]);
        assert_eq!(paths("@ä/ö.txt"), ["ä/ö.txt"]);
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "see @\"a b\" and @c\\ d!";
        let shown: Vec<&str> = mentions(text).iter().map(|m| &text[m.start..m.end]).collect();
        assert_eq!(shown, ["@\"a b\"", "@c\\ d"]);
    }

    #[test]
    fn the_number_of_paths_is_bounded() {
        assert_eq!(mentions(&"@x ".repeat(PATHS_MAX * 2)).len(), PATHS_MAX);
    }
}
