//! Does the agent go round in circles?
//!
//! [`LoopPlugin`] shows the detector what the model says and wants, before it is carried out. The first time the answer
//! is ended and the model is told, as an event of the session, to step back; the second time the invocation stops, and
//! calls that were pending are answered as cancelled. Source: runtime specification §9 and part (b) 2 to 4.

mod check;
mod detector;
mod lines;
mod text;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use convoke_adk::{Content, Event, Interjection, InvocationContext, Plugin, PluginError, Role, StopReason};
use serde_json::{Map, Value};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument, Span};

use crate::models::SessionModel;
use crate::told;
use check::{Checked, Turns};
use detector::{Detector, Found, Strike};

pub use detector::LoopDetector;

/// The code of an invocation that was stopped because of a loop.
pub(crate) const LOOP_DETECTED: &str = "LOOP_DETECTED";

/// Whose message a nudge is; front ends don't show it.
const NUDGE_SOURCE: &str = "loop_recovery";

/// How loops are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopOptions {
    /// Whether at all.
    pub enabled: bool,
    /// Whether a model is asked for its opinion in long turns. It costs a call now and then, beside the conversation.
    pub ask_model: bool,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { enabled: true, ask_model: false }
    }
}

/// Watches for loops in the invocations of one session.
pub(crate) struct LoopPlugin {
    session_id: String,
    /// Whom to ask; `None` to ask nobody.
    model: Option<SessionModel>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    invocation: String,
    detector: Detector,
    turns: Turns,
    prompt: String,
    /// What the model was asked about and has not answered yet. Dropping it ends the question.
    asking: Option<AbortOnDropHandle<()>>,
    /// Its answer.
    answer: Option<Checked>,
}

impl LoopPlugin {
    pub(crate) fn new(session_id: String, model: SessionModel, options: LoopOptions) -> Self {
        Self { session_id, model: Some(model).filter(|_| options.ask_model), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of this invocation; a new one begins with nothing.
    fn of<'a>(&'a self, cx: &InvocationContext) -> MutexGuard<'a, State> {
        let mut state = self.state();
        if state.invocation != cx.invocation_id {
            *state = State { invocation: cx.invocation_id.clone(), ..State::default() };
        }
        state
    }

    fn on_strike(&self, cx: &InvocationContext, strike: &Strike) {
        let Strike { number, found } = strike;
        told::looped(&self.session_id, found.kind(), *number, &found.detail());
        if *number == 1 {
            let metadata = Map::from_iter([
                ("source".to_owned(), Value::from(NUDGE_SOURCE)),
                ("hidden".to_owned(), true.into()),
                ("loopType".to_owned(), found.kind().into()),
            ]);
            let message = Interjection { content: Content::user(nudge(found)), metadata };
            cx.inbox.interrupt("a potential loop was detected", message);
        } else {
            let message = format!("the agent repeats itself: {}", found.detail());
            cx.stop.request(StopReason { code: LOOP_DETECTED.to_owned(), message });
        }
    }

    /// Asks the model beside the conversation, so that nobody waits for it.
    fn ask(&self, cx: &InvocationContext, state: &mut State) {
        let Some(model) = self.model.clone() else { return };
        if state.asking.is_some() {
            return;
        }
        let newest = cx.session.with(|session| {
            let mut newest: VecDeque<Event> = VecDeque::new();
            newest.extend(session.events.iter().rev().take(check::CONTENTS).cloned());
            newest.into_iter().rev().collect::<Vec<_>>()
        });
        let (cancel, prompt) = (cx.cancel.child_token(), state.prompt.clone());
        let (shared, invocation) = (Arc::clone(&self.state), cx.invocation_id.clone());
        let session_id = self.session_id.clone();
        let check = async move {
            let checked = check::check(&session_id, &model, &prompt, &newest, &cancel).await;
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if state.invocation == invocation {
                state.answer = Some(checked);
            }
        };
        // Its model calls belong to the prompt.
        state.asking = Some(AbortOnDropHandle::new(tokio::spawn(check.instrument(Span::current()))));
    }

    /// What the model said about the loop, if it has an opinion by now.
    fn heard(&self, cx: &InvocationContext) -> Option<Strike> {
        let mut state = self.of(cx);
        let checked = state.answer.take()?;
        state.asking = None;
        state.turns.checked(checked.confidence);
        let analysis = checked.looping?;
        Some(state.detector.found(Found::Model { analysis }))
    }
}

fn nudge(found: &Found) -> String {
    format!(
        "System: Potential loop detected. Details: {}. Please take a step back and confirm that you're making forward \
         progress. If not, analyze your previous actions and rethink how you're approaching the problem. Avoid repeating \
         the same tool calls or responses without new results.",
        found.detail()
    )
}

#[async_trait]
impl Plugin for LoopPlugin {
    fn name(&self) -> &'static str {
        "loop-detection"
    }

    async fn on_user_message(&self, cx: &InvocationContext, message: &Content) -> Result<Option<Content>, PluginError> {
        self.of(cx).prompt = message.joined_text();
        Ok(None)
    }

    async fn before_model(
        &self,
        cx: &InvocationContext,
        _: &mut convoke_adk::LlmRequest,
    ) -> Result<Option<convoke_adk::LlmResponse>, PluginError> {
        let mut state = self.of(cx);
        if self.model.is_some() && state.turns.begin() {
            self.ask(cx, &mut state);
        }
        Ok(None)
    }

    async fn on_event(&self, cx: &InvocationContext, event: &Event) -> Result<Option<Event>, PluginError> {
        let Some(content) = event.content.as_ref().filter(|content| content.role == Role::Model) else {
            return Ok(None);
        };
        let strike = if event.partial {
            let mut state = self.of(cx);
            if event.actions.custom_metadata.contains_key("retract") {
                state.detector.forget_text();
            }
            let texts = content.parts.iter().filter(|part| !part.is_thought()).filter_map(|part| part.as_text());
            texts.into_iter().find_map(|text| state.detector.text(text))
        } else {
            let mut state = self.of(cx);
            content.function_calls().iter().find_map(|call| state.detector.call(&call.name, &call.args))
        };
        if let Some(strike) = strike.or_else(|| self.heard(cx)) {
            self.on_strike(cx, &strike);
        }
        Ok(None)
    }

    async fn after_run(&self, _: &InvocationContext) -> Result<(), PluginError> {
        *self.state() = State::default();
        Ok(())
    }
}
