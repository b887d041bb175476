//! Recorded sessions in ACP's words: `session/list`, and what `session/load` and `session/resume` begin with.

use std::collections::VecDeque;

use convoke_protocol::{
    AgentEvent, HostedSession, ListSessions, LoadFrom, LoadSession, LoadedSession, NewSession, SessionError,
    SessionFactory, SessionId, SessionRecords, StoredSession,
};
use convoke_stdx::iso8601;
use serde_json::{Map, Value, json};

use crate::rpc_error::{METHOD_NOT_FOUND, RpcError};

/// Sessions in one answer: what a picker shows at once.
const PAGE: usize = 100;

/// How a client goes on with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoOn {
    /// `session/load`: with everything that was said, for the client to show.
    Load,
    /// `session/resume`: the client knows already.
    Resume,
}

/// What a session says before its first turn.
#[derive(Default)]
pub(super) struct Past {
    /// Whether the client wants to see what was said.
    pub(super) replay: bool,
    /// What was said before. As long as the record.
    pub(super) history: VecDeque<AgentEvent>,
    pub(super) title: Option<String>,
    /// Lines of the record that are missing in all this.
    pub(super) damaged: usize,
}

/// Where the records are; a factory without has none of their methods.
pub(super) fn records(factory: &dyn SessionFactory) -> Result<&dyn SessionRecords, RpcError> {
    factory.records().ok_or_else(|| RpcError::new(METHOD_NOT_FOUND, "this agent keeps no records of its sessions"))
}

/// Goes on with a recorded session.
pub(super) async fn open(
    factory: &dyn SessionFactory,
    id: SessionId,
    go_on: GoOn,
    session: NewSession,
) -> Result<(HostedSession, Past), RpcError> {
    let replay = go_on == GoOn::Load;
    let load = LoadSession { from: LoadFrom::Session(id), session, replay };
    let LoadedSession { session, history, title, damaged } = records(factory)?.load_session(load).await?;
    Ok((session, Past { replay, history: history.into(), title, damaged }))
}

/// Answers `session/list`.
pub(super) async fn list(factory: &dyn SessionFactory, list: ListSessions) -> Result<Value, RpcError> {
    let page = records(factory)?.list_sessions(ListSessions { limit: Some(PAGE), ..list }).await?;
    let session = |session: StoredSession| {
        let mut told = Map::new();
        told.insert("sessionId".to_owned(), json!(session.id));
        told.insert("cwd".to_owned(), json!(session.cwd));
        told.extend(session.title.map(|title| ("title".to_owned(), json!(title))));
        told.insert("updatedAt".to_owned(), json!(iso8601(session.updated_ms)));
        let meta = json!({"createdAt": iso8601(session.created_ms), "messageCount": session.message_count});
        told.insert("_meta".to_owned(), meta);
        Value::Object(told)
    };
    let mut answer = Map::new();
    answer.insert("sessions".to_owned(), page.sessions.into_iter().map(session).collect());
    answer.extend(page.next.map(|next| ("nextCursor".to_owned(), json!(next))));
    Ok(Value::Object(answer))
}

/// Answers `session/delete`. What is not there is what was asked for. Source: ACP v1, "Session Delete".
pub(super) async fn delete(factory: &dyn SessionFactory, id: &SessionId) -> Result<Value, RpcError> {
    match records(factory)?.delete_session(id).await {
        Ok(()) | Err(SessionError::Unknown(_)) => Ok(json!({})),
        Err(error) => Err(error.into()),
    }
}
