//! Sessions: created, joined, left, named, listed, closed. Source: daemon specification, §d and §h.

use std::path::Path;

use bytes::Bytes;
use convoke_bridge::{Answer, CreateRequest, Input, Journal, Refusal, SessionAnswer, SessionProfile, SessionScope};
use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::{ClientId, SessionId};
use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::{Uuid, Variant};

use super::Incoming;
use super::context::{invalid_mode, read_mode};
use crate::agents::Hosted;
use crate::driver::Handle;
use crate::http_error::HttpError;
use crate::options::DaemonLimits;
use crate::respond::{self, Reply};
use crate::service::Service;

/// `POST /session`: the workspace's shared session, or one of the caller's own.
pub(super) async fn create(service: &Service, incoming: &Incoming<'_>) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    check_workspace(service, incoming)?;
    let request = CreateRequest {
        workspace: service.facts.workspace.clone(),
        scope: scope(incoming)?,
        session: chosen_id(incoming)?,
        client,
        minted: mint(),
        profile: SessionProfile {
            model_service_id: incoming.text("modelServiceId").filter(|id| !id.is_empty()).map(str::to_owned),
            approval_mode: match incoming.fields.get("approvalMode") {
                None | Some(Value::Null) => None,
                Some(mode) => Some(read_mode(mode).ok_or_else(|| invalid_mode("`approvalMode` must be"))?),
            },
            source_type: incoming.text("sourceType").map(str::to_owned),
            source_id: incoming.text("sourceId").map(str::to_owned),
            agent: agent(service, incoming)?,
        },
    };
    let sources =
        [("sourceType", request.profile.source_type.clone()), ("sourceId", request.profile.source_id.clone())];
    refuse_stored(&service.handle, &request).await?;
    let asks_for_agent = request.profile.agent.is_some();
    let asks_for_model = request.profile.model_service_id.is_some();
    let answer = session_answer(service.handle.call(|call| Input::Create { call, request }).await?)?;
    let mut body = created(&answer);
    if asks_for_agent {
        // A shared session that was there goes on with its own.
        let key = answer.agent;
        let name = service.handle.look(move |view| view.agents.name_of(key).map(str::to_owned)).await?;
        body.extend(name.map(|name| ("agent".to_owned(), Value::String(name))));
    }
    if !answer.created.attached {
        let given = sources.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))));
        body.extend(given);
        if asks_for_model {
            let session = answer.created.session_id;
            let applied = service.handle.look(move |view| view.hosted(&session).map(Hosted::model_applied)).await?;
            body.extend(applied.ok().flatten().map(|applied| ("modelApplied".to_owned(), Value::Bool(applied))));
        }
    }
    Ok(respond::json(StatusCode::OK, &body))
}

/// `POST /session/:id/load`: joins a live session, or restores one, with what its agent told again and the events that
/// are kept since.
pub(super) async fn load(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let answer = restore(service, incoming, id).await?;
    let session = answer.created.session_id.clone();
    let seen = service.handle.look(move |view| {
        let hosted = view.hosted(&session)?;
        Ok::<_, Refusal>((view.bridge.journal(&session)?, hosted.state().wire(), hosted.replay()))
    });
    let (Journal { frames, last_event_id, epoch }, state, replay) = seen.await??;
    let mut body = created(&answer);
    body.insert("state".to_owned(), state);
    body.insert("lastEventId".to_owned(), json!(last_event_id));
    body.insert("eventEpoch".to_owned(), json!(epoch));
    let live = latest(&frames, &service.facts.limits);
    if replay.is_cut() || live.len() < frames.len() {
        body.insert("partial".to_owned(), json!(true));
        body.insert("historyHasMore".to_owned(), json!(true));
    }
    let live = live.iter().map(|frame| &frame.json);
    Ok(respond::json_bytes(StatusCode::OK, with_events(&body, replay.events(), live)))
}

