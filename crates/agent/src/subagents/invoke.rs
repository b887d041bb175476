//! `invoke_agent`: the tool that gives a task to a subagent. Calls of one answer run beside each other.
//!
//! An agent that a workspace brought along is used once a person agreed to its content, whatever the approval mode.
//! Source: runtime specification §12.3; the question goes where all questions go.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_protocol::{
    PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome, PermissionRequest, ToolKind,
    ToolLocation,
};
use convoke_stdx::cut;
use convoke_tools::policy::ToolPattern;
use convoke_tools::{
    ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ToolFailure, ToolOutput,
    check_arguments,
};
use serde_json::{Value, json};

use super::a2a;
use super::caller::Caller;
use super::definition::{AgentDefinition, AgentKind, AgentSource, RemoteAgent};
use super::documents::reads_documents;
use super::prompt;
use super::run::run;
use crate::AgentFactory;

/// The tool's name.
pub(crate) const INVOKE_AGENT: &str = "invoke_agent";

/// Most bytes of a task in the line that describes a call.
const DESCRIPTION_MAX: usize = 120;

/// The tool of one session.
pub(crate) struct InvokeAgent {
    factory: AgentFactory,
    caller: Arc<Caller>,
}

impl InvokeAgent {
    pub(crate) fn new(factory: AgentFactory, caller: Arc<Caller>) -> Self {
        Self { factory, caller }
    }

    /// Whether agents that were called so far may call no others.
    pub(crate) fn is_too_deep(&self, depth_max: usize) -> bool {
        self.caller.depth() >= depth_max
    }

    /// Whether there is anybody to call.
    pub(crate) fn has_agents(&self) -> bool {
        self.caller.agents.all().next().is_some()
    }

    /// The agents that can do anything here: one whose every tool is missing can't.
    fn usable(&self) -> Vec<&Arc<AgentDefinition>> {
        let tools = self.caller.registry.upgrade().map(|registry| registry.all()).unwrap_or_default();
        let there = |pattern: &ToolPattern| tools.iter().any(|tool| pattern.matches(tool.name()));
        let has_documents = !self.factory.options().subagents.documents.is_empty();
        let can_work = |definition: &&Arc<AgentDefinition>| match &definition.kind {
            AgentKind::Remote(_) => true,
            AgentKind::Local(agent) => match &agent.tools {
                Some(patterns) if !patterns.is_empty() => {
                    patterns.iter().any(there) || (has_documents && reads_documents(definition))
                }
                Some(_) | None => true,
            },
        };
        self.caller.agents.all().filter(can_work).collect()
    }

    fn schema(agents: &[&Arc<AgentDefinition>]) -> Value {
        let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        json!({
            "type": "object",
            "properties": {
                "agent_name": {"type": "string", "description": "The agent.", "enum": names},
                "prompt": {
                    "type": "string",
                    "description": "The whole task. The agent sees nothing of this conversation: tell it all that it has \
                                    to know, and what to report.",
                },
                "wait_for_previous": {
                    "type": "boolean",
                    "description": "Whether it begins when the calls before it have ended, and not beside them.",
                },
            },
            "required": ["agent_name", "prompt"],
        })
    }
}

impl DeclarativeTool for InvokeAgent {
    fn name(&self) -> &str {
        INVOKE_AGENT
    }

    fn display_name(&self) -> &str {
        "Agent"
    }

    fn kind(&self) -> Kind {
        Kind::Agent
    }

    fn parallelizable(&self) -> bool {
        true
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        let agents = self.usable();
        let mut description = "Gives a task to an agent that works on it by itself, with a context of its own, and \
                               reports back. Several calls of one turn run at the same time; let them not change the \
                               same files. The agents:"
            .to_owned();
        for agent in &agents {
            description.push_str(&format!("\n- {}: {}", agent.name, agent.description.trim()));
        }
        FunctionDeclaration { name: INVOKE_AGENT.to_owned(), description, parameters: Self::schema(&agents) }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let agents = self.usable();
        check_arguments(&Self::schema(&agents), args)?;
        let text = |key: &str| args.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("agent_name");
        let definition = agents
            .into_iter()
            .find(|agent| agent.name == name)
            .ok_or_else(|| ToolFailure::new(ErrorType::InvalidToolParams, format!("There is no agent \"{name}\".")))?;
        Ok(Arc::new(Call {
            factory: self.factory.clone(),
            caller: Arc::clone(&self.caller),
            definition: Arc::clone(definition),
            task: text("prompt"),
        }))
    }
}

