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
    /// List the subagents of this folder, with where they come from, whether those elsewhere answer, and the files that can't be used
    List {
        /// Answer as one JSON object
        #[arg(long)]
        json: bool,

        /// Seconds to wait for the cards of agents elsewhere
        #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
        wait: u64,

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
