//! Arguments of `convoke agents`.

use clap::{Args, Subcommand};

/// The subagents.
#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    pub(crate) command: AgentsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// List the subagents of this folder, with where they come from, and the files that can't be used
    List {
        /// Answer as one JSON object
        #[arg(long)]
        json: bool,

        /// Trust this folder for this run
        #[arg(long)]
        skip_trust: bool,
    },
    /// Agree to an agent that this folder brought along, as it is now
    Acknowledge {
        /// The agent
        #[arg(value_name = "NAME")]
        name: String,

        /// Trust this folder for this run
        #[arg(long)]
        skip_trust: bool,
    },
}
