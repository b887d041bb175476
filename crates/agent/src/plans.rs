//! Where the plans of a session are, and who hears that a plan began or was approved.

use std::path::Path;
use std::sync::Arc;

use convoke_protocol::SessionError;
use convoke_tools::builtin::PlanDesk;
use convoke_tools::{Access, Mode, ModeChange, PlanFolder, SessionPolicy, Workspace};

use crate::AgentOptions;
use crate::modes::ModeNews;

/// The folder of a session's plans: the one that settings name, or one with the session's kept output, which comes and
/// goes with its record. `None` where nothing is kept.
///
/// Errors: a named folder that lies outside of the workspace.
pub(crate) fn folder(
    options: &AgentOptions,
    workspace: &Workspace,
    outputs: Option<&Path>,
) -> Result<Option<PlanFolder>, SessionError> {
    if let Some(named) = &options.plan_folder {
        let resolved = workspace
            .resolve(&named.display().to_string(), Access::Write)
            .map_err(|error| SessionError::Failed(format!("use general.plan.directory: {error}")))?;
        return Ok(Some(PlanFolder::new(resolved.as_path())));
    }
    // The parent is there; what is in it is named by us.
    let own = outputs.and_then(|own| Some(std::fs::canonicalize(own.parent()?).ok()?.join(own.file_name()?)));
    Ok(own.map(|own| PlanFolder::new(own.join("plans"))))
}

/// What the tools of plan mode work on, unless it is switched off.
pub(crate) fn desk(folder: PlanFolder, policy: &SessionPolicy, news: ModeNews) -> Option<PlanDesk> {
    policy.may_enter(Mode::Plan).ok()?;
    let on_mode = move |change: ModeChange| {
        news.tell(change);
        // The tools enter plan mode, and leave it with an approved plan only.
        if change.after != Mode::Plan {
            news.plan_begun(change.after);
        }
    };
    Some(PlanDesk { policy: policy.clone(), folder, on_mode: Arc::new(on_mode) })
}
