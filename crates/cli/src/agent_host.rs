//! Our agent, wired: options out of arguments and settings, for one prompt or for a client.

mod context;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use convoke_agent::{
    AgentFactory, AgentOptions, ContextFileOptions, ModelPorts, PromptOptions, SessionModel, SnapshotBounds,
};
use convoke_models::routing::RoutingOptions;
use convoke_models::{LlmOptions, connect_llm};
use convoke_protocol::{AgentInfo, ApprovalMode, ExitCode, SessionError, SessionFactory, SessionId};
use convoke_stdx::guard::Spawner;
use tokio::runtime::Runtime;
use tracing::level_filters::LevelFilter;

use crate::agents;
use crate::args::{AgentArgs, InputFormat, OnAsk, OutputFormat, RunArgs};
use crate::credentials;
use crate::extensions::{self, Extension};
use crate::failure::{Exit, complain};
use crate::headless::{self, Failure, Prompt, RunOptions};
use crate::home::folders_in;
use crate::login::Login;
use crate::settings::Settings;
use crate::startup::Startup;
use crate::telemetry::{RunConfig, Telemetry};
use crate::trust::Trust;
use crate::{hooks, logging, mcp, policies, sandbox, sessions, tool_options, worktree};

/// Who is on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Somebody who can be asked.
    Interactive,
    /// Nobody.
    Headless,
    /// Nobody, and a question ends the run: calls come as far as the question.
    Failing,
    /// A program that reads questions and writes answers.
    Asking,
}

/// How long a child may take to end by itself before it is killed.
const CHILD_GRACE: Duration = Duration::from_millis(500);

/// Children run under this very binary as their guard.
pub(crate) fn spawner() -> Spawner {
    match std::env::current_exe() {
        Ok(path) => Spawner::guarded(path, CHILD_GRACE),
        // Only if the binary was deleted while it runs; children then die with the process group alone.
        Err(_) => Spawner::unguarded(),
    }
}

/// One thread is enough: the work is waiting for a model. Tools that block have threads of their own.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::because(ExitCode::Failure, format!("start the runtime: {error}")))
}

/// Logs and telemetry of a process that runs our agent.
pub(crate) fn logging(level: LevelFilter, debug: bool, startup: &Startup, whom: Use) -> Result<logging::Logging, Exit> {
    let telemetry = Telemetry::open(startup, whom == Use::Interactive)
        .map_err(|error| Exit::because(ExitCode::Configuration, format!("{error:#}")))?;
    Ok(logging::start_telling(level, debug, &startup.environment, telemetry))
}

/// What a run is configured with, for telemetry.
pub(crate) fn run_config(args: &AgentArgs, startup: &Startup) -> RunConfig {
    let mode = args.mode().map(ApprovalMode::cli).or_else(|| startup.settings.text("general.defaultApprovalMode"));
    let servers = startup.settings.get("mcpServers").and_then(serde_json::Value::as_object);
    RunConfig {
        approval_mode: mode.unwrap_or("default").to_owned(),
        debug_mode: args.debug,
        extensions: extensions::chosen(startup, &args.extensions).0.into_iter().map(|found| found.name).collect(),
        mcp_servers: servers.into_iter().flat_map(|servers| servers.keys().cloned()).collect(),
        ..RunConfig::default()
    }
}

