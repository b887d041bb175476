//! Context files below the working folder: what does a person want known about this part of the tree?
//!
//! They are not read when a session begins, as there may be hundreds. The first time that a file tool touches a path below
//! one, its text goes behind the tool's result. Source: runtime specification §18.2.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_tools::{
    ConfirmationDetails, DeclarativeTool, ExecutionContext, Invocation, Kind, Location, ToolFailure, ToolOutput,
};
use serde_json::Value;

use crate::context_files::{ContextFile, read};
use crate::instructions::render_context;

/// The tools whose paths count.
const TOOLS: [&str; 4] = ["list_directory", "read_file", "replace", "write_file"];
// Beyond this, context crowds out the work. Over a whole session.
const BYTES_MAX: usize = 256 << 10;
// A path with more folders than this has no meaning for a person.
const DEPTH_MAX: usize = 64;

/// The context files of one session's tree, and which of them were told.
pub(crate) struct NearContext {
    root: PathBuf,
    names: Vec<String>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Folders that were looked at: at most those that tools touched.
    folders: HashSet<PathBuf>,
    bytes: usize,
}

impl NearContext {
    /// Files of these names below `root`, which is a real path.
    pub(crate) fn new(root: PathBuf, names: Vec<String>) -> Arc<Self> {
        Arc::new(Self { root, names, told: Mutex::default() })
    }

    /// `tool`, with context behind its results if it is one of those whose paths count.
    pub(crate) fn around(self: &Arc<Self>, tool: Arc<dyn DeclarativeTool>) -> Arc<dyn DeclarativeTool> {
        if !TOOLS.contains(&tool.name()) {
            return tool;
        }
        Arc::new(WithContext { inner: tool, near: Arc::clone(self) })
    }

    /// What there is to tell about these paths. Blocks on the disk.
    fn tell(&self, locations: &[Location]) -> String {
        let mut files = Vec::new();
        for location in locations {
            let path = Path::new(&location.path);
            let folder = if path.is_dir() { Some(path) } else { path.parent() };
            let Some(folder) = folder.filter(|folder| folder.starts_with(&self.root)) else { continue };
            let mut folders: Vec<&Path> =
                folder.ancestors().take_while(|folder| *folder != self.root).take(DEPTH_MAX).collect();
            folders.reverse();
            for folder in folders {
                self.of_folder(folder, &mut files);
            }
        }
        render_context(&files)
    }

    fn of_folder(&self, folder: &Path, files: &mut Vec<ContextFile>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.folders.insert(folder.to_owned()) {
            return;
        }
        let mut seen = HashSet::new();
        for path in self.names.iter().map(|name| folder.join(name)) {
            // A link may lead to its neighbour, but not out of the tree.
            let Ok(real) = path.canonicalize() else { continue };
            if !real.starts_with(&self.root) || !real.is_file() || !seen.insert(real) {
                continue;
            }
            match read(&path) {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) if told.bytes + text.len() > BYTES_MAX => {
                    tracing::warn!(path = %path.display(), "a context file is left out: there is no room for more");
                }
                Ok(text) => {
                    told.bytes += text.len();
                    files.push(ContextFile { path, text });
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "a context file can't be read"),
            }
        }
    }
}

struct WithContext {
    inner: Arc<dyn DeclarativeTool>,
    near: Arc<NearContext>,
}

impl DeclarativeTool for WithContext {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn display_name(&self) -> &str {
        self.inner.display_name()
    }

    fn kind(&self) -> Kind {
        self.inner.kind()
    }

    fn declaration(&self, model: &str) -> FunctionDeclaration {
        self.inner.declaration(model)
    }

    fn parallelizable(&self) -> bool {
        self.inner.parallelizable()
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let inner = self.inner.build(args)?;
        Ok(Arc::new(Call { inner, near: Arc::clone(&self.near) }))
    }
}

struct Call {
    inner: Arc<dyn Invocation>,
    near: Arc<NearContext>,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        self.inner.description()
    }

    fn locations(&self) -> Vec<Location> {
        self.inner.locations()
    }

    fn demand(&self) -> Option<String> {
        self.inner.demand()
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        self.inner.confirmation().await
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let mut output = self.inner.execute(cx).await?;
        let (near, locations) = (Arc::clone(&self.near), self.inner.locations());
        // Without it the result is still one.
        let context = tokio::task::spawn_blocking(move || near.tell(&locations)).await.unwrap_or_default();
        output.text.push_str(&context);
        Ok(output)
    }
}