/// The last frames that fit into a journal.
fn latest<'a>(frames: &'a [EncodedFrame], limits: &DaemonLimits) -> &'a [EncodedFrame] {
    let mut bytes = 0_usize;
    let fits = |frame: &&EncodedFrame| {
        bytes = bytes.saturating_add(frame.json.len());
        bytes <= limits.journal_bytes
    };
    let count = frames.iter().rev().take(limits.journal_events).take_while(fits).count();
    frames.get(frames.len().saturating_sub(count)..).unwrap_or_default()
}

/// Adds the events as `compactedReplay` and `liveJournal`. They were encoded when they were made; megabytes of them are
/// not read again.
fn with_events<'a>(
    body: &Map<String, Value>,
    replay: impl Iterator<Item = &'a Bytes>,
    live: impl Iterator<Item = &'a Bytes>,
) -> Bytes {
    // A map of JSON values can't fail to encode into memory.
    let mut bytes = serde_json::to_vec(body).unwrap_or_default();
    if bytes.pop() == Some(b'}') {
        bytes.extend_from_slice(b",\"compactedReplay\":[");
        extend_list(&mut bytes, replay);
        bytes.extend_from_slice(b"],\"liveJournal\":[");
        extend_list(&mut bytes, live);
        bytes.extend_from_slice(b"]}");
    }
    Bytes::from(bytes)
}

fn extend_list<'a>(bytes: &mut Vec<u8>, events: impl Iterator<Item = &'a Bytes>) {
    for (position, event) in events.enumerate() {
        if position > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(event);
    }
}

/// `POST /session/:id/resume`: as load, without the events.
pub(super) async fn resume(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let answer = restore(service, incoming, id).await?;
    let session = answer.created.session_id.clone();
    let state = service.handle.look(move |view| view.hosted(&session).map(|hosted| hosted.state().wire())).await??;
    let mut body = created(&answer);
    body.insert("state".to_owned(), state);
    body.insert("lastEventId".to_owned(), json!(answer.last_event_id));
    body.insert("eventEpoch".to_owned(), json!(answer.epoch));
    Ok(respond::json(StatusCode::OK, &body))
}

async fn restore(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<SessionAnswer, HttpError> {
    let client = incoming.client()?;
    check_workspace(service, incoming)?;
    attach(service, SessionId::from(id), client, mint()).await
}

async fn attach(
    service: &Service,
    session: SessionId,
    client: Option<ClientId>,
    minted: ClientId,
) -> Result<SessionAnswer, HttpError> {
    let workspace = service.facts.workspace.clone();
    let call = service.handle.call(|call| Input::Restore { call, session, workspace, client, minted });
    session_answer(call.await?)
}

/// Loads a session again that ended because its agent died, for a caller who was on it, or an anonymous one.
///
/// The answer is the caller's id on it: its own, or a new one for an anonymous caller. `None` if there was nothing to do.
pub(super) async fn revive(
    service: &Service,
    session: &SessionId,
    client: Option<&ClientId>,
) -> Result<Option<ClientId>, HttpError> {
    let (wanted, claimed) = (session.clone(), client.cloned());
    let fell = service.handle.look(move |view| {
        let members = view.fallen.clients_of(&wanted).filter(|_| view.bridge.authorize(&wanted, None).is_err())?;
        Some(claimed.is_none_or(|client| members.contains(&client)))
    });
    if fell.await? != Some(true) {
        return Ok(None);
    }
    tracing::info!(sessionId = %session, "a prompt brings a session back whose agent died");
    let id = client.cloned().unwrap_or_else(mint);
    let answer = attach(service, session.clone(), None, id).await?;
    Ok(Some(answer.created.client_id))
}

fn mint() -> ClientId {
    ClientId(format!("client_{}", Uuid::new_v4()))
}

fn session_answer(answer: Answer) -> Result<SessionAnswer, HttpError> {
    match answer {
        Answer::Session(answer) => Ok(answer),
        _ => Err(HttpError::internal()),
    }
}

fn created(answer: &SessionAnswer) -> Map<String, Value> {
    match serde_json::to_value(&answer.created) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn check_workspace(service: &Service, incoming: &Incoming<'_>) -> Result<(), HttpError> {
    let bound = service.facts.workspace.as_str();
    let cwd = match incoming.fields.get("cwd") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(cwd)) => cwd,
        Some(_) => return Err(HttpError::malformed("`cwd` must be a string absolute path when provided")),
    };
    if !Path::new(cwd).is_absolute() {
        return Err(HttpError::malformed("`cwd` must be an absolute path when provided"));
    }
    // Paths compare by their parts, so a slash at the end makes no difference.
    if Path::new(cwd) == Path::new(bound) {
        return Ok(());
    }
    Err(mismatch(
        &format!(
            "Workspace mismatch: runtime is bound to \"{bound}\" but request asked for \"{cwd}\". Start another daemon \
             for that folder; this one will not fall back to its own."
        ),
        bound,
        cwd,
    ))
}

