//! How is what a seat asks put to the bridge?
//!
//! In order: when [`place`] returns, a question has its place among all others, so that a client's `session/cancel`
//! never overtakes its prompt. Its answer is waited for elsewhere.

use convoke_bridge::{Answer, Caller, CreateRequest, Input, SessionAnswer, SessionProfile, SessionScope};
use convoke_protocol::daemon::dto::SessionSummary;
use convoke_protocol::{ClientId, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use uuid::Uuid;

use super::seat::{Answered, Joined, Order, TurnState};
use crate::driver::{Handle, Submitted};
use crate::http_error::HttpError;
use crate::routes::list::known;
use crate::routes::session::refuse_stored;

/// An answer that is under way.
pub(super) type Placed = BoxFuture<'static, Result<Answered, HttpError>>;

/// Most sessions in one list: every one that the default limits allow.
const LIST_MAX: usize = 800;

/// Puts a question.
pub(super) async fn place(handle: &Handle, workspace: &str, order: Order, loopback: bool) -> Placed {
    match submit(handle, workspace, order, loopback).await {
        Ok(placed) => placed,
        Err(error) => futures::future::ready(Err(error)).boxed(),
    }
}

async fn submit(handle: &Handle, workspace: &str, order: Order, loopback: bool) -> Result<Placed, HttpError> {
    let caller = |client| Caller { client: Some(client), loopback };
    let workspace = workspace.to_owned();
    Ok(match order {
        Order::New { session } => {
            let request = CreateRequest {
                workspace,
                scope: SessionScope::Thread,
                session,
                client: None,
                minted: mint(),
                profile: SessionProfile::default(),
            };
            refuse_stored(handle, &request).await?;
            joined(handle, handle.submit(|call| Input::Create { call, request }).await?)
        }
        Order::Restore { session, client } => {
            let minted = mint();
            let input = |call| Input::Restore { call, session, workspace, client, minted };
            joined(handle, handle.submit(input).await?)
        }
        Order::List => {
            let sessions = handle.look(move |view| known(view, &workspace)).await?;
            let sessions: Vec<_> = sessions.iter().take(LIST_MAX).map(listed).collect();
            ready(Answered::Body(json!({"sessions": sessions})))
        }
        Order::Close { session, client } => {
            let caller = caller(client);
            plain(handle.submit(|call| Input::Close { call, session, caller }).await?)
        }
        Order::Prompt { session, client, prompt: prompt_id, blocks } => {
            let caller = caller(client);
            let input = |call| Input::Prompt { call, session, caller, prompt_id, blocks, deadline: None };
            plain(handle.submit(input).await?)
        }
        Order::Cancel { session, client } => {
            let caller = caller(client);
            plain(handle.submit(|call| Input::Cancel { call, session, caller }).await?)
        }
        Order::CancelOwn { session, client, prompts } => {
            let here = session.clone();
            let running = handle.look(move |view| view.bridge.turn(&here, None)).await??;
            if !running.is_some_and(|turn| prompts.contains(&turn.prompt_id)) {
                return Ok(ready(Answered::Done));
            }
            let caller = caller(client);
            plain(handle.submit(|call| Input::Cancel { call, session, caller }).await?)
        }
        Order::SetMode { session, client, mode } => {
            let handle = handle.clone();
            async move {
                handle.set_mode(session, Some(client), mode).await?;
                Ok(Answered::Done)
            }
            .boxed()
        }
        Order::SetModel { session, client, model } => {
            let handle = handle.clone();
            async move {
                let answer = handle.set_model(session, Some(client), model).await?;
                Ok(if answer.is_object() { Answered::Body(answer) } else { Answered::Done })
            }
            .boxed()
        }
        Order::Heartbeat { session, client } => {
            let (caller, about) = (caller(client.clone()), json!({"sessionId": session, "clientId": client}));
            let submitted = handle.submit(|call| Input::Heartbeat { call, session, caller }).await?;
            with(submitted, about, |answer| match answer {
                Answer::Heartbeat { last_seen_at } => Some(("lastSeenAt", json!(last_seen_at))),
                _ => None,
            })
        }
        Order::Metadata { session, client, display_name } => {
            let (caller, about) = (caller(client), json!({"sessionId": session}));
            let submitted = handle.submit(|call| Input::SetMetadata { call, session, caller, display_name }).await?;
            with(submitted, about, |answer| match answer {
                Answer::Metadata { display_name } => display_name.map(|name| ("displayName", json!(name))),
                _ => None,
            })
        }
        Order::Vote { session, client, request, choice } => {
            let (caller, session) = (caller(client), Some(session));
            plain(handle.submit(|call| Input::Vote { call, session, request, caller, choice }).await?)
        }
        Order::Turn { session, prompt } => {
            let turn = handle.look(move |view| view.bridge.turn(&session, Some(&prompt))).await??;
            ready(Answered::Turn(match turn.map(|turn| (turn.state, turn.stop_reason)) {
                Some(("queued" | "running", _)) => TurnState::Open,
                Some((_, Some(stop_reason))) => TurnState::Ended { stop_reason },
                Some((_, None)) | None => TurnState::Lost,
            }))
        }
        Order::Detach { session, client } => {
            handle.tell(Input::Detach { session, client: Some(client) }).await?;
            // The subscription ends after this, and must not be seen to end before.
            handle.look(|_| ()).await?;
            ready(Answered::Done)
        }
    })
}

fn mint() -> ClientId {
    ClientId(format!("client_{}", Uuid::new_v4()))
}

fn ready(answered: Answered) -> Placed {
    futures::future::ready(Ok(answered)).boxed()
}

fn plain(submitted: Submitted) -> Placed {
    async move {
        submitted.answer().await?;
        Ok(Answered::Done)
    }
    .boxed()
}

/// A body with one more field, if the answer has it.
fn with(
    submitted: Submitted,
    mut body: Value,
    field: impl FnOnce(Answer) -> Option<(&'static str, Value)> + Send + 'static,
) -> Placed {
    async move {
        let field = field(submitted.answer().await?);
        if let (Value::Object(fields), Some((name, value))) = (&mut body, field) {
            fields.insert(name.to_owned(), value);
        }
        Ok(Answered::Body(body))
    }
    .boxed()
}

/// A session that was joined, with what its agent told of it.
fn joined(handle: &Handle, submitted: Submitted) -> Placed {
    let handle = handle.clone();
    async move {
        let Answer::Session(answer) = submitted.answer().await? else { return Err(HttpError::internal()) };
        let mut joined = member(answer);
        let session = joined.session.clone();
        let state = handle.look(move |view| view.hosted(&session).map(|hosted| hosted.state().wire())).await;
        // A session that ended at once is told of as such by its events.
        if let (Ok(Ok(Value::Object(state))), Value::Object(body)) = (state, &mut joined.body) {
            body.extend(state.into_iter().filter(|(_, value)| !value.is_null()));
        }
        Ok(Answered::Session(joined))
    }
    .boxed()
}

fn member(answer: SessionAnswer) -> Joined {
    let SessionAnswer { created, agent: _, last_event_id, epoch } = answer;
    let (session, client): (SessionId, ClientId) = (created.session_id.clone(), created.client_id.clone());
    Joined { session, client, epoch, last_event_id, body: json!({"_meta": {"qwen": created}}) }
}

fn listed(summary: &SessionSummary) -> Value {
    let status = &summary.status;
    json!({
        "sessionId": status.session_id,
        "cwd": status.workspace_cwd,
        "title": status.display_name,
        "updatedAt": status.updated_at.as_ref().unwrap_or(&status.created_at),
        "_meta": {"qwen": {"clientCount": status.client_count, "hasActivePrompt": status.has_active_prompt}},
    })
}
