//! The tools of a session: which are there, and through what they run?

use std::path::PathBuf;
use std::sync::Arc;

use convoke_protocol::{AgentEventBody, SessionError};
use convoke_tools::builtin::{
    self, ActivateSkill, AskUser, BuiltinOptions, EnterPlanMode, ExitPlanMode, GoogleWebSearch, PlanDesk, ShellOptions,
    UpdateTopic, WebFetch, WebModel, WebOptions, WriteTodos,
};
use convoke_tools::{
    BackgroundProcesses, CheckerHost, ClientTerminals, DeclarativeTool, Guards, SchedulerOptions, SessionPolicy,
    ToolRegistry, Truncation, Workspace,
};

use crate::near_context::NearContext;
use crate::questions::PortQuestioner;
use crate::skills::find_skills;
use crate::subagents::{Caller, ChildSeat, CompleteTask, GetInternalDocs, InvokeAgent, reads_documents};
use crate::tool_events::CurrentStream;
use crate::web::LlmWeb;
use crate::{AgentFactory, AgentOptions};

/// Registers everything that a session may call.
pub(super) fn registry(
    options: &AgentOptions,
    policy: &SessionPolicy,
    workspace: &Arc<Workspace>,
    background: &Arc<BackgroundProcesses>,
    ports: ToolPorts,
) -> Result<Arc<ToolRegistry>, SessionError> {
    let registry = ToolRegistry::new(policy.clone());
    let registry = match &ports.subagent {
        Some(name) => registry.of_subagent(name.clone()),
        None => registry,
    };
    let near = NearContext::new(workspace.cwd().to_owned(), options.context.names.clone());
    let skills = skills(options, workspace);
    let discovered = ports.discovered.clone();
    let guards = ports.guards.clone();
    let shell = ShellOptions { terminals: ports.terminals.clone(), ..shell(options, guards) };
    let builtin = BuiltinOptions { workspace: workspace.clone(), shell, background: background.clone() };
    let ours = builtin::tools(builtin).into_iter().chain(with_ports(options, ports)).chain(skills);
    let ours = ours.filter(|tool| options.tools.wants(tool.name()));
    for tool in ours.chain(discovered) {
        registry.register(near.around(tool)).map_err(|error| SessionError::Failed(error.to_string()))?;
    }
    Ok(Arc::new(registry))
}

/// The tool for skills, if there are any.
fn skills(options: &AgentOptions, workspace: &Arc<Workspace>) -> Option<Arc<dyn DeclarativeTool>> {
    let of_workspace = options.tools.workspace_skill_folders.iter().map(|folder| workspace.cwd().join(folder));
    let folders: Vec<PathBuf> = options.tools.skill_folders.iter().cloned().chain(of_workspace).collect();
    let skills = find_skills(&folders);
    (!skills.is_empty()).then(|| Arc::new(ActivateSkill::new(workspace.clone(), skills)) as Arc<dyn DeclarativeTool>)
}

/// Through what tools reach a session's person and model.
pub(super) struct ToolPorts {
    /// Where somebody can be asked.
    pub(super) questioner: Option<PortQuestioner>,
    /// Where titles are told.
    pub(super) stream: CurrentStream,
    /// Where the model can be asked beside the conversation.
    pub(super) web: Option<LlmWeb>,
    /// Where plans are made; `None` where they can't be.
    pub(super) plans: Option<PlanDesk>,
    /// Where commands run that a person watches.
    pub(super) terminals: Option<Arc<dyn ClientTerminals>>,
    /// The subagent whose tools they are.
    pub(super) subagent: Option<String>,
    /// Who starts commands.
    pub(super) guards: Guards,
    /// What the project brings.
    pub(super) discovered: Vec<Arc<dyn DeclarativeTool>>,
}

