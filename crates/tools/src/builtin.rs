//! The tools that come with us: files, searches, commands. Source: runtime specification §13.
//!
//! All are stateless but for what they are given: one set of them can serve every session of a workspace, if these
//! share their [`BackgroundProcesses`].

mod activate_skill;
mod ask_user;
mod background;
mod change;
mod files;
mod glob;
mod google_web_search;
mod grep_search;
mod list_directory;
mod media;
mod plan_mode;
mod read_file;
mod read_many_files;
mod replace;
mod shell;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod update_topic;
pub(crate) mod walk;
mod web;
mod web_fetch;
mod write_file;
mod write_todos;

use std::sync::Arc;

pub use activate_skill::{ActivateSkill, Skill};
pub use ask_user::{AskUser, Choice, Question, QuestionKind, Questioner};
pub use background::{ListBackgroundProcesses, ReadBackgroundOutput};
pub use glob::GlobFiles;
pub use google_web_search::GoogleWebSearch;
pub use grep_search::GrepSearch;
pub use list_directory::ListDirectory;
pub use plan_mode::{EnterPlanMode, ExitPlanMode, ModeListener, PlanDesk};
pub use read_file::ReadFile;
pub use read_many_files::{FileContent, ReadMany, ReadManyRequest, SkippedFile, read_many};
pub use replace::Replace;
pub use shell::{RunShellCommand, ShellOptions};
pub use update_topic::{TopicListener, UpdateTopic};
pub use web::{Grounded, WebModel, WebTask};
pub use web_fetch::{WebFetch, WebOptions};
pub use write_file::WriteFile;
pub use write_todos::WriteTodos;

#[cfg(test)]
pub(crate) use walk::visible_files;

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
    vec![
        Arc::new(ListDirectory::new(Arc::clone(&workspace))),
        Arc::new(ReadFile::new(Arc::clone(&workspace))),
        Arc::new(GrepSearch::new(Arc::clone(&workspace))),
        Arc::new(GlobFiles::new(Arc::clone(&workspace))),
        Arc::new(Replace::new(Arc::clone(&workspace))),
        Arc::new(WriteFile::new(Arc::clone(&workspace))),
        Arc::new(RunShellCommand::new(workspace, shell, Arc::clone(&background))),
        Arc::new(ListBackgroundProcesses::new(Arc::clone(&background))),
        Arc::new(ReadBackgroundOutput::new(background)),
    ]
}
