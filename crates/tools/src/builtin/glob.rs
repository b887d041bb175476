//! `glob`: which files have names like this?

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::walk::walk;
use crate::{
    Access, DeclarativeTool, ErrorType, ExecutionContext, FileFiltering, Invocation, Kind, Location, ResultDisplay,
    ToolFailure, ToolOutput, Workspace, params,
};

const NAME: &str = "glob";
// About as many paths as fit into what is cut elsewhere; a narrower pattern is the better answer.
const PATHS_MAX: usize = 1000;
// Files are remembered in order to be sorted: 200 000 paths are some 20 MB.
const FOUND_MAX: usize = 200_000;
// Counting what was ignored is a courtesy, and ignored folders are large.
const IGNORED_VISITS_MAX: usize = 20_000;
const RECENT: Duration = Duration::from_secs(24 * 60 * 60);

/// The tool.
pub struct GlobFiles {
    workspace: Arc<Workspace>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    pattern: String,
    #[serde(default)]
    dir_path: Option<String>,
    #[serde(default)]
    case_sensitive: Option<bool>,
    #[serde(default)]
    respect_git_ignore: Option<bool>,
    #[serde(default)]
    respect_gemini_ignore: Option<bool>,
}

impl GlobFiles {
    /// Files of `workspace`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "Such as `**/*.rs` or `docs/*.md`."},
                "dir_path": {
                    "type": "string",
                    "description": "The folder to search. By default all folders of the workspace.",
                },
                "case_sensitive": {"type": "boolean", "description": "Whether case counts; by default not."},
                "respect_git_ignore": {"type": "boolean", "description": "Whether .gitignore counts; by default yes."},
                "respect_gemini_ignore": {
                    "type": "boolean",
                    "description": "Whether .geminiignore and .convokeignore count; by default yes.",
                },
            },
            "required": ["pattern"],
        });
        Self { workspace, schema }
    }
}

impl DeclarativeTool for GlobFiles {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "FindFiles"
    }

    fn kind(&self) -> Kind {
        Kind::Search
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Finds files by a glob pattern and returns absolute paths: those changed within a day first, \
                          newest first, then the others by name."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        let invalid = |message: String| ToolFailure::new(ErrorType::InvalidToolParams, message);
        let pattern = params.pattern.trim();
        if pattern.is_empty() {
            return Err(invalid("params/pattern must not be empty".to_owned()));
        }
        let matcher = GlobBuilder::new(pattern.strip_prefix("./").unwrap_or(pattern))
            .literal_separator(true)
            .case_insensitive(params.case_sensitive != Some(true))
            .build()
            .map_err(|error| invalid(format!("params/pattern is no glob: {error}")))?
            .compile_matcher();
        let folders = folders(&self.workspace, &params)?;
        Ok(Arc::new(Call { workspace: Arc::clone(&self.workspace), params, matcher, folders }))
    }
}

fn folders(workspace: &Workspace, params: &Params) -> Result<Vec<PathBuf>, ToolFailure> {
    match params.dir_path.as_deref().filter(|path| !path.trim().is_empty()) {
        Some(folder) => Ok(vec![workspace.resolve(folder, Access::Read)?.as_path().to_path_buf()]),
        None => Ok(workspace.roots().to_vec()),
    }
}

struct Call {
    workspace: Arc<Workspace>,
    params: Params,
    matcher: GlobMatcher,
    folders: Vec<PathBuf>,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        match &self.params.dir_path {
            Some(folder) => format!("'{}' within {folder}", self.params.pattern),
            None => format!("'{}'", self.params.pattern),
        }
    }

    fn locations(&self) -> Vec<Location> {
        self.folders.iter().map(|path| Location { path: path.display().to_string(), line: None }).collect()
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let folders = folders(&self.workspace, &self.params)?;
        if let Some(folder) = folders.iter().find(|folder| !folder.is_dir()) {
            let kind = if folder.exists() { ErrorType::SearchPathNotADirectory } else { ErrorType::SearchPathNotFound };
            return Err(ToolFailure::new(kind, format!("Search path is not a directory: {}", folder.display())));
        }
        let within = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        let respect =
            self.workspace.filtering().with(self.params.respect_git_ignore, self.params.respect_gemini_ignore);
        let matcher = self.matcher.clone();
        let cancel = cx.cancel.clone();
        let found = tokio::task::spawn_blocking(move || find(&folders, respect, &matcher, &cancel)).await;
        if cx.cancel.is_cancelled() {
            return Err(ToolFailure::cancelled("The search was cancelled before it was done."));
        }
        let Ok(found) = found else {
            return Err(ToolFailure::new(ErrorType::GlobExecutionError, "The search was interrupted"));
        };
        Ok(report(&self.params.pattern, &within, found))
    }
}

