//! The conversation, from the session's events.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Content, Event, FlowError, FunctionCall, FunctionResponse, InvocationContext, LlmRequest, Part, RequestProcessor,
    Role,
};

/// Builds `contents` from the session's events.
///
/// Events of other branches are left out, and what another agent said becomes context told by the user. A model
/// must see a response right behind each call: responses that came late are moved there, and a call that never got
/// one (the process died) is answered as interrupted. Source: runtime specification §2.2.
pub struct Contents;

#[async_trait]
impl RequestProcessor for Contents {
    fn name(&self) -> &'static str {
        "contents"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        request.contents = cx.session.with(|session| build(&session.events, cx));
        Ok(())
    }
}

fn build(events: &[Event], cx: &InvocationContext) -> Vec<Arc<Content>> {
    let mut contents: Vec<Arc<Content>> = Vec::with_capacity(events.len());
    for event in events.iter().filter(|event| on_branch(event, cx)) {
        let Some(content) = event.content.as_ref().filter(|content| !content.parts.is_empty()) else { continue };
        if event.author != "user" && event.author != cx.agent_name {
            contents.push(Arc::new(told(&event.author, content)));
        } else {
            contents.push(content.clone());
        }
    }
    if paired(&contents) { contents } else { pair(contents) }
}

/// An event is seen by its own branch and by what branched off from there.
fn on_branch(event: &Event, cx: &InvocationContext) -> bool {
    match (&event.branch, &cx.branch) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(of_event), Some(current)) => {
            current == of_event || current.strip_prefix(of_event.as_str()).is_some_and(|rest| rest.starts_with('.'))
        }
    }
}

/// What another agent said, as the user would tell it.
fn told(author: &str, content: &Content) -> Content {
    let mut parts = vec![Part::text("For context:")];
    for part in content.parts.iter().filter(|part| !part.is_thought()) {
        if let Some(text) = part.as_text() {
            parts.push(Part::text(format!("[{author}] said: {text}")));
        } else if let Some(call) = part.function_call() {
            parts.push(Part::text(format!("[{author}] called tool `{}` with parameters: {}", call.name, call.args)));
        } else if let Some(response) = part.function_response() {
            let (name, result) = (response.name, response.response);
            parts.push(Part::text(format!("[{author}] `{name}` tool returned result: {result}")));
        } else {
            parts.push(part.clone());
        }
    }
    Content { role: Role::User, parts }
}

fn call_ids(content: &Content) -> impl Iterator<Item = Option<&str>> {
    content.parts.iter().filter_map(Part::call_id)
}

fn response_ids(content: &Content) -> impl Iterator<Item = Option<&str>> {
    content.parts.iter().filter_map(Part::response_id)
}

/// Whether each content with calls is followed by its responses: the ordinary case, in which nothing is copied.
fn paired(contents: &[Arc<Content>]) -> bool {
    let before = std::iter::once(None).chain(contents.iter().map(Some));
    let after = contents.iter().map(Some).chain(std::iter::once(None));
    before.zip(after).all(|(before, after)| {
        let calls = before.into_iter().flat_map(|content| call_ids(content));
        let responses = after.into_iter().flat_map(|content| response_ids(content));
        calls.eq(responses)
    })
}

/// Puts each call's response right behind it.
fn pair(contents: Vec<Arc<Content>>) -> Vec<Arc<Content>> {
    let responses: Vec<(Option<String>, Part)> = contents
        .iter()
        .flat_map(|content| content.parts.iter())
        .filter_map(|part| Some((part.function_response()?.id, part.clone())))
        .collect();
    let mut used = HashSet::new();
    let mut out = Vec::with_capacity(contents.len());
    for content in contents {
        let calls = content.function_calls();
        let rest: Vec<Part> = content.parts.iter().filter(|p| p.response_id().is_none()).cloned().collect();
        if rest.len() == content.parts.len() {
            out.push(content);
        } else if !rest.is_empty() {
            // Its responses have moved; what was said beside them stays.
            out.push(Arc::new(Content { role: content.role, parts: rest }));
        }
        if !calls.is_empty() {
            let parts = calls.iter().map(|call| answer(call, &responses, &mut used)).collect();
            out.push(Arc::new(Content { role: Role::User, parts }));
        }
    }
    out
}

fn answer(call: &FunctionCall, responses: &[(Option<String>, Part)], used: &mut HashSet<usize>) -> Part {
    // The newest response to an id is the true one.
    let found = responses.iter().enumerate().rev().find(|(index, (id, _))| *id == call.id && !used.contains(index));
    match found {
        Some((index, (_, part))) => {
            used.insert(index);
            part.clone()
        }
        None => {
            let message = "The call was interrupted before it had a result; it may or may not have taken effect.";
            Part::response(&FunctionResponse::error(call, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InMemorySessionService;
    use crate::runner::tests_support::context;

    fn said(author: &str, parts: Vec<Part>) -> Event {
        let role = if author == "user" { Role::User } else { Role::Model };
        Event { author: author.into(), content: Some(Arc::new(Content { role, parts })), ..Event::default() }
    }

    fn call(id: &str) -> Part {
        Part::call(&FunctionCall { id: Some(id.into()), name: "f".into(), args: serde_json::json!({}) })
    }

    fn response(id: &str) -> Part {
        let call = FunctionCall { id: Some(id.into()), name: "f".into(), args: serde_json::json!({}) };
        Part::response(&FunctionResponse::output(&call, "ok"))
    }

    fn built(events: &[Event]) -> Vec<String> {
        let cx = context(&InMemorySessionService::default());
        build(events, &cx)
            .iter()
            .map(|content| {
                let calls: String = call_ids(content).map(|id| format!("?{}", id.unwrap_or_default())).collect();
                let answers: String = response_ids(content).map(|id| format!("!{}", id.unwrap_or_default())).collect();
                let errors = content.function_responses().iter().filter(|r| r.error_message().is_some()).count();
                format!("{}{calls}{answers}{}", content.joined_text(), "x".repeat(errors))
            })
            .collect()
    }

    #[test]
    fn ordinary_history_is_shared_not_copied() {
        let events = [said("user", vec![Part::text("hi")]), said("agent", vec![call("1")]), {
            said("user", vec![response("1")])
        }];
        let cx = context(&InMemorySessionService::default());
        let contents = build(&events, &cx);
        assert!(contents.iter().zip(&events).all(|(a, b)| Arc::ptr_eq(a, b.content.as_ref().unwrap())));
    }

    #[test]
    fn late_responses_move_and_lost_ones_are_told() {
        let events = [
            said("agent", vec![call("1"), call("2")]),
            said("user", vec![Part::text("meanwhile")]),
            said("user", vec![response("2")]),
        ];
        assert_eq!(built(&events), ["?1?2", "!1!2x", "meanwhile"]);
    }

    #[test]
    fn other_agents_are_told_as_context() {
        let events = [said("helper", vec![Part::text("done")])];
        assert_eq!(built(&events), ["For context:[helper] said: done"]);
    }

    #[test]
    fn other_branches_are_not_seen() {
        let mut elsewhere = said("agent", vec![Part::text("secret")]);
        elsewhere.branch = Some("root.child".into());
        assert!(built(&[elsewhere]).is_empty());
    }
}
