//! The command line of `convoke mcp`.

use clap::{Args, Subcommand, ValueEnum};

/// Servers of the Model Context Protocol.
#[derive(Debug, Args)]
#[command(after_help = "\
Servers are kept in settings.json under \"mcpServers\"; comments in the file stay. See docs/mcp.md.

Examples:
  convoke mcp add db -- db-mcp --read-only              a child process
  convoke mcp add -t http -H \"Authorization: Bearer $T\" docs https://docs.example/mcp
  convoke mcp list                                      which are there, by really connecting
  convoke mcp login docs                                where a server wants to know who you are
  convoke mcp test db                                   what it offers")]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: McpCommand,

    /// Trust this folder for this run
    #[arg(long, global = true)]
    pub(crate) skip_trust: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add a server to settings, or replace it
    Add(Box<McpAddArgs>),
    /// Take a server out of settings
    Remove {
        #[arg(value_name = "NAME")]
        name: String,

        /// Whose settings
        #[arg(short, long, value_enum, value_name = "SCOPE", default_value = "project")]
        scope: ScopeArg,
    },
    /// Say which servers there are and which of them answer
    List {
        /// One JSON object
        #[arg(long)]
        json: bool,

        /// How long servers may take
        #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
        wait: u64,
    },
    /// Log in to a server that wants to know who you are
    Login(McpLoginArgs),
    /// Forget the token of a server
    Logout {
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Connect to a server and say what it offers
    Test {
        #[arg(value_name = "NAME")]
        name: String,

        /// One JSON object
        #[arg(long)]
        json: bool,

        /// How long the server may take
        #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
        wait: u64,
    },
}

/// A server to log in to.
#[derive(Debug, Args)]
pub(crate) struct McpLoginArgs {
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// With a code that is typed in elsewhere
    #[arg(long, conflicts_with = "browser")]
    pub(crate) device: bool,

    /// With a browser, even if the server offers codes
    #[arg(long)]
    pub(crate) browser: bool,

    /// Print the address only
    #[arg(long)]
    pub(crate) no_open: bool,

    /// The port of this machine that the browser comes back to
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// How long it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}

/// A server to add.
#[derive(Debug, Args)]
pub(crate) struct McpAddArgs {
    /// What to call it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// The program, or the address with --transport http or sse
    #[arg(value_name = "COMMAND_OR_URL")]
    pub(crate) target: String,

    /// The program's arguments; begin them with -- if they look like flags
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,

    /// Whose settings
    #[arg(short, long, value_enum, value_name = "SCOPE", default_value = "project")]
    pub(crate) scope: ScopeArg,

    /// How it is reached
    #[arg(short, long, alias = "type", value_enum, value_name = "HOW", default_value = "stdio")]
    pub(crate) transport: TransportArg,

    /// A variable of its environment; $NAME in it is read when the server starts
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,

    /// A header of each request
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,

    /// Milliseconds that a request may take without progress
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,

    /// Run its tools without asking, in a trusted folder
    #[arg(long)]
    pub(crate) trust: bool,

    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,

    /// The only tools to offer
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(crate) include_tools: Vec<String>,

    /// Tools not to offer
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(crate) exclude_tools: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    /// .convoke/settings.json of the home folder
    User,
    /// .convoke/settings.json of this folder
    Project,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportArg {
    /// A child process
    Stdio,
    /// Streamable HTTP
    Http,
    /// The event stream of old servers
    Sse,
}