/// The agent that a caller asks for.
fn agent(service: &Service, incoming: &Incoming<'_>) -> Result<Option<String>, HttpError> {
    let named = match incoming.fields.get("agent") {
        None | Some(Value::Null) => return Ok(None),
        Some(named) => named.as_str(),
    };
    let names = &service.facts.agents;
    match names.iter().find(|name| Some(name.as_str()) == named) {
        Some(name) => Ok(Some(name.clone())),
        None => {
            let text = format!("`agent` must be one of: {}", names.join(", "));
            let body = json!({"error": text, "code": "unknown_agent", "allowed": names});
            Err(HttpError::new(StatusCode::BAD_REQUEST, body))
        }
    }
}

/// Refuses a chosen id under which a session can be loaded: a new one would take its place.
pub(crate) async fn refuse_stored(handle: &Handle, request: &CreateRequest) -> Result<(), HttpError> {
    let Some(session) = request.session.clone() else { return Ok(()) };
    let wanted = session.clone();
    let stored = handle.look(move |view| {
        let live = view.bridge.status(&wanted).is_ok();
        !live && view.agents.store().get(&wanted).is_some()
    });
    if !stored.await? {
        return Ok(());
    }
    let body = json!({
        "error": format!("Session \"{session}\" already exists; load it instead."),
        "code": "session_id_conflict",
        "sessionId": session,
        "conflict": "stored",
    });
    Err(HttpError::new(StatusCode::CONFLICT, body))
}

pub(super) fn mismatch(text: &str, bound: &str, requested: &str) -> HttpError {
    let body = json!({
        "error": text,
        "code": "workspace_mismatch",
        "boundWorkspace": bound,
        "requestedWorkspace": requested,
    });
    HttpError::new(StatusCode::BAD_REQUEST, body)
}

fn scope(incoming: &Incoming<'_>) -> Result<SessionScope, HttpError> {
    match incoming.fields.get("sessionScope") {
        None | Some(Value::Null) => Ok(SessionScope::Single),
        Some(Value::String(scope)) if scope == "single" => Ok(SessionScope::Single),
        Some(Value::String(scope)) if scope == "thread" => Ok(SessionScope::Thread),
        Some(_) => Err(HttpError::bad_request(
            "`sessionScope` must be \"single\" or \"thread\" when provided",
            "invalid_session_scope",
        )),
    }
}

fn chosen_id(incoming: &Incoming<'_>) -> Result<Option<SessionId>, HttpError> {
    chosen_session(incoming.fields.get("sessionId"))
        .map_err(|invalid| HttpError::bad_request(invalid.0, "invalid_session_id"))
}

