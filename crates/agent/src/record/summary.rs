//! A record in one line of a list, without reading the whole of it where that can be helped.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::conversation::Conversation;
use super::line::{Line, V, is_sealed};

/// Bytes at either end of a large file that tell enough: the first line, and the last.
const END_BYTES: u64 = 16 << 10;

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) cwd: Option<PathBuf>,
    pub(super) title: Option<String>,
    pub(super) started_ms: u64,
    pub(super) updated_ms: u64,
    pub(super) message_count: usize,
    pub(super) ours: bool,
}

/// What a list says of the record at `path`; `None` for what is none, or has nothing in it, or belongs to a subagent.
pub(super) fn summarize(path: &Path) -> Option<Summary> {
    let mut file = convoke_stdx::open_regular(path).ok()?;
    let meta = file.metadata().ok()?;
    let touched = meta.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let touched_ms = u64::try_from(touched.as_millis()).unwrap_or_default();
    let quick = if meta.len() > 2 * END_BYTES { of_ends(path, &mut file, meta.len()).ok().flatten() } else { None };
    let summary = match quick {
        Some(summary) => summary,
        None => of_whole(path, &Conversation::read_file(path).ok()?, touched_ms)?,
    };
    (summary.message_count > 0).then_some(summary)
}

/// From the first and the last line, which says where things stood at the end of the last turn.
fn of_ends(path: &Path, file: &mut File, length: u64) -> io::Result<Option<Summary>> {
    let mut ends = [Vec::new(), Vec::new()];
    for (bytes, at) in ends.iter_mut().zip([0, length - END_BYTES]) {
        file.seek(SeekFrom::Start(at))?;
        file.by_ref().take(END_BYTES).read_to_end(bytes)?;
    }
    let [head, tail] = &ends;
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let last = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if !is_sealed(first) || !is_sealed(last) {
        return Ok(None);
    }
    let parsed = (serde_json::from_slice::<Line<'static>>(first), serde_json::from_slice::<Line<'static>>(last));
    let (Ok(first), Ok(Line { set: Some(set), .. })) = parsed else { return Ok(None) };
    let is_known = first.v.is_some_and(|v| v <= V) && first.kind.as_deref() == Some("main");
    let (true, Some(id), Some(message_count)) = (is_known, first.session_id, set.message_count) else {
        return Ok(None);
    };
    let moment = |text: Option<String>| text.as_deref().and_then(convoke_stdx::parse_iso8601).unwrap_or_default();
    Ok(Some(Summary {
        id: id.into_owned(),
        path: path.to_owned(),
        cwd: first.cwd.map(PathBuf::from),
        title: set.summary.or(set.title),
        started_ms: moment(first.start_time),
        updated_ms: moment(set.last_updated),
        message_count,
        ours: true,
    }))
}

fn of_whole(path: &Path, conversation: &Conversation, touched_ms: u64) -> Option<Summary> {
    if conversation.subagent || conversation.is_from_the_future() {
        return None;
    }
    Some(Summary {
        id: conversation.session_id.clone()?,
        path: path.to_owned(),
        cwd: conversation.cwd.clone(),
        title: conversation.title(),
        started_ms: conversation.started_ms.or(conversation.updated_ms).unwrap_or(touched_ms),
        updated_ms: conversation.updated_ms.unwrap_or(touched_ms),
        message_count: conversation.message_count(),
        ours: conversation.ours,
    })
}
