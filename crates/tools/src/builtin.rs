//! The tools that come with us: files, searches, commands. Source: runtime specification §13.

mod shell;

use std::sync::Arc;

pub use shell::{RunShellCommand, ShellOptions};

use crate::{BackgroundProcesses, DeclarativeTool, Workspace};

/// What the built-in tools are made from.
#[derive(Clone)]
pub struct BuiltinOptions {
    /// The files.
    pub workspace: Arc<Workspace>,
    /// The commands.
    pub shell: ShellOptions,
    /// The session's own background commands.
    pub background: Arc<BackgroundProcesses>,
}

/// All built-in tools, in the order in which they are declared.
#[must_use]
pub fn tools(options: BuiltinOptions) -> Vec<Arc<dyn DeclarativeTool>> {
    let BuiltinOptions { workspace, shell, background } = options;
    vec![Arc::new(RunShellCommand::new(workspace, shell, background))]
}
