//! `enter_plan_mode` and `exit_plan_mode`: may the model change things now, or does it think first? In between it writes
//! its plan as a Markdown file into the session's folder of plans, and a person approves that file.
//!
//! What is approved is what was shown: a plan that changed since is not carried out.

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::workspace::real_path;
use crate::{
    ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, Location, Mode, ModeChange,
    PlanFolder, ResolvedPath, SessionPolicy, ToolFailure, ToolOutput, params,
};

const ENTER: &str = "enter_plan_mode";
const EXIT: &str = "exit_plan_mode";
// A person reads all of it before it is approved; the largest honest plans have a tenth of this.
const PLAN_BYTES_MAX: u64 = 256 * 1024;
const NOT_APPROVED: &str = "The user did not approve the plan. Plan mode stays on. Find out what should be different, \
                            change the plan file, and call exit_plan_mode again.";

/// Told of a mode that a tool changed, from the task that runs the call: it must not block.
pub type ModeListener = Arc<dyn Fn(ModeChange) + Send + Sync>;

/// What both tools work on: one session's mode, and where its plans are.
#[derive(Clone)]
pub struct PlanDesk {
    /// Holds the mode.
    pub policy: SessionPolicy,
    /// Where plans are.
    pub folder: PlanFolder,
    /// Who hears of changes.
    pub on_mode: ModeListener,
}

/// Enters plan mode.
pub struct EnterPlanMode {
    desk: PlanDesk,
    schema: Value,
}

impl EnterPlanMode {
    /// For this session.
    #[must_use]
    pub fn new(desk: PlanDesk) -> Self {
        let reason = json!({"type": "string", "description": "Why this wants a plan, in one sentence."});
        Self { desk, schema: json!({"type": "object", "properties": {"reason": reason}}) }
    }
}

#[derive(Debug, Deserialize)]
struct EnterParams {
    #[serde(default)]
    reason: Option<String>,
}

impl DeclarativeTool for EnterPlanMode {
    fn name(&self) -> &str {
        ENTER
    }

    fn display_name(&self) -> &str {
        "Enter Plan Mode"
    }

    fn kind(&self) -> Kind {
        Kind::Plan
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: ENTER.to_owned(),
            description:
                "Switches to plan mode, in which nothing is changed: you look around, write a plan to a file, \
                          and the user approves it before you carry it out. For work that is large, risky, or can be \
                          done in ways that differ for the user. Not for questions, and not for small changes."
                    .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let EnterParams { reason } = params::read(&self.schema, args)?;
        let reason = reason.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        Ok(Arc::new(Enter { desk: self.desk.clone(), reason }))
    }
}

struct Enter {
    desk: PlanDesk,
    reason: Option<String>,
}

#[async_trait]
impl Invocation for Enter {
    fn description(&self) -> String {
        match &self.reason {
            Some(reason) => format!("Plan first: {reason}"),
            None => "Plan first".to_owned(),
        }
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let folder = self.desk.folder.path().to_owned();
        make(&folder).await?;
        let change = self.desk.policy.set_mode(Mode::Plan).map_err(|refused| {
            ToolFailure::new(ErrorType::ExecutionFailed, format!("Failed to {refused}. Go on without it."))
        })?;
        (self.desk.on_mode)(change);
        Ok(ToolOutput::text(format!(
            "Plan mode is on. Look around, write the plan as a Markdown file into {}, then call {EXIT} with its name.",
            folder.display()
        )))
    }
}

/// Makes the folder of plans. A link in its place is no folder of ours.
async fn make(folder: &Path) -> Result<(), ToolFailure> {
    let path = folder.to_owned();
    let made = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&path)?;
        if real_path(&path)? == path { Ok(()) } else { Err(std::io::Error::other("a link leads elsewhere")) }
    });
    let failed = |error: String| {
        let message = format!("Failed to make the folder of plans {}: {error}.", folder.display());
        ToolFailure::new(ErrorType::ExecutionFailed, message)
    };
    match made.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Ends plan mode with a plan.
pub struct ExitPlanMode {
    desk: PlanDesk,
    schema: Value,
}

impl ExitPlanMode {
    /// For this session.
    #[must_use]
    pub fn new(desk: PlanDesk) -> Self {
        let name =
            json!({"type": "string", "description": "The plan's file in the folder of plans, such as \"login.md\"."});
        let schema = json!({"type": "object", "properties": {"plan_filename": name}, "required": ["plan_filename"]});
        Self { desk, schema }
    }
}

#[derive(Debug, Deserialize)]
struct ExitParams {
    plan_filename: String,
}

