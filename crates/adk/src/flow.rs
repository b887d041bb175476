//! One agent at work: step after step until there is nothing left to do.
//!
//! A step makes the request (processors, then tool declarations), asks the model, and hands the calls of its answer
//! to the dispatcher. Source: runtime specification §2.3 to §2.5, with its faults designed away: the answer is always
//! consolidated, an unknown tool is an answer and not a crash, cancellation is told and not silent.

mod consolidate;

use std::sync::Arc;

use async_stream::try_stream;
use futures::{Stream, StreamExt};

use crate::{
    Content, DispatchEnd, DispatchOutcome, Event, FunctionCall, FunctionResponse, InvocationContext, LlmAgent,
    LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part, PluginError, Role,
};
use consolidate::Consolidator;

/// Marks the event of responses to calls that no dispatcher has seen, since the answer was ended by one who read it.
pub const REFUSED: &str = "refused";

/// Why a step could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// A plugin failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// A processor failed.
    #[error("make the request in processor '{processor}': {message}")]
    Processor {
        /// Which processor.
        processor: &'static str,
        /// What went wrong.
        message: String,
    },
    /// The invocation's bound on model calls.
    #[error("Max number of llm calls limit of {0} exceeded")]
    LlmCallLimit(u32),
    /// The invocation was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl LlmAgent {
    /// Runs the agent in `cx` until its last event.
    ///
    /// Model failures are events with an `error`; `Err` is for what is not the model's: plugins, limits, cancellation.
    pub(crate) fn run(&self, cx: InvocationContext) -> impl Stream<Item = Result<Event, FlowError>> + Send {
        let agent = self.clone();
        try_stream! {
            if let Some(content) = cx.plugins.before_agent(&cx).await? {
                yield agent.answer(&cx, content);
                return;
            }
            loop {
                // Before anything is taken: what the model won't be asked about stays with whoever closes the inbox.
                check(&cx)?;
                cx.has_llm_call_left().map_err(FlowError::LlmCallLimit)?;
                for message in cx.inbox.take() {
                    let mut event = agent.interjection(&cx, message.content);
                    event.actions.custom_metadata.extend(message.metadata);
                    yield event;
                }
                let mut last = None;
                let mut failed = false;
                {
                    let step = agent.step(&cx);
                    futures::pin_mut!(step);
                    while let Some(event) = step.next().await {
                        let event = event?;
                        last = (!event.partial).then(|| event.is_final_response());
                        failed = event.error.is_some();
                        yield event;
                    }
                }
                // Somebody who spoke while the last answer was on its way gets another one.
                let done = last.unwrap_or(true) && (failed || cx.inbox.is_empty());
                if done || cx.stop.requested().is_some() {
                    break;
                }
            }
            if let Some(content) = cx.plugins.after_agent(&cx).await? {
                yield agent.answer(&cx, content);
            }
        }
    }

    fn answer(&self, cx: &InvocationContext, content: Content) -> Event {
        Event { content: Some(Arc::new(content)), ..cx.event(&self.name) }
    }

    fn interjection(&self, cx: &InvocationContext, content: Content) -> Event {
        Event { content: Some(Arc::new(content)), ..cx.event("user") }
    }

    /// One request, one answer, its calls.
    fn step<'a>(&'a self, cx: &'a InvocationContext) -> impl Stream<Item = Result<Event, FlowError>> + Send + 'a {
        try_stream! {
            let mut request = self.request(cx).await?;
            if cx.stop.requested().is_some() {
                // A stage that made the request found that there is no point in asking.
                return;
            }
            let answer = self.ask(cx, &mut request);
            futures::pin_mut!(answer);
            let mut calls = Vec::new();
            while let Some(event) = answer.next().await {
                let event = event?;
                if !event.partial {
                    calls = event.function_calls();
                }
                yield event;
            }
            if calls.is_empty() {
                return;
            }
            // A stop that a reader of the answer asked for: the calls never run, and the model is told so.
            let (outcome, ran) = match (cx.stop.requested(), cx.inbox.interruption()) {
                (Some(reason), _) => (refused(&calls, &reason.message.clone(), DispatchEnd::Stop(reason)), false),
                (None, Some(why)) => (refused(&calls, &why, DispatchEnd::Continue), false),
                (None, None) => (self.dispatch(cx, calls).await?, true),
            };
            let mut event = self.responses(cx, outcome);
            if !ran {
                event.actions.custom_metadata.insert(REFUSED.to_owned(), true.into());
            }
            yield event;
        }
    }

    async fn request(&self, cx: &InvocationContext) -> Result<LlmRequest, FlowError> {
        let mut request = LlmRequest { model: self.model.model(), ..LlmRequest::default() };
        for processor in &self.processors {
            check(cx)?;
            processor.run(cx, &mut request).await?;
        }
        let tools = Arc::make_mut(&mut request.tools);
        let mut offered = Vec::new();
        for toolset in &self.toolsets {
            for tool in toolset.tools(cx).await {
                if tool.offered_to(&request.model) {
                    let declaration = tool.declaration(&request.model);
                    tools.insert(declaration.name.clone(), declaration);
                }
                offered.push(tool);
            }
        }
        request.offered = offered.into();
        if let Some(allowed) = cx.plugins.before_tool_selection(cx, &request).await? {
            request.allowed_tools = Some(allowed);
        }
        check(cx)?;
        Ok(request)
    }

    /// Asks the model; yields a partial event for each new text and the consolidated event at the end.
    fn ask<'a>(
        &'a self,
        cx: &'a InvocationContext,
        request: &'a mut LlmRequest,
    ) -> impl Stream<Item = Result<Event, FlowError>> + Send + 'a {
        try_stream! {
            cx.count_llm_call().map_err(FlowError::LlmCallLimit)?;
            let mut whole = Consolidator::new(request.model.clone(), request.metadata.clone());
            if let Some(response) = cx.plugins.before_model(cx, request).await? {
                whole.add(&response);
                yield whole.finish(cx.event(&self.name));
                return;
            }
            let mut pieces = self.model.generate(request.clone(), cx.cancel.clone());
            loop {
                let piece = tokio::select! {
                    biased;
                    () = cx.cancel.cancelled() => Some(Err(ModelError::new(ModelErrorKind::Cancelled, "cancelled"))),
                    piece = pieces.next() => piece,
                };
                match piece {
                    None => break,
                    Some(Ok(response)) => {
                        let response = self.seen(cx, response).await?;
                        if response.retracted {
                            whole.retract();
                        }
                        whole.add(&response);
                        if let Some(event) = self.partial(cx, &whole, response) {
                            yield event;
                            if cx.stop.requested().is_some() || cx.inbox.interruption().is_some() {
                                // Dropping the pieces ends the exchange; what was said so far is the answer.
                                break;
                            }
                        }
                    }
                    Some(Err(error)) if error.kind == ModelErrorKind::Cancelled => {
                        if let Some(event) = whole.interrupted(cx.event(&self.name)) {
                            yield event;
                        }
                        Err(FlowError::Cancelled)?;
                    }
                    Some(Err(error)) => match cx.plugins.on_model_error(cx, request, &error).await? {
                        Some(response) => {
                            whole.retract();
                            whole.add(&response);
                            break;
                        }
                        None => {
                            if let Some(event) = whole.interrupted(cx.event(&self.name)) {
                                yield event;
                            }
                            yield whole.failed(cx.event(&self.name), error);
                            return;
                        }
                    },
                }
            }
            yield whole.finish(cx.event(&self.name));
        }
    }

    async fn seen(&self, cx: &InvocationContext, response: LlmResponse) -> Result<LlmResponse, FlowError> {
        Ok(cx.plugins.after_model(cx, &response).await?.unwrap_or(response))
    }

    /// The piece as an event, if it has text to show or takes text back. Calls are left to the consolidated event.
    fn partial(&self, cx: &InvocationContext, whole: &Consolidator, response: LlmResponse) -> Option<Event> {
        let retracted = response.retracted;
        let mut content = response.content.unwrap_or(Content { role: Role::Model, parts: Vec::new() });
        content.parts.retain(|part| part.as_text().is_some_and(|text| !text.is_empty()));
        if content.parts.is_empty() && !retracted {
            return None;
        }
        let mut event = Event { partial: true, model: Some(whole.model().to_owned()), ..cx.event(&self.name) };
        event.content = Some(Arc::new(content));
        if retracted {
            event.actions.custom_metadata.insert("retract".to_owned(), true.into());
        }
        Some(event)
    }

    async fn dispatch(&self, cx: &InvocationContext, calls: Vec<FunctionCall>) -> Result<DispatchOutcome, FlowError> {
        let mut slots: Vec<Option<FunctionResponse>> = Vec::with_capacity(calls.len());
        for call in &calls {
            slots.push(cx.plugins.before_tool(cx, call).await?);
        }
        let open: Vec<FunctionCall> =
            calls.iter().zip(&slots).filter(|(_, slot)| slot.is_none()).map(|(call, _)| call.clone()).collect();
        let mut outcome =
            if open.is_empty() { DispatchOutcome::default() } else { self.dispatcher.dispatch(cx, open).await };
        let mut answered = std::mem::take(&mut outcome.responses).into_iter();
        for (call, slot) in calls.iter().zip(slots) {
            let response = slot
                .or_else(|| answered.next())
                .unwrap_or_else(|| FunctionResponse::error(call, "The call was not answered."));
            outcome.responses.push(after_tool(cx, call, response).await?);
        }
        Ok(outcome)
    }

    fn responses(&self, cx: &InvocationContext, outcome: DispatchOutcome) -> Event {
        let mut parts: Vec<Part> = outcome.responses.iter().map(Part::response).collect();
        parts.extend(outcome.siblings);
        // Authored by the agent, so that another agent in the session sees it as told.
        let mut event = self.answer(cx, Content { role: Role::User, parts });
        if let DispatchEnd::Stop(reason) = outcome.end {
            event.actions.skip_summarization = true;
            cx.stop.request(reason);
        }
        event
    }
}

fn check(cx: &InvocationContext) -> Result<(), FlowError> {
    if cx.cancel.is_cancelled() { Err(FlowError::Cancelled) } else { Ok(()) }
}

async fn after_tool(
    cx: &InvocationContext,
    call: &FunctionCall,
    response: FunctionResponse,
) -> Result<FunctionResponse, FlowError> {
    let response = if response.error_message().is_some() {
        cx.plugins.on_tool_error(cx, call, &response).await?.unwrap_or(response)
    } else {
        response
    };
    Ok(cx.plugins.after_tool(cx, call, &response).await?.unwrap_or(response))
}

fn refused(calls: &[FunctionCall], why: &str, end: DispatchEnd) -> DispatchOutcome {
    let message = format!("Cancelled before it ran: {why}");
    DispatchOutcome {
        responses: calls.iter().map(|call| FunctionResponse::error(call, message.as_str())).collect(),
        siblings: Vec::new(),
        end,
    }
}