fn with_ports(options: &AgentOptions, ports: ToolPorts) -> Vec<Arc<dyn DeclarativeTool>> {
    let ToolPorts { questioner, stream, web, plans, .. } = ports;
    let web: Option<Arc<dyn WebModel>> = web.map(|web| Arc::new(web) as Arc<dyn WebModel>);
    let on_title = move |title: &str| {
        if let Some(emitter) = stream.get() {
            let title = Some(title.to_owned());
            emitter.emit(AgentEventBody::SessionUpdate { title, model: None, config: None });
        }
    };
    let mut tools: Vec<Arc<dyn DeclarativeTool>> = Vec::new();
    if let Some(web) = web.as_ref().filter(|web| web.searches()) {
        tools.push(Arc::new(GoogleWebSearch::new(web.clone())));
    }
    let private_hosts = options.tools.private_hosts.clone();
    tools.push(Arc::new(WebFetch::new(WebOptions {
        model: web,
        allowed_private_hosts: private_hosts,
        direct: options.tools.direct_web_fetch,
        ..WebOptions::default()
    })));
    tools.push(Arc::new(WriteTodos::new()));
    tools.push(Arc::new(UpdateTopic::new(Arc::new(on_title))));
    if let Some(questioner) = questioner {
        tools.push(Arc::new(AskUser::new(Arc::new(questioner))));
    }
    if let Some(desk) = plans {
        tools.push(Arc::new(EnterPlanMode::new(desk.clone())));
        tools.push(Arc::new(ExitPlanMode::new(desk)));
    }
    tools
}

fn shell(options: &AgentOptions, guards: Guards) -> ShellOptions {
    let mut shell = ShellOptions::new(guards);
    shell.unset.clone_from(&options.secret_variables);
    shell.sandbox.clone_from(&options.sandbox);
    if let Some(silence) = options.shell_inactivity {
        // Zero switches the limit off, as in the settings of other agents.
        shell.inactivity_timeout = Some(silence).filter(|silence| !silence.is_zero());
    }
    shell
}

/// Registers what a subagent may call of its caller's tools, and how it hands in its report.
pub(super) fn of_subagent(
    options: &AgentOptions,
    seat: &ChildSeat,
    registry: &ToolRegistry,
) -> Result<(), SessionError> {
    seat.choose_tools(registry)?;
    let documents = options.subagents.documents;
    if !documents.is_empty() && reads_documents(&seat.definition) {
        let tool = GetInternalDocs::new(documents);
        registry.register(Arc::new(tool)).map_err(|error| SessionError::Failed(error.to_string()))?;
    }
    let complete = CompleteTask::new(seat.agent.output.clone(), seat.guide.clone());
    registry.register(Arc::new(complete)).map_err(|error| SessionError::Failed(error.to_string()))
}

/// Registers the tool that calls subagents, where there are any and they may be called.
pub(super) fn agents(
    factory: &AgentFactory,
    seat: Option<&ChildSeat>,
    caller: Caller,
    registry: &ToolRegistry,
) -> Result<(), SessionError> {
    let options = factory.options();
    let tool = InvokeAgent::new(factory.clone(), Arc::new(caller));
    let excluded = !options.tools.wants(tool.name());
    let chosen = seat.is_none_or(|seat| seat.agent.may_call(tool.name()));
    if excluded || !chosen || tool.is_too_deep(options.subagents.depth_max) || !tool.has_agents() {
        return Ok(());
    }
    registry.register(Arc::new(tool)).map_err(|error| SessionError::Failed(error.to_string()))
}

/// What a subagent is told of a call that a person refused. Source: runtime specification §12.4.
const REJECTED: &str = "User rejected this operation. The tool did not run. Take it as a decision: rethink, and find \
                        another way or report what stood in yours.";

/// What happens to large output: the whole of it goes to `outputs`.
pub(super) fn truncation(options: &AgentOptions, outputs: Option<PathBuf>) -> Truncation {
    let threshold = options.output_threshold.unwrap_or(Truncation::default().threshold);
    Truncation { threshold, folder: outputs }
}

/// What the checkers of a session are run with.
pub(super) fn checkers(options: &AgentOptions, workspace: &Workspace) -> CheckerHost {
    CheckerHost {
        spawner: Some(options.spawner.clone()),
        secret_variables: options.secret_variables.clone(),
        cwd: workspace.cwd().to_owned(),
        workspaces: workspace.roots().to_vec(),
        ..CheckerHost::default()
    }
}

/// Makes a scheduler the one of a subagent: whose calls they are, what a refusal says, and how long they may take to
/// end.
pub(super) fn seat_scheduler(scheduler: &mut SchedulerOptions, seat: &ChildSeat) {
    scheduler.subagent = Some(seat.definition.name.clone());
    scheduler.refusal = REJECTED;
    // Less than its caller has for the call that waits for it: what is cancelled ends from the inside out.
    for _ in 0..=seat.caller.depth() {
        scheduler.limits.cancel_grace = scheduler.limits.cancel_grace * 3 / 4;
    }
}