/// The factory of our sessions.
///
/// Without a model there are sessions all the same: a client that can be told is told when it asks for one, not by a
/// process that is gone.
pub(crate) fn factory(login: Arc<Login>, startup: &Startup, whom: Use) -> Result<Arc<dyn SessionFactory>, Exit> {
    let args = login.args();
    let settings = &startup.settings;
    let (routing, attempts) = (routing(settings), settings.integer("general.maxAttempts"));
    let logged_in = login.clone();
    let connect = move |ports: ModelPorts| {
        let choice = logged_in.choice();
        let choice = choice.as_ref().as_ref().map_err(|none| SessionError::Auth(none.to_string()))?;
        let mut options = LlmOptions::new(choice.model.as_str());
        options.catalog = choice.catalog.clone();
        options.fallback = ports.fallback;
        options.on_notice = Some(ports.on_notice);
        options.routing = routing;
        if let Some(attempts) = attempts.and_then(|attempts| u32::try_from(attempts).ok()) {
            options.retry.max_attempts = attempts.clamp(1, options.retry.max_attempts);
        }
        let llm = connect_llm(&choice.registry, options).map_err(|error| SessionError::Failed(error.to_string()))?;
        Ok(SessionModel::steered(llm).offering(choice.offered.clone()))
    };
    let turns = settings.integer("model.maxSessionTurns").and_then(|turns| u32::try_from(turns).ok());
    let info = AgentInfo {
        name: "convoke".to_owned(),
        title: "Convoke".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (extensions, warnings) = extensions::chosen(startup, &args.extensions);
    let (mcp, odd) = mcp::settings(args, startup, &extensions);
    for warning in warnings.into_iter().chain(odd) {
        complain(&format!("warning: {warning}"));
    }
    let interactive = matches!(whom, Use::Interactive | Use::Asking);
    let policies = policies::read(args, startup, whom != Use::Headless, &extensions)?;
    for warning in &policies.warnings {
        complain(&format!("warning: {warning}"));
    }
    let subagents = agents::options(startup, &extensions);
    let options = AgentOptions {
        interactive,
        policy: policies.options,
        include_directories: args.include_directories.clone(),
        home: startup.home.as_ref().map(|home| home.parent().to_owned()),
        context: ContextFileOptions {
            files: extensions.iter().flat_map(|extension| extension.context_files.clone()).collect(),
            names: settings
                .texts("context.fileName")
                .unwrap_or_else(|| ["CONVOKE.md", "AGENTS.md", "GEMINI.md"].map(ToOwned::to_owned).to_vec()),
            global_folders: startup.home.iter().flat_map(|home| home.folders()).collect(),
        },
        mcp,
        tools: tool_options::tool_options(startup, &extensions),
        prompts: prompts(startup, whom, &extensions),
        secret_variables: {
            let mut names = credentials::secret_variables(settings);
            names.extend(sandbox::redacted(settings, &startup.environment));
            names.extend(agents::remote::secret_variables(&subagents, startup));
            names
        },
        sandbox: sandbox::sandbox(args, startup)?,
        output_folder: startup.home.as_ref().map(sessions::output_folder),
        records: sessions::record_options(startup)?,
        snapshots: (settings.flag("general.checkpointing.enabled") != Some(false)).then(SnapshotBounds::default),
        client_terminals: settings.flag("tools.shell.clientTerminal").unwrap_or(false),
        shell_inactivity: settings
            .integer("tools.shell.inactivityTimeout")
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
        output_threshold: settings
            .integer("tools.truncateToolOutputThreshold")
            .map(|threshold| usize::try_from(threshold).unwrap_or(0)),
        masking: context::masking(settings),
        compression_threshold: context::compression(settings)?,
        context_trace: context::trace(args.debug, &startup.environment),
        loops: context::loops(settings),
        max_turns: turns,
        user_hooks: hooks::options(startup, &extensions),
        authenticator: Some(login),
        limits: context::limits(settings),
        subagents,
        plan_folder: settings.text("general.plan.directory").map(PathBuf::from),
        ..AgentOptions::new(info, Arc::new(connect), spawner())
    };
    Ok(Arc::new(AgentFactory::new(options)))
}

/// What prompts may be short for. A client that attaches files does it itself.
fn prompts(startup: &Startup, whom: Use, extensions: &[Extension]) -> PromptOptions {
    // Under the user's own: an extension stands for no command of the same name.
    let bring = extensions.iter().map(|extension| extension.part("commands"));
    let own = startup.home.iter().flat_map(|home| home.folders()).map(|folder| folder.join("commands"));
    PromptOptions {
        command_folders: bring.chain(own).collect(),
        // What nobody trusts brings no commands, whether trust is demanded or not.
        workspace_command_folders: match startup.trust {
            Trust::Trusted => folders_in(Path::new("")).map(|folder| folder.join("commands")).to_vec(),
            Trust::Untrusted => Vec::new(),
        },
        includes: whom != Use::Interactive,
    }
}

/// How `auto` chooses.
fn routing(settings: &Settings) -> RoutingOptions {
    let ours = RoutingOptions::default();
    let threshold = settings.integer("model.routing.threshold").and_then(|value| u8::try_from(value).ok());
    RoutingOptions {
        classify: settings.flag("model.routing.classifier").unwrap_or(ours.classify),
        threshold: threshold.filter(|value| (1..=100).contains(value)).unwrap_or(ours.threshold),
        by_phase: settings.flag("general.plan.modelRouting").unwrap_or(ours.by_phase),
        ..ours
    }
}

/// `convoke -p`.
pub(crate) fn run_headless(args: RunArgs) -> Exit {
    let workspace = args.worktree.as_deref().map(|name| worktree::enter(Path::new("."), name)).transpose();
    let begun = workspace.and_then(|workspace| Startup::read(workspace.as_deref(), args.agent.skip_trust));
    match begun.and_then(|startup| headless(args, &startup)) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn headless(args: RunArgs, startup: &Startup) -> Result<Exit, Exit> {
    if args.list_extensions {
        extensions::list(startup);
        return Ok(Exit::ok());
    }
    let logging = logging(LevelFilter::ERROR, args.agent.debug, startup, Use::Headless)?;
    let (Ok(exit) | Err(exit)) = headless_told(args, startup);
    Ok(logging.ends_with(exit))
}

fn headless_told(args: RunArgs, startup: &Startup) -> Result<Exit, Exit> {
    let format = match (args.output_format, startup.settings.text("output.format")) {
        (Some(format), _) => format,
        (None, Some(text)) => OutputFormat::parse(text).ok_or_else(|| {
            let why = format!("use output.format \"{text}\": choose text, json or stream-json");
            Exit::because(ExitCode::Configuration, why)
        })?,
        (None, None) => OutputFormat::Text,
    };
    if startup.needs_trust() {
        let why = format!(
            "{} is not a trusted folder; add it to trustedFolders.json or pass --skip-trust",
            startup.workspace.display()
        );
        return Err(Exit::because(ExitCode::Trust, why));
    }
    startup.warn();
    if let Some(exit) = sessions::instead_of_a_prompt(&args.sessions, startup)? {
        return Ok(exit);
    }
    let runtime = runtime()?;
    let end = run(args, startup, format, &runtime);
    // A read of stdin that nobody waits for any more must not hold the exit up.
    runtime.shutdown_background();
    end
}

fn run(args: RunArgs, startup: &Startup, format: OutputFormat, runtime: &Runtime) -> Result<Exit, Exit> {
    let past = sessions::past(&args.sessions, startup)?;
    let argument = args.prompt.clone().or_else(|| (!args.query.is_empty()).then(|| args.query.join(" ")));
    check_asking(&args, format)?;
    let prompt = match args.input_format {
        InputFormat::StreamJson => argument.filter(|text| !text.trim().is_empty()).map(Prompt::plain),
        InputFormat::Text if argument.is_none() && args.sessions.rewind.is_some() => None,
        InputFormat::Text => {
            let read = runtime.block_on(headless::read_prompt(argument));
            Some(read.map_err(|error| Exit::because(ExitCode::Input, error))?)
        }
    };
    let session_id = args.session_id.map(check_session_id).transpose()?;
    let whom = match args.on_ask {
        OnAsk::Deny => Use::Headless,
        OnAsk::Fail => Use::Failing,
        OnAsk::Wait => Use::Asking,
    };
    let config = RunConfig { output_format: format.name().to_owned(), ..run_config(&args.agent, startup) };
    let login = Login::new(args.agent, startup.clone());
    if let Err(none) = login.choice().as_ref() {
        let id = session_id.unwrap_or_else(|| SessionId(uuid::Uuid::new_v4().to_string()));
        return Ok(headless::refuse(format, &id, Failure::before_the_run(none, none.exit)).into());
    }
    let factory = factory(Arc::new(login), startup, whom)?;
    let options = RunOptions {
        first: sessions::first(&args.sessions).map(Prompt::plain),
        prompt,
        cwd: startup.workspace.clone(),
        session_id,
        input: args.input_format,
        on_ask: args.on_ask,
        patience: Duration::from_secs(args.on_ask_timeout),
        past,
        format,
        raw_output: args.raw_output,
        warnings: startup.warnings.clone(),
        config,
    };
    Ok(runtime.block_on(headless::run(factory.as_ref(), options)).into())
}

/// Refuses what nobody could answer.
fn check_asking(args: &RunArgs, format: OutputFormat) -> Result<(), Exit> {
    let refuse = |why: &str| Err(Exit::because(ExitCode::Input, why));
    let both_ways = args.input_format == InputFormat::StreamJson && format == OutputFormat::StreamJson;
    match (args.on_ask, args.input_format) {
        _ if args.prompt_interactive.is_some() && !std::io::stdin().is_terminal() => {
            refuse("the --prompt-interactive flag cannot be used when input is piped")
        }
        _ if args.prompt_interactive.is_some() => {
            refuse("use --prompt-interactive: there is no terminal interface yet")
        }
        (OnAsk::Wait, _) if !both_ways => refuse(
            "use --on-ask wait: questions and answers need --input-format stream-json and --output-format stream-json",
        ),
        (_, InputFormat::StreamJson) if format != OutputFormat::StreamJson => {
            refuse("use --input-format stream-json: it needs --output-format stream-json")
        }
        _ => Ok(()),
    }
}

fn check_session_id(text: String) -> Result<SessionId, Exit> {
    match uuid::Uuid::parse_str(&text) {
        Ok(id) => Ok(SessionId(id.to_string())),
        Err(_) => Err(Exit::because(ExitCode::Input, format!("use \"{text}\" as the session id: it is not a UUID"))),
    }
}
