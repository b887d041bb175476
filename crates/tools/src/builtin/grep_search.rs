//! `grep_search`: which lines match?
//!
//! The search itself is ripgrep's, as a library. It runs on a blocking thread and looks at the clock and at
//! cancellation with every file and every block of a file.

mod search;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use grep_regex::RegexMatcherBuilder;
use regex::RegexBuilder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::files;
use crate::{
    Access, DeclarativeTool, ErrorType, ExecutionContext, FileFiltering, Invocation, Kind, Location, ResultDisplay,
    ToolFailure, ToolOutput, Workspace, params,
};
use search::{FileMatches, Found, Line, Query, Stopped};

const NAME: &str = "grep_search";
// Source of both: runtime specification §13.3.
const TIME_MAX: Duration = Duration::from_secs(30);
const MATCHES_MAX: usize = 100;
// What a model may ask for at most.
const MATCHES_CEILING: usize = 20_000;
const CONTEXT_MAX: usize = 100;
// So few matches that their surroundings are likely wanted next.
const FEW_MATCHES: usize = 3;
const FEW_CONTEXT: usize = 5;

/// The tool.
pub struct GrepSearch {
    workspace: Arc<Workspace>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    pattern: String,
    #[serde(default)]
    dir_path: Option<String>,
    #[serde(default)]
    include_pattern: Option<String>,
    #[serde(default)]
    exclude_pattern: Option<String>,
    #[serde(default)]
    names_only: Option<bool>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    max_matches_per_file: Option<u64>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    total_max_matches: Option<u64>,
    #[serde(default)]
    case_sensitive: Option<bool>,
    #[serde(default)]
    fixed_strings: Option<bool>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    context: Option<u64>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    after: Option<u64>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    before: Option<u64>,
    #[serde(default)]
    no_ignore: Option<bool>,
}

impl GrepSearch {
    /// Files of `workspace`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>) -> Self {
        let count = |description: &str| json!({"type": "integer", "minimum": 0, "description": description});
        let at_least_one = |description: &str| json!({"type": "integer", "minimum": 1, "description": description});
        let flag = |description: &str| json!({"type": "boolean", "description": description});
        let text = |description: &str| json!({"type": "string", "description": description});
        let schema = json!({
            "type": "object",
            "properties": {
                "pattern": text("A regular expression in Rust's syntax, matched line by line."),
                "dir_path": text("The folder or file to search. By default all folders of the workspace."),
                "include_pattern": text("A glob of the files to search, such as `*.rs` or `src/**/*.{ts,tsx}`."),
                "exclude_pattern": text("A regular expression; lines that match it too are left out."),
                "names_only": flag("Whether only the names of files with matches are wanted."),
                "max_matches_per_file": at_least_one("At most so many matches of each file."),
                "total_max_matches": at_least_one("At most so many matches in all; 100 by default."),
                "case_sensitive": flag("Whether case counts; by default not."),
                "fixed_strings": flag("Whether the pattern is plain text rather than a regular expression."),
                "context": count("Lines to show around each match."),
                "after": count("Lines to show after each match."),
                "before": count("Lines to show before each match."),
                "no_ignore": flag("Whether to search files, too, that .gitignore leaves out."),
            },
            "required": ["pattern"],
        });
        Self { workspace, schema }
    }
}

impl DeclarativeTool for GrepSearch {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "SearchText"
    }

    fn kind(&self) -> Kind {
        Kind::Search
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Searches the content of files for a regular expression and returns matching lines with file \
                          and line number. Fast; respects ignore files. At most 100 matches unless told otherwise."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        if params.pattern.is_empty() {
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, "params/pattern must not be empty"));
        }
        let query = query(&params, self.workspace.filtering())?;
        let targets = targets(&self.workspace, &params)?;
        Ok(Arc::new(Call { workspace: Arc::clone(&self.workspace), params, query, targets }))
    }
}

