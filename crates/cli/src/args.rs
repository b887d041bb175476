//! The command line. A dictionary: one flag per entry.

mod agents;
mod hooks;
mod mcp;
mod serve;
mod sessions;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use convoke_protocol::ApprovalMode;

pub(crate) use agents::{AgentsArgs, AgentsCommand};
pub(crate) use hooks::{HooksArgs, HooksCommand};
pub(crate) use mcp::{McpAddArgs, McpArgs, McpCommand, McpLoginArgs, ScopeArg, TransportArg};
pub(crate) use serve::{IsolationArg, LimitArgs, ServeArgs};
pub(crate) use sessions::SessionArgs;

const EXAMPLES: &str = "\
Examples:
  convoke demo                                  try everything, no key needed
  convoke -p \"explain this repository\"          one prompt, answer on stdout
  git diff | convoke -p \"review this\"           stdin goes before the prompt
  convoke -p \"list the tests\" -o stream-json    one JSON object per line
  convoke serve                                 share a session with other clients
  convoke acp                                   serve an editor over stdio
  convoke attach --stdio http://127.0.0.1:4170  a seat at a daemon's session, for an editor

A model:
  GEMINI_API_KEY                                the Gemini API
  OPENAI_API_KEY [OPENAI_BASE_URL OPENAI_MODEL] OpenAI, or anything that speaks its API
  ANTHROPIC_API_KEY ANTHROPIC_MODEL             Anthropic
  OPENAI_BASE_URL OPENAI_MODEL                  a local server: Ollama, vLLM, llama.cpp
  \"providers\" in settings.json                any of these by a name of your own, and Vertex AI
  convoke models                                what is reachable, which one a prompt would use, and why";

/// A coding agent that several people and programs can share.
#[derive(Debug, Parser)]
#[command(name = "convoke", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true, disable_version_flag = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long = "version", action = clap::ArgAction::Version)]
    _version: Option<bool>,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve the agent to one editor over stdio (Agent Client Protocol)
    Acp(AgentArgs),
    /// Share sessions of an agent with many clients over HTTP
    Serve(Box<ServeArgs>),
    /// Give an editor a seat at a session of a daemon, over stdio (Agent Client Protocol)
    #[command(after_help = ATTACH)]
    Attach(AttachArgs),
    /// List the models that can be reached, and say which one a prompt would use
    Models(ModelsArgs),
    /// List the subagents, or agree to one that a folder brought along
    Agents(AgentsArgs),
    /// List the commands that settings run around prompts and tools, agree to a project's, or take over those of Claude Code
    Hooks(HooksArgs),
    /// Add, remove, list and test servers of the Model Context Protocol
    Mcp(McpArgs),
    /// Install, list, update and uninstall extensions
    Extensions(ExtensionsArgs),
    /// Say what may be done without asking, and by which rule
    Policy(Box<PolicyArgs>),
    /// Try it: daemon, page and agent in a fresh workspace, with a scripted model
    Demo(DemoArgs),
}

const ATTACH: &str = "\
With --session the editor's first new session is that one: what was said in it before is shown, and everybody in it sees
what the editor does. Without, each new session is the editor's own, which others can join by its id. An editor that
loads sessions by itself (session/load) can load any of the daemon.

A connection that is lost is looked for during a minute; open requests are answered with an error, and the sessions are
resumed. The token comes from --token-file, else from QWEN_SERVER_TOKEN or CONVOKE_TOKEN, else, for a daemon of this
machine, from the file that it leaves in .convoke/run/serve-token.";

/// A seat at a daemon.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Where the daemon is, such as http://127.0.0.1:4170 or wss://team.example/acp
    #[arg(value_name = "URL")]
    pub(crate) url: String,

    /// Speak with the editor on stdin and stdout, the only way there is
    #[arg(long, required = true)]
    pub(crate) stdio: bool,

    /// Join this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,

    /// A file with the daemon's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Extensions of the user's.