struct Call {
    factory: AgentFactory,
    caller: Arc<Caller>,
    definition: Arc<AgentDefinition>,
    task: String,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let line = self.task.trim().lines().next().unwrap_or_default();
        let short = cut::head(line, DESCRIPTION_MAX);
        let more = if short.len() < self.task.trim().len() { "…" } else { "" };
        format!("{}: {short}{more}", self.definition.name)
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        let at = match &self.definition.kind {
            AgentKind::Local(_) => String::new(),
            AgentKind::Remote(agent) => format!(" at {}{}", a2a::place(agent), told(agent)),
        };
        let prompt = format!("Agent {}{at} gets this task:\n\n{}", self.definition.name, self.task);
        Ok(ConfirmationDetails::Info { prompt })
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        if let AgentSource::Workspace { path, hash } = &self.definition.source {
            self.acknowledged(&path.display().to_string(), hash, cx).await?;
        }
        match &self.definition.kind {
            AgentKind::Local(agent) => run(&self.factory, &self.caller, &self.definition, agent, &self.task, cx).await,
            AgentKind::Remote(agent) => {
                let variables = &self.factory.options().subagents.variables;
                let task = prompt::task(&self.task);
                a2a::run(&self.caller, &self.definition.name, agent, variables, task, cx).await
            }
        }
    }
}

/// Which secret an agent elsewhere is told.
fn told(agent: &RemoteAgent) -> String {
    agent
        .auth
        .as_ref()
        .map_or_else(String::new, |auth| format!(" (which is told the secret in ${})", auth.secret().name()))
}

const ONCE: &str = "proceed_once";
const ALWAYS: &str = "proceed_always";

impl Call {
    /// Comes back well if a person agreed to this content of the definition, once or now.
    async fn acknowledged(&self, path: &str, hash: &str, cx: &ExecutionContext) -> Result<(), ToolFailure> {
        let (caller, name) = (&self.caller, self.definition.name.as_str());
        let options = self.factory.options();
        let known = &options.subagents.acknowledgements;
        if caller.has_agreed(hash) || known.contain(&caller.folder, name, hash) {
            return Ok(());
        }
        let refused = |why: &str| {
            let message = format!("Agent {name} was not used: it comes with this folder ({path}), and {why}.");
            ToolFailure::new(ErrorType::PolicyViolation, message)
        };
        if !options.interactive {
            return Err(refused(&format!(
                "nobody has agreed to it. To agree, run `convoke agents acknowledge {name}` in the folder"
            )));
        }
        let asker = caller.asker();
        let _asking = asker.asking();
        let asked = caller.permission.request(self.question(path, cx));
        let answer = cx.cancel.run_until_cancelled(asked).await;
        match answer {
            None => Err(ToolFailure::cancelled("The agent was not started.")),
            Some(PermissionOutcome::Selected { option_id }) if option_id == ONCE => {
                caller.agree(hash);
                Ok(())
            }
            Some(PermissionOutcome::Selected { option_id }) if option_id == ALWAYS => {
                caller.agree(hash);
                if let Err(error) = known.record(&caller.folder, name, hash) {
                    tracing::warn!(agent = name, %error, "that the user agreed to an agent can't be remembered");
                }
                Ok(())
            }
            Some(PermissionOutcome::Selected { .. }) => Err(refused("the user does not want it")),
            Some(PermissionOutcome::Cancelled) => Err(refused("nobody answered the question about it")),
        }
    }

    fn question(&self, path: &str, cx: &ExecutionContext) -> PermissionRequest {
        let definition = &self.definition;
        let asker = self.caller.asker();
        let option = |option_id: &str, name: &str, kind| PermissionOption {
            option_id: option_id.to_owned(),
            name: name.to_owned(),
            kind,
        };
        let tools = match &definition.kind {
            AgentKind::Local(agent) => {
                agent.tool_names().map_or_else(|| "all tools".to_owned(), |names| names.join(", "))
            }
            AgentKind::Remote(agent) => format!("a server at {}{}", a2a::place(agent), told(agent)),
        };
        let instruction = match &definition.kind {
            AgentKind::Local(agent) => agent.prompt.clone(),
            AgentKind::Remote(_) => String::new(),
        };
        let text = format!("{}\n\nIt works with: {tools}.\n\n{instruction}", definition.description);
        PermissionRequest {
            session_id: self.caller.session_id.clone(),
            tool_call_id: asker.call_id(&cx.call_id),
            tool_name: INVOKE_AGENT.to_owned(),
            title: format!("Use the agent {} that comes with this folder?", definition.name),
            kind: ToolKind::Other,
            content: vec![PermissionContent::Text(text)],
            locations: vec![ToolLocation { path: path.to_owned(), line: None }],
            raw_input: json!({"agent_name": definition.name, "prompt": self.task}),
            options: vec![
                option(ONCE, "Use it in this session", PermissionOptionKind::AllowOnce),
                option(ALWAYS, "Use it until its file changes", PermissionOptionKind::AllowAlways),
                option("cancel", "Don't use it", PermissionOptionKind::RejectOnce),
            ],
            origin: asker.origin(),
        }
    }
}