/// An id that can't be chosen, and why.
pub(crate) struct InvalidId(pub(crate) &'static str);

/// The id that a caller chose, in lower case.
pub(crate) fn chosen_session(chosen: Option<&Value>) -> Result<Option<SessionId>, InvalidId> {
    let chosen = match chosen {
        None | Some(Value::Null) => return Ok(None),
        Some(chosen) => chosen.as_str().filter(|text| is_rfc_uuid(text)),
    };
    match chosen {
        Some(chosen) => Ok(Some(SessionId(chosen.to_ascii_lowercase()))),
        None => Err(InvalidId("`sessionId` must be an RFC UUID v1-v5 (e.g. \"550e8400-e29b-41d4-a716-446655440000\")")),
    }
}

fn is_rfc_uuid(text: &str) -> bool {
    // The parser takes other spellings, too: without hyphens, in braces, as a URN.
    text.len() == 36
        && Uuid::try_parse(text)
            .is_ok_and(|id| id.get_variant() == Variant::RFC4122 && (1..=5).contains(&id.get_version_num()))
}

/// `DELETE /session/:id`: closes it for everyone.
pub(super) async fn close(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    service.handle.call(|call| Input::Close { call, session, caller }).await?;
    Ok(respond::no_content())
}

/// `GET /session/:id/status`.
pub(super) async fn status(service: &Service, id: &str) -> Result<Reply, HttpError> {
    let session = SessionId::from(id);
    let status = service.handle.look(move |view| view.bridge.status(&session)).await??;
    Ok(respond::json(StatusCode::OK, &status))
}

/// `POST /session/:id/heartbeat`.
pub(super) async fn heartbeat(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    let client = caller.client.clone();
    let answer = service.handle.call(|call| Input::Heartbeat { call, session, caller }).await?;
    let Answer::Heartbeat { last_seen_at } = answer else { return Err(HttpError::internal()) };
    let mut body = json!({"sessionId": id});
    if let Value::Object(fields) = &mut body {
        fields.extend(client.map(|client| ("clientId".to_owned(), json!(client))));
        fields.insert("lastSeenAt".to_owned(), json!(last_seen_at));
    }
    Ok(respond::json(StatusCode::OK, &body))
}

/// `POST /session/:id/detach`: always 204; there is nothing to learn about sessions or ids here.
pub(super) async fn detach(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    service.handle.tell(Input::Detach { session: SessionId::from(id), client }).await?;
    Ok(respond::no_content())
}

/// `PATCH /session/:id/metadata`: names the session, or tells its name.
pub(super) async fn metadata(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    let display_name = match incoming.fields.get("displayName") {
        None => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => {
            let body = json!({
                "error": "`displayName` must be a string",
                "code": "invalid_metadata",
                "field": "displayName",
            });
            return Err(HttpError::new(StatusCode::BAD_REQUEST, body));
        }
    };
    let answer = service.handle.call(|call| Input::SetMetadata { call, session, caller, display_name }).await?;
    let Answer::Metadata { display_name } = answer else { return Err(HttpError::internal()) };
    let mut body = json!({"sessionId": id});
    if let (Value::Object(fields), Some(name)) = (&mut body, display_name) {
        fields.insert("displayName".to_owned(), Value::String(name));
    }
    Ok(respond::json(StatusCode::OK, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ids_are_rfc_uuids() {
        for (text, expected) in [
            ("550e8400-e29b-41d4-a716-446655440000", true),
            ("550E8400-E29B-41D4-A716-446655440000", true),
            ("11111111-1111-1111-8111-111111111111", true),
            ("550e8400-e29b-71d4-a716-446655440000", false),
            ("550e8400-e29b-01d4-a716-446655440000", false),
            ("550e8400-e29b-41d4-c716-446655440000", false),
            ("550e8400e29b41d4a716446655440000", false),
            ("{550e8400-e29b-41d4-a716-446655440000}", false),
            ("not-a-uuid", false),
            ("", false),
        ] {
            assert_eq!(is_rfc_uuid(text), expected, "{text}");
        }
    }
}
