//! `list_directory`: what is in a folder?

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::walk::walk;
use crate::{
    Access, DeclarativeTool, ErrorType, ExecutionContext, FileFiltering, Invocation, Kind, Location, ResolvedPath,
    ResultDisplay, ToolFailure, ToolOutput, Workspace, params,
};

const NAME: &str = "list_directory";
// More is no listing that anybody reads; `glob` finds single files.
const ENTRIES_MAX: usize = 2000;

/// The tool.
pub struct ListDirectory {
    workspace: Arc<Workspace>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    dir_path: String,
    #[serde(default)]
    ignore: Option<Vec<String>>,
    #[serde(default)]
    file_filtering_options: Option<Filtering>,
}

#[derive(Debug, Default, Deserialize)]
struct Filtering {
    #[serde(default)]
    respect_git_ignore: Option<bool>,
    #[serde(default)]
    respect_gemini_ignore: Option<bool>,
}

impl ListDirectory {
    /// Folders of `workspace`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "dir_path": {"type": "string", "description": "The folder to list."},
                "ignore": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Glob patterns of names to leave out.",
                },
                "file_filtering_options": {
                    "type": "object",
                    "description": "Whether ignore files count; by default they do.",
                    "properties": {
                        "respect_git_ignore": {"type": "boolean", "description": "Whether .gitignore counts."},
                        "respect_gemini_ignore": {
                            "type": "boolean",
                            "description": "Whether .geminiignore and .convokeignore count.",
                        },
                    },
                },
            },
            "required": ["dir_path"],
        });
        Self { workspace, schema }
    }
}

impl DeclarativeTool for ListDirectory {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "ReadFolder"
    }

    fn kind(&self) -> Kind {
        Kind::Search
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Lists the names of files and folders directly in a folder, folders first.".to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        let mut ignored = GlobSetBuilder::new();
        for pattern in params.ignore.iter().flatten() {
            let glob = Glob::new(pattern).map_err(|error| {
                ToolFailure::new(ErrorType::InvalidToolParams, format!("params/ignore has a bad pattern: {error}"))
            })?;
            ignored.add(glob);
        }
        let ignored = ignored.build().map_err(|error| {
            ToolFailure::new(ErrorType::InvalidToolParams, format!("params/ignore can't be used: {error}"))
        })?;
        let path = self.workspace.resolve(&params.dir_path, Access::Read)?;
        Ok(Arc::new(Call { workspace: Arc::clone(&self.workspace), params, path, ignored }))
    }
}

struct Call {
    workspace: Arc<Workspace>,
    params: Params,
    path: ResolvedPath,
    ignored: GlobSet,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        self.workspace.shorten(self.path.as_path())
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location { path: self.path.as_path().display().to_string(), line: None }]
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let folder = self.workspace.resolve(&self.params.dir_path, Access::Read)?;
        let filtering = self.params.file_filtering_options.as_ref();
        let respect = self.workspace.filtering().with(
            filtering.and_then(|options| options.respect_git_ignore),
            filtering.and_then(|options| options.respect_gemini_ignore),
        );
        let ignored = self.ignored.clone();
        let listed = tokio::task::spawn_blocking(move || list(folder.as_path(), respect, &ignored)).await;
        listed.unwrap_or_else(|_| Err(ToolFailure::new(ErrorType::LsExecutionError, "Listing was interrupted")))
    }
}

/// `true` sorts after `false`: folders are not files.
type Names = BTreeMap<(bool, OsString), Option<u64>>;

fn list(folder: &Path, respect: FileFiltering, ignored: &GlobSet) -> Result<ToolOutput, ToolFailure> {
    let name = folder.display();
    let meta = fs::metadata(folder).map_err(|error| {
        let kind = ErrorType::of_io(&error, ErrorType::LsExecutionError);
        ToolFailure::new(kind, format!("Directory not found or inaccessible: {name}: {error}"))
    })?;
    if !meta.is_dir() {
        return Err(ToolFailure::new(ErrorType::PathIsNotADirectory, format!("Path is not a directory: {name}")));
    }
    let failed = |error: std::io::Error| {
        let kind = ErrorType::of_io(&error, ErrorType::LsExecutionError);
        ToolFailure::new(kind, format!("Error listing directory {name}: {error}"))
    };
    let total = fs::read_dir(folder).map_err(failed)?.count();
    let mut names = Names::new();
    for entry in walk(folder, respect).max_depth(Some(1)).build().flatten().filter(|entry| entry.depth() == 1) {
        if ignored.is_match(entry.file_name()) {
            continue;
        }
        let is_file = !entry.file_type().is_some_and(|kind| kind.is_dir());
        let size = entry.metadata().ok().filter(|_| is_file).map(|meta| meta.len());
        names.insert((is_file, entry.file_name().to_os_string()), size);
    }
    let hidden = total.saturating_sub(names.len());
    let mut text =
        if total == 0 { format!("Directory {name} is empty.") } else { format!("Directory listing for {name}:") };
    for ((_, entry), size) in names.iter().take(ENTRIES_MAX) {
        let entry = entry.to_string_lossy();
        match size {
            Some(size) => text.push_str(&format!("\n{entry} ({size} bytes)")),
            None => text.push_str(&format!("\n[DIR] {entry}")),
        }
    }
    if names.len() > ENTRIES_MAX {
        text.push_str(&format!("\n... and {} more", names.len() - ENTRIES_MAX));
    }
    let mut summary = format!("Listed {} item(s).", names.len());
    if hidden > 0 {
        text.push_str(&format!("\n\n({hidden} ignored)"));
        summary.push_str(&format!(" ({hidden} ignored)"));
    }
    let display = ResultDisplay::Text(summary.clone());
    Ok(ToolOutput { text, display, summary: Some(summary), ..ToolOutput::default() })
}
