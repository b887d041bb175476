//! The command line of `convoke hooks`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands that settings run around prompts and tools.
#[derive(Debug, Args)]
#[command(after_help = "\
A command that comes with a folder's settings runs only once its user agreed to it: `convoke hooks trust`, or the question
at the first prompt of an interactive session. Changed commands are new ones. See docs/hooks.md.")]
pub(crate) struct HooksArgs {
    #[command(subcommand)]
    pub(crate) command: HooksCommand,

    /// Trust this folder for this run
    #[arg(long, global = true)]
    pub(crate) skip_trust: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// What would run, when, from where, and whether it may
    List {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Agree to the commands of this folder's settings, as they are now
    Trust {
        /// Agree without being shown them first
        #[arg(long, short)]
        yes: bool,
    },
    /// Take the hooks of Claude Code over into .convoke/settings.json of this folder
    Migrate {
        /// Claude Code's settings file
        #[arg(long, value_name = "FILE", default_value = ".claude/settings.json")]
        from: PathBuf,
        /// Print what would be written, and write nothing
        #[arg(long)]
        dry_run: bool,
    },
}