struct Found {
    files: Vec<(PathBuf, SystemTime)>,
    ignored: usize,
    ignored_is_exact: bool,
    stopped: bool,
}

fn find(folders: &[PathBuf], respect: FileFiltering, matcher: &GlobMatcher, cancel: &CancellationToken) -> Found {
    let mut found = Found { files: Vec::new(), ignored: 0, ignored_is_exact: true, stopped: false };
    for folder in folders {
        for entry in walk(folder, respect).build().flatten() {
            if cancel.is_cancelled() {
                return found;
            }
            if !is_match(&entry, folder, matcher) {
                continue;
            }
            if found.files.len() == FOUND_MAX {
                found.stopped = true;
                break;
            }
            let modified = entry.metadata().ok().and_then(|meta| meta.modified().ok());
            found.files.push((entry.into_path(), modified.unwrap_or(SystemTime::UNIX_EPOCH)));
        }
    }
    if respect.git || respect.own {
        let all = FileFiltering { git: false, own: false };
        let mut visits = 0;
        let mut everything = 0_usize;
        'count: for folder in folders {
            for entry in walk(folder, all).build().flatten() {
                visits += 1;
                if visits > IGNORED_VISITS_MAX || cancel.is_cancelled() {
                    found.ignored_is_exact = false;
                    break 'count;
                }
                everything += usize::from(is_match(&entry, folder, matcher));
            }
        }
        found.ignored = everything.saturating_sub(found.files.len());
    }
    found
}

fn is_match(entry: &ignore::DirEntry, folder: &Path, matcher: &GlobMatcher) -> bool {
    if entry.file_type().is_none_or(|kind| kind.is_dir()) {
        return false;
    }
    let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
    // An absolute pattern is one of an absolute path.
    matcher.is_match(relative) || (matcher.glob().glob().starts_with('/') && matcher.is_match(entry.path()))
}

fn report(pattern: &str, within: &str, found: Found) -> ToolOutput {
    let Found { mut files, ignored, ignored_is_exact, stopped } = found;
    let ignored_note = match (ignored, ignored_is_exact) {
        (0, _) => String::new(),
        (count, true) => format!(" ({count} additional files were ignored)"),
        (count, false) => format!(" (at least {count} additional files were ignored)"),
    };
    if files.is_empty() {
        let text = format!("No files found matching pattern \"{pattern}\" within {within}{ignored_note}");
        return ToolOutput { summary: Some("No files found".to_owned()), ..ToolOutput::text(text) };
    }
    sort(&mut files, SystemTime::now());
    let count = files.len();
    let more_than = if stopped { "More than " } else { "" };
    let mut text = format!(
        "Found {more_than}{count} file(s) matching \"{pattern}\" within {within}{ignored_note}, recently modified first:"
    );
    for (path, _) in files.iter().take(PATHS_MAX) {
        text.push('\n');
        text.push_str(&path.to_string_lossy());
    }
    if count > PATHS_MAX {
        text.push_str(&format!("\n... and {} more; use a narrower pattern", count - PATHS_MAX));
    }
    let summary = format!("Found {count} matching file(s){ignored_note}");
    ToolOutput { text, display: ResultDisplay::Text(summary.clone()), summary: Some(summary), ..ToolOutput::default() }
}

fn sort(files: &mut [(PathBuf, SystemTime)], now: SystemTime) {
    // A file from the future is recent.
    let is_recent = |time: &SystemTime| now.duration_since(*time).map_or(true, |age| age < RECENT);
    files.sort_by(|(path_a, time_a), (path_b, time_b)| match (is_recent(time_a), is_recent(time_b)) {
        (true, true) => time_b.cmp(time_a).then_with(|| path_a.cmp(path_b)),
        (true, false) => std::cmp::Ordering::Less,
        (false, true) => std::cmp::Ordering::Greater,
        (false, false) => path_a.cmp(path_b),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_files_come_first_and_the_rest_by_name() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000_000);
        let at = |age: u64| now - Duration::from_secs(age);
        let day = RECENT.as_secs();
        let mut files: Vec<(PathBuf, SystemTime)> =
            [("z-old", at(day * 9)), ("a-old", at(day)), ("m-new", at(60)), ("n-new", at(5)), ("a-new", at(60))]
                .map(|(name, time)| (name.into(), time))
                .to_vec();
        sort(&mut files, now);
        let names: Vec<_> = files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        assert_eq!(names, ["n-new", "a-new", "m-new", "a-old", "z-old"]);
    }
}