#[derive(Debug, Args)]
pub(crate) struct ExtensionsArgs {
    #[command(subcommand)]
    pub(crate) command: ExtensionsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExtensionsCommand {
    /// Copy an extension from a folder, after a yes on stdin
    Install {
        /// The folder, with a gemini-extension.json
        #[arg(value_name = "PATH")]
        source: String,

        /// Say yes here
        #[arg(long)]
        consent: bool,
    },
    /// Say which are installed
    List,
    /// Copy an extension again, if its source has another version
    Update {
        #[arg(value_name = "NAME", required_unless_present = "all")]
        name: Option<String>,

        /// Every one of them
        #[arg(long)]
        all: bool,
    },
    /// Remove an extension
    Uninstall {
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// One prompt without a terminal.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// What to do; text on stdin goes before it
    #[arg(value_name = "PROMPT", conflicts_with = "prompt")]
    pub(crate) query: Vec<String>,

    /// What to do
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// How to answer
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output_format: Option<OutputFormat>,

    /// How the prompt comes: text on stdin, or one JSON object a line, which may go on while the agent works
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) input_format: InputFormat,

    /// What to do where a call would need somebody's approval
    #[arg(long, value_enum, value_name = "WHAT", default_value = "deny")]
    pub(crate) on_ask: OnAsk,

    /// How long a question waits with --on-ask wait
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) on_ask_timeout: u64,

    /// What to begin with in a terminal (there is none yet)
    #[arg(short = 'i', long, value_name = "TEXT", conflicts_with = "prompt")]
    pub(crate) prompt_interactive: Option<String>,

    /// Output for screen readers; output without a terminal always is
    #[arg(long)]
    pub(crate) screen_reader: bool,

    /// Keep escape sequences in text output
    #[arg(long)]
    pub(crate) raw_output: bool,

    #[arg(long, hide = true)]
    pub(crate) accept_raw_output_risk: bool,

    /// Use this session id
    #[arg(long, value_name = "UUID")]
    pub(crate) session_id: Option<String>,

    /// Work in a Git worktree of this repository, a new one unless there is one of that name
    #[arg(short, long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", conflicts_with = "acp")]
    pub(crate) worktree: Option<String>,

    /// Say which extensions are installed, and end
    #[arg(short, long)]
    pub(crate) list_extensions: bool,

    /// Serve an editor over stdio, as `convoke acp` does
    #[arg(long, alias = "experimental-acp", conflicts_with_all = ["query", "prompt"])]
    pub(crate) acp: bool,

    #[command(flatten)]
    pub(crate) sessions: SessionArgs,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// The agent, wherever it runs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AgentArgs {
    /// The model to use
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// What may be done without asking
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) approval_mode: Option<ApprovalArg>,

    /// Allow everything without asking, as --approval-mode=yolo does
    #[arg(short, long, conflicts_with = "approval_mode")]
    pub(crate) yolo: bool,

    /// Tools that run without asking, such as read_file or run_shell_command(git status)
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    pub(crate) allowed_tools: Vec<String>,

    /// The only MCP servers to use
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) allowed_mcp_server_names: Option<Vec<String>>,

    /// Policy files or folders, in place of the user's own
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub(crate) policy: Vec<PathBuf>,

    /// Policy files or folders of the administrator, where the system has none
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    pub(crate) admin_policy: Vec<PathBuf>,

    /// Further folders to work in
    #[arg(long, value_name = "FOLDER", value_delimiter = ',')]
    pub(crate) include_directories: Vec<PathBuf>,

    /// Confine commands: they write only in the workspace, without the network. true, false, landlock or bwrap
    #[arg(short, long, value_name = "WITH", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) sandbox: Option<String>,

    /// Use these extensions only; "none" for none
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) extensions: Vec<String>,

    /// Trust this folder for this run
    #[arg(long)]
    pub(crate) skip_trust: bool,

    /// Say more on stderr
    #[arg(short, long)]
    pub(crate) debug: bool,

    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) fake_responses: Option<PathBuf>,

    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) fake_responses_non_strict: Option<PathBuf>,

    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) record_responses: Option<PathBuf>,

    /// The model is the story that is embedded for the demo.
    #[arg(long, hide = true)]
    pub(crate) embedded_story: bool,
}

