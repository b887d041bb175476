//! Running the hooks of an event: who runs, with what input, one after the other or together?

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use convoke_stdx::guard::Spawner;
use convoke_stdx::{Clock, iso8601};
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Map, Value, json};
use tracing::{Level, enabled, event};

use super::output::HookOutput;
use super::settings::Plan;
use super::verdict::Verdict;
use super::{HookDefinition, HookEvent, command};
use crate::user_program::{Launch, Ran};

/// Most hooks of one event that run at the same time: each is a process.
const TOGETHER_MAX: usize = 8;

/// The target of telemetry events. They hold what people wrote: a listener that writes logs leaves them out.
const TELEMETRY: &str = "convoke::telemetry";

/// What every hook of a session is given.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) session_id: String,
    /// The file that the session is recorded in.
    pub(super) transcript: Option<PathBuf>,
    pub(super) cwd: PathBuf,
    pub(super) plans_folder: Option<PathBuf>,
    pub(super) spawner: Spawner,
    /// Variables that no hook sees.
    pub(super) secret_variables: Vec<String>,
}

impl Surroundings {
    /// The variables that hooks find their folders by, under the names that existing hooks use and under ours.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let cwd = self.cwd.display().to_string();
        let mut variables = Vec::new();
        variables.extend(
            ["GEMINI_PROJECT_DIR", "CLAUDE_PROJECT_DIR", "CONVOKE_PROJECT_DIR", "GEMINI_CWD", "CONVOKE_CWD"]
                .map(|name| (name, cwd.clone())),
        );
        variables.extend(["GEMINI_SESSION_ID", "CONVOKE_SESSION_ID"].map(|name| (name, self.session_id.clone())));
        if let Some(folder) = &self.plans_folder {
            let folder = folder.display().to_string();
            variables.extend(["GEMINI_PLANS_DIR", "CONVOKE_PLANS_DIR"].map(|name| (name, folder.clone())));
        }
        variables
    }
}

/// Runs hooks.
pub(super) struct HookRunner {
    around: Surroundings,
    clock: Clock,
    /// What may run, the nearest source first. Replaced as a whole when a person agrees to more.
    hooks: RwLock<Arc<[Arc<HookDefinition>]>>,
}

impl HookRunner {
    pub(super) fn new(around: Surroundings, hooks: Vec<Arc<HookDefinition>>) -> Self {
        Self { around, clock: Clock::start(), hooks: RwLock::new(hooks.into()) }
    }

