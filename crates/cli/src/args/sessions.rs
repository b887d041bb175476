//! Flags about sessions that were recorded.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SessionArgs {
    /// Go on with a session of this folder: the latest, a number of --list-sessions, or an id
    #[arg(short, long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "latest")]
    #[arg(conflicts_with_all = ["session_id", "session_file"])]
    pub(crate) resume: Option<String>,

    /// Go back to before a prompt of the resumed session, by its number or id; `/rewind` as a prompt lists them
    #[arg(long, value_name = "PROMPT", requires = "resume")]
    pub(crate) rewind: Option<String>,

    /// What goes back
    #[arg(long, value_name = "WHAT", requires = "rewind", default_value = "both")]
    #[arg(value_parser = ["conversation", "files", "both"])]
    pub(crate) rewind_mode: String,

    /// Take back files that somebody else changed as well
    #[arg(long, requires = "rewind")]
    pub(crate) rewind_force: bool,

    /// Begin with the conversation of this file, which stays as it is
    #[arg(long, value_name = "FILE", conflicts_with = "session_id")]
    pub(crate) session_file: Option<PathBuf>,

    /// List the sessions of this folder
    #[arg(long)]
    pub(crate) list_sessions: bool,

    /// Delete a session of this folder: its number or its id
    #[arg(long, value_name = "SESSION")]
    pub(crate) delete_session: Option<String>,
}
