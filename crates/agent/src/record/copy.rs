//! A record out of a conversation that comes from elsewhere: a file of Gemini CLI, or a point of another session.

use std::path::Path;

use convoke_stdx::{iso8601, write_atomic};

use super::chats::RecordError;
use super::conversation::Conversation;
use super::line::{Line, Set};

/// Writes `conversation` as a record of its own: the whole of it or nothing.
pub(super) fn write(
    path: &Path,
    first: &Line<'_>,
    conversation: &Conversation,
    now_ms: u64,
) -> Result<(), RecordError> {
    let mut bytes = first.sealed();
    for line in conversation.lines() {
        bytes.extend(line.sealed());
    }
    let set = Set {
        last_updated: Some(iso8601(now_ms)),
        session_id: first.session_id.as_deref().map(ToOwned::to_owned),
        message_count: Some(conversation.message_count()),
        title: conversation.title(),
        summary: conversation.summary.clone(),
        messages: None,
    };
    bytes.extend(Line { set: Some(Box::new(set)), ..Line::default() }.sealed());
    let failed = |source| RecordError::Write { path: path.to_owned(), source };
    write_atomic(path, &bytes).map_err(failed)?;
    private(path).map_err(failed)
}

/// What was said concerns its owner alone.
fn private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}
