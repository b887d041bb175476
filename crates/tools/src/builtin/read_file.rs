//! `read_file`: what is in a file?

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke_adk::{FunctionDeclaration, Part};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{files, media};
use crate::{
    Access, DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, Location, ResolvedPath, ResultDisplay,
    ToolFailure, ToolOutput, Workspace, params, text,
};

const NAME: &str = "read_file";
// Source of the three limits: runtime specification §13.3.
const LINES_MAX: usize = 2000;
const LINE_CHARS_MAX: usize = 2000;
const SVG_BYTES_MAX: usize = 1 << 20;

/// The tool.
pub struct ReadFile {
    workspace: Arc<Workspace>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    file_path: String,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    start_line: Option<u64>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    end_line: Option<u64>,
}

impl ReadFile {
    /// Files of `workspace`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to read."},
                "start_line": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1."},
                "end_line": {"type": "integer", "minimum": 1, "description": "The last line to read, inclusive."},
            },
            "required": ["file_path"],
        });
        Self { workspace, schema }
    }
}

impl DeclarativeTool for ReadFile {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "ReadFile"
    }

    fn kind(&self) -> Kind {
        Kind::Read
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: format!(
                "Reads a file: text, images, sound, video or PDF. At most {LINES_MAX} lines of text at a time; the \
                 result says if there is more. Use start_line and end_line for a part of a large file."
            ),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        if let (Some(start), Some(end)) = (params.start_line, params.end_line)
            && start > end
        {
            let message = "params/start_line must not be greater than params/end_line";
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
        }
        let path = self.workspace.resolve(&params.file_path, Access::Read)?;
        Ok(Arc::new(Call { workspace: Arc::clone(&self.workspace), params, path }))
    }
}

struct Call {
    workspace: Arc<Workspace>,
    params: Params,
    /// As it was resolved when the call was made; for people.
    path: ResolvedPath,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let name = self.workspace.shorten(self.path.as_path());
        match (self.params.start_line, self.params.end_line) {
            (None, None) => name,
            (Some(start), None) => format!("{name} from line {start}"),
            (None, Some(end)) => format!("{name} to line {end}"),
            (Some(start), Some(end)) => format!("{name} lines {start}-{end}"),
        }
    }

    fn locations(&self) -> Vec<Location> {
        let line = self.params.start_line.and_then(|line| u32::try_from(line).ok());
        vec![Location { path: self.path.as_path().display().to_string(), line }]
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        // Again, because a call before this one may have moved things.
        let path = self.workspace.resolve(&self.params.file_path, Access::Read)?;
        files::refuse_ignored(&self.workspace, path.as_path(), self.workspace.filtering())?;
        let bytes = files::read(&self.workspace, &path).await?;
        let name = self.workspace.shorten(path.as_path());
        let first = self.params.start_line.and_then(|line| usize::try_from(line).ok()).unwrap_or(1);
        let last = self.params.end_line.and_then(|line| usize::try_from(line).ok());
        Ok(match content(&name, path.as_path(), bytes)? {
            Content::Text(text) => excerpt(&text, first, last),
            Content::Media { mime, bytes } => attached(&name, mime, &bytes),
            Content::Binary => {
                let text = format!("Cannot display content of binary file: {name}");
                ToolOutput { summary: Some(text.clone()), ..ToolOutput::text(text) }
            }
        })
    }
}

/// What the bytes of a file are to a model.
pub(super) enum Content {
    Text(String),
    Media { mime: &'static str, bytes: Vec<u8> },
    Binary,
}

pub(super) fn content(name: &str, path: &Path, bytes: Vec<u8>) -> Result<Content, ToolFailure> {
    let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg && bytes.len() > SVG_BYTES_MAX {
        let message = format!("SVG file too large: {name} has {} bytes, the limit is 1 MB.", bytes.len());
        return Err(ToolFailure::new(ErrorType::FileTooLarge, message));
    }
    if let Some(mime) = media::mime_type(&bytes).filter(|_| !is_svg) {
        return Ok(Content::Media { mime, bytes });
    }
    Ok(text::decode(bytes).map_or(Content::Binary, |decoded| Content::Text(decoded.text)))
}

fn attached(name: &str, mime: &str, bytes: &[u8]) -> ToolOutput {
    let text = format!("Read {name} ({mime}, {} bytes). Its content is attached.", bytes.len());
    ToolOutput {
        parts: vec![Part::inline_data(mime, STANDARD.encode(bytes))],
        summary: Some(format!("Read {mime}")),
        display: ResultDisplay::Text(text.clone()),
        text,
        ..ToolOutput::default()
    }
}

/// The lines from `first` to `last`, counted from 1, as far as the limits let them.
pub(super) fn excerpt(text: &str, first: usize, last: Option<usize>) -> ToolOutput {
    let total = text.lines().count();
    let end = last.unwrap_or(total).min(total);
    let mut shown = String::new();
    let (mut count, mut cut_lines) = (0, 0);
    for line in
        text.split_inclusive('\n').skip(first.saturating_sub(1)).take((end + 1).saturating_sub(first).min(LINES_MAX))
    {
        count += 1;
        let cut = line.char_indices().nth(LINE_CHARS_MAX).and_then(|(at, _)| line.split_at_checked(at));
        match cut {
            Some((beginning, rest)) if !rest.trim_end_matches(['\r', '\n']).is_empty() => {
                cut_lines += 1;
                shown.push_str(beginning);
                shown.push_str("... [truncated]\n");
            }
            Some(_) | None => shown.push_str(line),
        }
    }
    let until = (first + count).saturating_sub(1);
    let asked_for_all = first == 1 && until == total;
    let summary =
        if asked_for_all && cut_lines == 0 { None } else { Some(format!("Read lines {first}-{until} of {total}")) };
    let display = ResultDisplay::Text(summary.clone().unwrap_or_default());
    if count == 0 && total > 0 {
        let text = format!("The file has {total} lines; there is nothing at line {first} and after.");
        return ToolOutput { summary: Some(text.clone()), display, text, ..ToolOutput::default() };
    }
    if (until >= end || last.is_some_and(|last| until >= last)) && cut_lines == 0 {
        return ToolOutput { text: shown, summary, display, ..ToolOutput::default() };
    }
    let mut header = format!(
        "IMPORTANT: The file content has been truncated.\nStatus: Showing lines {first}-{until} of {total} total lines."
    );
    if cut_lines > 0 {
        header.push_str(&format!(" {cut_lines} of them were cut at {LINE_CHARS_MAX} characters."));
    }
    if until < end {
        header.push_str(&format!("\nAction: To read on, call read_file again with start_line: {}.", until + 1));
    }
    let text = format!("{header}\n\n--- FILE CONTENT (truncated) ---\n{shown}");
    ToolOutput { text, summary, display, ..ToolOutput::default() }
}