/// The policy.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,

    /// As if there were nobody to ask
    #[arg(long, global = true)]
    pub(crate) headless: bool,

    /// In this mode
    #[arg(long, alias = "approval-mode", value_enum, value_name = "MODE", global = true)]
    pub(crate) mode: Option<ApprovalArg>,

    /// Policy files or folders, in place of the user's own
    #[arg(long, value_name = "PATH", value_delimiter = ',', global = true)]
    pub(crate) policy: Vec<PathBuf>,

    /// Policy files or folders of the administrator, where the system has none
    #[arg(long, value_name = "PATH", value_delimiter = ',', global = true)]
    pub(crate) admin_policy: Vec<PathBuf>,

    /// Tools that run without asking
    #[arg(long, value_name = "TOOL", value_delimiter = ',', global = true)]
    pub(crate) allowed_tools: Vec<String>,

    /// Trust this folder
    #[arg(long, global = true)]
    pub(crate) skip_trust: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// What would happen to a command, or to any call with --tool and --args, and by which rule
    Explain {
        /// The command; quote it if it has operators in it
        #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,

        /// The tool that is called
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,

        /// Its arguments
        #[arg(long, value_name = "JSON")]
        args: Option<String>,

        /// The MCP server that the tool is of; --tool is then what the server calls it
        #[arg(long, value_name = "NAME", requires = "tool")]
        server: Option<String>,

        /// What the tool says of itself, such as {"readOnlyHint": true}
        #[arg(long, value_name = "JSON", requires = "tool")]
        annotations: Option<String>,

        /// The subagent that calls
        #[arg(long, value_name = "NAME")]
        subagent: Option<String>,
    },
    /// All rules, in the order in which they are asked
    List,
    /// Judge the calls in a file, and tell which ones are judged otherwise than it says
    Test {
        /// The file; docs/policy.md says what is in it
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// The list of models.
#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    /// Answer as one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// The demo.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Three clients act the story out and print a transcript, without a page
    #[arg(long)]
    pub(crate) script: bool,

    /// Don't open a browser
    #[arg(long)]
    pub(crate) no_open: bool,

    /// Port to listen on; 0 for any
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer
    Text,
    /// One JSON object at the end
    Json,
    /// One JSON object per event
    StreamJson,
}

impl OutputFormat {
    /// As it is spelled on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::StreamJson => "stream-json",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::from_str(text, false).ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// The prompt as it is
    Text,
    /// Messages, and answers to questions
    StreamJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnAsk {
    /// Refuse the call and go on
    Deny,
    /// End the run with exit code 46
    Fail,
    /// Write a question, and wait for its answer on stdin; needs stream-json both ways
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalArg {
    /// Ask before each change and command
    Default,
    /// Edit files without asking
    #[value(name = "auto_edit")]
    AutoEdit,
    /// Ask for nothing
    Yolo,
    /// Read and plan, change nothing
    Plan,
}

impl AgentArgs {
    /// The approval mode that the command line asks for.
    pub(crate) fn mode(&self) -> Option<ApprovalMode> {
        if self.yolo {
            return Some(ApprovalMode::Yolo);
        }
        self.approval_mode.map(|mode| match mode {
            ApprovalArg::Default => ApprovalMode::Default,
            ApprovalArg::AutoEdit => ApprovalMode::AutoEdit,
            ApprovalArg::Yolo => ApprovalMode::Yolo,
            ApprovalArg::Plan => ApprovalMode::Plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_rig_s_command_line_parses() {
        let cli = Cli::try_parse_from([
            "convoke",
            "--approval-mode=yolo",
            "--fake-responses",
            "r.jsonl",
            "write a file",
            "--output-format",
            "json",
        ])
        .unwrap();
        assert_eq!(cli.run.query, ["write a file"]);
        assert_eq!(cli.run.agent.mode(), Some(ApprovalMode::Yolo));
        assert_eq!(cli.run.output_format, Some(OutputFormat::Json));
    }

    #[test]
    fn contradictions_are_refused() {
        for args in [
            &["-p", "a", "b"][..],
            &["-y", "--approval-mode", "default", "x"],
            &["--acp", "-p", "x"],
            &["-r", "--session-file", "f"],
        ] {
            let args = std::iter::once(&"convoke").chain(args);
            assert_eq!(Cli::try_parse_from(args).unwrap_err().kind(), clap::error::ErrorKind::ArgumentConflict);
        }
    }
}