fn query(params: &Params, filtering: FileFiltering) -> Result<Query, ToolFailure> {
    let invalid = |what: &str, error: &dyn std::fmt::Display| {
        ToolFailure::new(ErrorType::InvalidToolParams, format!("params/{what} can't be used: {error}"))
    };
    let case_insensitive = params.case_sensitive != Some(true);
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(case_insensitive)
        .fixed_strings(params.fixed_strings == Some(true))
        .line_terminator(Some(b'\n'))
        .build(&params.pattern)
        .map_err(|error| invalid("pattern", &error))?;
    let exclude = match &params.exclude_pattern {
        Some(pattern) => Some(
            RegexBuilder::new(pattern)
                .case_insensitive(case_insensitive)
                .build()
                .map_err(|error| invalid("exclude_pattern", &error))?,
        ),
        None => None,
    };
    let include = match &params.include_pattern {
        Some(pattern) => Some(include(pattern).map_err(|error| invalid("include_pattern", &error))?),
        None => None,
    };
    let context = params.context.unwrap_or(0);
    let lines = |lines: Option<u64>| usize::try_from(lines.unwrap_or(context)).unwrap_or(CONTEXT_MAX).min(CONTEXT_MAX);
    let limit = |limit: Option<u64>| limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let names_only = params.names_only == Some(true);
    Ok(Query {
        matcher,
        exclude,
        include,
        before: lines(params.before),
        after: lines(params.after),
        per_file_max: if names_only { Some(1) } else { limit(params.max_matches_per_file) },
        total_max: limit(params.total_max_matches).unwrap_or(MATCHES_MAX).min(MATCHES_CEILING),
        // What agents are not to see is no business of theirs to lift.
        respect: FileFiltering { git: filtering.git && params.no_ignore != Some(true), ..filtering },
    })
}

/// A pattern without a slash is about names, one with a slash about paths.
fn include(pattern: &str) -> Result<GlobSet, globset::Error> {
    let pattern = pattern.trim().trim_start_matches("./").trim_start_matches('/');
    let mut set = GlobSetBuilder::new();
    set.add(GlobBuilder::new(pattern).literal_separator(true).build()?);
    if !pattern.contains('/') {
        set.add(GlobBuilder::new(&format!("**/{pattern}")).literal_separator(true).build()?);
    }
    set.build()
}

fn targets(workspace: &Workspace, params: &Params) -> Result<Vec<PathBuf>, ToolFailure> {
    match params.dir_path.as_deref().filter(|path| !path.trim().is_empty()) {
        Some(path) => Ok(vec![workspace.resolve(path, Access::Read)?.as_path().to_path_buf()]),
        None => Ok(workspace.roots().to_vec()),
    }
}

struct Call {
    workspace: Arc<Workspace>,
    params: Params,
    query: Query,
    targets: Vec<PathBuf>,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let mut text = format!("'{}'", self.params.pattern);
        if let Some(include) = &self.params.include_pattern {
            text.push_str(&format!(" in {include}"));
        }
        if let Some(folder) = &self.params.dir_path {
            text.push_str(&format!(" within {folder}"));
        }
        text
    }

    fn locations(&self) -> Vec<Location> {
        self.targets.iter().map(|path| Location { path: path.display().to_string(), line: None }).collect()
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let targets = targets(&self.workspace, &self.params)?;
        if let Some(missing) = targets.iter().find(|target| !target.exists()) {
            let message = format!("Search path not found: {}", missing.display());
            return Err(ToolFailure::new(ErrorType::SearchPathNotFound, message));
        }
        if self.params.dir_path.is_some()
            && let Some(target) = targets.iter().find(|target| target.is_file())
        {
            files::refuse_ignored(&self.workspace, target, self.query.respect)?;
        }
        let deadline = Instant::now() + TIME_MAX;
        let found = self.search(targets.clone(), self.query.clone(), deadline, cx).await?;
        let asked_for_context = self.params.context.or(self.params.before).or(self.params.after).is_some();
        let names_only = self.params.names_only == Some(true);
        let few = (1..=FEW_MATCHES).contains(&found.matches) && found.stopped.is_none();
        let found = if few && !names_only && !asked_for_context {
            let files = found.files.iter().map(|file| file.path.clone()).collect();
            let query = Query { before: FEW_CONTEXT, after: FEW_CONTEXT, include: None, ..self.query.clone() };
            self.search(files, query, deadline, cx).await?
        } else {
            found
        };
        Ok(self.report(&found, names_only))
    }
}