impl DeclarativeTool for ExitPlanMode {
    fn name(&self) -> &str {
        EXIT
    }

    fn display_name(&self) -> &str {
        "Exit Plan Mode"
    }

    fn kind(&self) -> Kind {
        Kind::Plan
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: EXIT.to_owned(),
            description:
                "Puts the plan that you wrote before the user. If it is approved, plan mode ends and you carry \
                          it out. Call it when the plan is complete, and not to ask about it."
                    .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let ExitParams { plan_filename } = params::read(&self.schema, args)?;
        let name = plan_filename.trim();
        let invalid = |message: String| Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
        if name.is_empty() || name.contains('\0') {
            return invalid("params/plan_filename must be the name of a file".to_owned());
        }
        // The file itself is looked at when it matters: an earlier call of the same answer may be about to write it.
        let path = self.desk.folder.path().join(name);
        Ok(Arc::new(Exit { desk: self.desk.clone(), path, shown: Mutex::default() }))
    }
}

struct Exit {
    desk: PlanDesk,
    path: PathBuf,
    /// The text that a person was asked about.
    shown: Mutex<Option<Arc<str>>>,
}

impl Exit {
    /// The plan, by its real path.
    async fn read(&self) -> Result<(PathBuf, Arc<str>), ToolFailure> {
        let (folder, path) = (self.desk.folder.clone(), self.path.clone());
        let read = tokio::task::spawn_blocking(move || read(&folder, &path));
        read.await.map_err(|error| ToolFailure::new(ErrorType::UnhandledException, error.to_string()))?
    }
}

/// A plan that is there, has something in it, and can be shown whole.
fn read(folder: &PlanFolder, path: &Path) -> Result<(PathBuf, Arc<str>), ToolFailure> {
    let folder_shown = folder.path().display();
    let refuse = |kind, why: String| Err(ToolFailure::new(kind, format!("Plan \"{}\" {why}.", path.display())));
    let real = match real_path(path) {
        Ok(real) => real,
        Err(error) => return refuse(ErrorType::ExecutionFailed, format!("can't be looked at: {error}")),
    };
    if !folder.has(&real) {
        let why = format!("is not a Markdown file in the folder of plans, {folder_shown}");
        return refuse(ErrorType::InvalidToolParams, why);
    }
    let file = match ResolvedPath::of_real(real.clone()).open() {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return refuse(ErrorType::FileNotFound, format!("does not exist; write it to {folder_shown} first"));
        }
        Err(error) => return refuse(ErrorType::ExecutionFailed, format!("can't be read: {error}")),
    };
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return refuse(ErrorType::InvalidToolParams, "is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut bytes) {
        return refuse(ErrorType::ExecutionFailed, format!("can't be read: {error}"));
    }
    if bytes.len() as u64 > PLAN_BYTES_MAX {
        return refuse(ErrorType::InvalidToolParams, format!("is larger than {PLAN_BYTES_MAX} bytes"));
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => refuse(ErrorType::InvalidToolParams, "is empty".to_owned()),
        Ok(text) => Ok((real, text.into())),
        Err(_) => refuse(ErrorType::InvalidToolParams, "is not UTF-8".to_owned()),
    }
}

#[async_trait]
impl Invocation for Exit {
    fn description(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        format!("Carry out the plan {}", name.to_string_lossy())
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location { path: self.path.display().to_string(), line: None }]
    }

    fn refusal(&self) -> Option<&'static str> {
        Some(NOT_APPROVED)
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        let (path, text) = self.read().await?;
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        Ok(ConfirmationDetails::Plan { path: path.display().to_string(), text })
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let (path, text) = self.read().await?;
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if shown.is_some_and(|shown| shown != text) {
            // The answer may have ended plan mode already.
            if let Ok(change) = self.desk.policy.set_mode(Mode::Plan) {
                (self.desk.on_mode)(change);
            }
            let message =
                format!("The plan changed while the user looked at it. Plan mode stays on: call {EXIT} again.");
            return Err(ToolFailure::new(ErrorType::ExecutionFailed, message));
        }
        let change = self.desk.policy.carry_out(path.clone());
        (self.desk.on_mode)(change);
        let mode = change.after.as_str();
        let text = format!(
            "The plan is approved; plan mode is off, and the mode is {mode}. Carry out {} step by step, and read it \
             again whenever you are not sure what it says.",
            path.display()
        );
        let data = json!({"approvedPlan": path.display().to_string(), "mode": mode});
        Ok(ToolOutput { data: Some(data), ..ToolOutput::text(text) })
    }
}
