//! The tools of a session: which are there, and through what they run?

use std::path::PathBuf;
use std::sync::Arc;

use convoke_protocol::SessionError;
use convoke_tools::builtin::{self, BuiltinOptions, ShellOptions};
use convoke_tools::policy::canonical_tool_name;
use convoke_tools::{
    Approver, BackgroundProcesses, SchedulerObserver, SchedulerOptions, SessionPolicy, ToolHooks, ToolRegistry,
    ToolScheduler, Truncation, Workspace,
};

use crate::AgentOptions;

/// Registers everything that a session may call.
pub(super) fn registry(
    options: &AgentOptions,
    policy: &SessionPolicy,
    workspace: Workspace,
    background: &Arc<BackgroundProcesses>,
) -> Result<Arc<ToolRegistry>, SessionError> {
    let registry = ToolRegistry::new(policy.clone());
    let builtin =
        BuiltinOptions { workspace: Arc::new(workspace), shell: shell(options), background: background.clone() };
    for tool in builtin::tools(builtin) {
        let excluded = options.exclude_tools.iter().any(|name| canonical_tool_name(name) == tool.name());
        if excluded || !options.tools.wants(tool.name()) {
            continue;
        }
        registry.register(tool).map_err(|error| SessionError::Failed(error.to_string()))?;
    }
    Ok(Arc::new(registry))
}

fn shell(options: &AgentOptions) -> ShellOptions {
    let mut shell = ShellOptions::new(options.spawner.clone());
    shell.unset.clone_from(&options.secret_variables);
    shell.sandbox.clone_from(&options.sandbox);
    if let Some(silence) = options.shell_inactivity {
        // Zero switches the limit off, as in the settings of other agents.
        shell.inactivity_timeout = Some(silence).filter(|silence| !silence.is_zero());
    }
    shell
}

/// Starts the scheduler of a session. Large output goes to `outputs`.
pub(super) fn scheduler(
    policy: &SessionPolicy,
    registry: &Arc<ToolRegistry>,
    outputs: Option<PathBuf>,
    approver: Arc<dyn Approver>,
    observer: Arc<dyn SchedulerObserver>,
    hooks: Arc<dyn ToolHooks>,
) -> Arc<ToolScheduler> {
    Arc::new(ToolScheduler::start(SchedulerOptions {
        approver,
        observer,
        hooks,
        truncation: Truncation { folder: outputs, ..Truncation::default() },
        ..SchedulerOptions::new(registry.clone(), policy.clone())
    }))
}