impl Call {
    async fn search(
        &self,
        targets: Vec<PathBuf>,
        query: Query,
        deadline: Instant,
        cx: &ExecutionContext,
    ) -> Result<Found, ToolFailure> {
        let cancel = cx.cancel.clone();
        let searched = tokio::task::spawn_blocking(move || search::run(&targets, &query, deadline, &cancel)).await;
        match searched {
            Ok(Found { stopped: Some(Stopped::Cancelled), .. }) => {
                Err(ToolFailure::cancelled("The search was cancelled before it was done."))
            }
            Ok(found) => Ok(found),
            Err(_) => Err(ToolFailure::new(ErrorType::GrepExecutionError, "The search was interrupted")),
        }
    }

    fn report(&self, found: &Found, names_only: bool) -> ToolOutput {
        let place = match &self.params.dir_path {
            Some(path) => format!("in path \"{path}\""),
            None if self.targets.len() > 1 => format!("across {} workspace directories", self.targets.len()),
            None => "in the workspace directory".to_owned(),
        };
        let filter =
            self.params.include_pattern.as_ref().map(|glob| format!(" (filter: \"{glob}\")")).unwrap_or_default();
        let limited = match found.stopped {
            Some(Stopped::Limit) => format!(" (results limited to {} matches)", found.matches),
            Some(Stopped::Time) => format!(" (stopped after {} seconds, there may be more)", TIME_MAX.as_secs()),
            Some(Stopped::Cancelled) | None => String::new(),
        };
        let pattern = &self.params.pattern;
        if found.matches == 0 {
            let text = format!("No matches found for pattern \"{pattern}\" {place}{filter}.{limited}");
            return ToolOutput { summary: Some("No matches found".to_owned()), ..ToolOutput::text(text) };
        }
        let (mut text, summary);
        if names_only {
            let count = found.files.len();
            text = format!("Found {count} file(s) with matches for pattern \"{pattern}\" {place}{filter}{limited}:");
            for file in &found.files {
                text.push('\n');
                text.push_str(&self.workspace.shorten(&file.path));
            }
            summary = format!("Found {count} file(s){limited}");
        } else {
            let noun = if found.matches == 1 { "match" } else { "matches" };
            text = format!("Found {} {noun} for pattern \"{pattern}\" {place}{filter}{limited}:\n---\n", found.matches);
            for file in &found.files {
                self.append(&mut text, file);
            }
            text.truncate(text.trim_end().len());
            summary = format!("Found {} {noun}{limited}", found.matches);
        }
        ToolOutput {
            text,
            display: ResultDisplay::Text(summary.clone()),
            summary: Some(summary),
            ..ToolOutput::default()
        }
    }

    fn append(&self, text: &mut String, file: &FileMatches) {
        text.push_str(&format!("File: {}\n", self.workspace.shorten(&file.path)));
        let mut previous = None;
        for Line { number, is_match, text: line } in &file.lines {
            if previous.is_some_and(|previous| previous + 1 < *number) && (self.query.before + self.query.after) > 0 {
                text.push_str("...\n");
            }
            previous = Some(*number);
            text.push_str(&format!("L{number}{} {line}\n", if *is_match { ':' } else { '-' }));
        }
        text.push_str("---\n");
    }
}