    fn hooks(&self) -> Arc<[Arc<HookDefinition>]> {
        self.hooks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn replace(&self, hooks: Vec<Arc<HookDefinition>>) {
        *self.hooks.write().unwrap_or_else(PoisonError::into_inner) = hooks.into();
    }

    /// Whether anything runs at `event`, whatever it is about.
    pub(super) fn has(&self, event: HookEvent) -> bool {
        self.hooks().iter().any(|hook| hook.event == event && hook.enabled)
    }

    /// Runs what is configured for `event` and joins what it says. `limit` bounds each hook where that is less than its
    /// own time.
    ///
    /// Cancellation: dropping the future ends the hooks that run.
    pub(super) async fn fire(
        &self,
        event: HookEvent,
        subject: Option<&str>,
        fields: Map<String, Value>,
        limit: Option<Duration>,
    ) -> Verdict {
        let Plan { hooks, sequential } = Plan::new(&self.hooks(), event, subject);
        let mut verdict = Verdict::default();
        if hooks.is_empty() {
            return verdict;
        }
        let mut input = self.common(event);
        input.extend(fields);
        if sequential {
            for hook in &hooks {
                let output = self.run(hook, &input, limit).await;
                chain(event, &mut input, &output);
                verdict.add(hook.label(), output);
            }
        } else {
            let runs: Vec<_> = hooks.iter().map(|hook| self.run(hook, &input, limit).boxed()).collect();
            let outputs: Vec<HookOutput> = stream::iter(runs).buffered(TOGETHER_MAX).collect().await;
            for (hook, output) in hooks.iter().zip(outputs) {
                verdict.add(hook.label(), output);
            }
        }
        verdict
    }

    fn common(&self, event: HookEvent) -> Map<String, Value> {
        let transcript = self.around.transcript.as_ref().map_or_else(String::new, |path| path.display().to_string());
        Map::from_iter([
            ("session_id".to_owned(), self.around.session_id.as_str().into()),
            ("transcript_path".to_owned(), transcript.into()),
            ("cwd".to_owned(), self.around.cwd.display().to_string().into()),
            ("hook_event_name".to_owned(), event.name().into()),
            ("timestamp".to_owned(), iso8601(self.clock.now().wall_ms).into()),
        ])
    }

    async fn run(&self, hook: &HookDefinition, input: &Map<String, Value>, limit: Option<Duration>) -> HookOutput {
        let variables = self.around.variables();
        let places: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut set: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        set.extend(hook.env.iter().cloned());
        // What the hook's own entry sets is what its writer wants it to see.
        let own: BTreeSet<&str> = hook.env.iter().map(|(name, _)| name.as_str()).collect();
        let unset: Vec<String> =
            self.around.secret_variables.iter().filter(|name| !own.contains(name.as_str())).cloned().collect();
        let text = json!(input).to_string();
        let launch = Launch {
            spawner: &self.around.spawner,
            command: &command::expand(&hook.command, &places),
            folder: &self.around.cwd,
            set: &set,
            unset: &unset,
            input: text.as_bytes(),
            timeout: limit.map_or(hook.timeout, |limit| limit.min(hook.timeout)),
        };
        let ran = launch.run().await;
        let output = HookOutput::read(&ran);
        told(&self.around.session_id, hook, &text, &ran, &output);
        output
    }
}

/// Tells one run to whoever listens.
fn told(session_id: &str, hook: &HookDefinition, input: &str, ran: &Ran, output: &HookOutput) {
    if !enabled!(target: TELEMETRY, Level::INFO) {
        return;
    }
    let failure = ran.end.failure();
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.hook_call",
        // A session's end is told outside of any prompt.
        session.id = session_id,
        hook_event_name = hook.event.name(),
        hook_type = "command",
        hook_name = hook.label(),
        hook_input = input,
        hook_output = output.as_json(),
        exit_code = ran.end.code(),
        stdout = ran.stdout,
        stderr = ran.stderr,
        duration_ms = u64::try_from(ran.duration.as_millis()).unwrap_or(u64::MAX),
        success = failure.is_none(),
        error = failure,
    );
}

/// What a hook of a sequence changes for the next one.
fn chain(event: HookEvent, input: &mut Map<String, Value>, output: &HookOutput) {
    match event {
        HookEvent::BeforeAgent => {
            if let Some(more) = output.specific.get("additionalContext").and_then(Value::as_str)
                && let Some(Value::String(prompt)) = input.get_mut("prompt")
            {
                prompt.push_str("\n\n");
                prompt.push_str(more);
            }
        }
        HookEvent::BeforeModel => {
            if let Some(Value::Object(changed)) = output.specific.get("llm_request")
                && let Some(Value::Object(request)) = input.get_mut("llm_request")
            {
                request.extend(changed.clone());
            }
        }
        HookEvent::BeforeTool => {
            if let Some(changed) = output.specific.get("tool_input").filter(|changed| changed.is_object()) {
                input.insert("tool_input".to_owned(), changed.clone());
            }
        }
        HookEvent::AfterTool
        | HookEvent::AfterAgent
        | HookEvent::Notification
        | HookEvent::SessionStart
        | HookEvent::SessionEnd
        | HookEvent::PreCompress
        | HookEvent::AfterModel
        | HookEvent::BeforeToolSelection => {}
    }
}
