//! Who writes a record: hears of everything that a session says and does, and puts it on a line before anybody else is
//! told.
//!
//! What can't be written ends the recording, with one warning, and never the session.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use convoke_adk::{Content, Event, GetSession, LiveSession, Part, Role, SessionKey, SessionService, SessionSummary};
use convoke_stdx::{Clock, iso8601};
use convoke_tools::{CallRecord, ModeChange, SchedulerObserver};
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use super::chats;
use super::conversation::{Conversation, title_of};
use super::events::error_record;
use super::file::{OpenError, RecordFile};
use super::line::{Compress, Line, Mask, Set, borrowed};
use super::shown;
use crate::{Compressed, HistoryListener, MaskedOutput};

/// Writes the record of one session.
///
/// The file begins with the first event: a session that was never prompted leaves nothing behind.
#[derive(Clone)]
pub struct Recorder {
    pub(super) inner: Arc<Inner>,
}

/// Whose record it is.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) session_id: String,
    pub(super) cwd: PathBuf,
    pub(super) started_ms: u64,
    pub(super) subagent: bool,
}

pub(super) struct Inner {
    pub(super) about: About,
    clock: Clock,
    state: Mutex<State>,
    syncs: TaskTracker,
    sync: Mutex<Syncing>,
    on_stopped: Mutex<Option<OnStopped>>,
}

type OnStopped = Box<dyn Fn(String) + Send>;

/// Who waits for the disk: at most one, who goes on if more was written meanwhile.
#[derive(Default)]
struct Syncing {
    running: bool,
    again: bool,
}

pub(super) struct State {
    pub(super) place: Place,
    /// What a person wrote, until its event comes.
    pub(super) prompt: Option<Pending>,
    /// The ids of the last answer's calls that have not ended. Calls of anybody else, such as the files that a prompt
    /// mentions, are no part of the conversation.
    pub(super) asked: Vec<String>,
    /// What was written of the calls of the last answer; as many as one answer has.
    pub(super) batch: Vec<Kept>,
    pub(super) count: usize,
    pub(super) title: Option<String>,
    pub(super) summary: Option<String>,
    /// Whether something was written since the last end of a turn.
    open_turn: bool,
}

pub(super) enum Place {
    /// Where it will be, and where if that is taken.
    Unwritten([PathBuf; 2]),
    Open(RecordFile),
    /// It can't be written, or the session is over.
    Stopped,
}

pub(super) struct Pending {
    parts: Vec<Part>,
    display: Option<String>,
}

/// A call's result as it was written: to know the response again when it comes.
pub(super) struct Kept {
    id: String,
    /// Checksums of the response and of the parts beside it.
    response: u32,
    siblings: Vec<u32>,
}

fn checksum(part: &Part) -> u32 {
    crc32fast::hash(&serde_json::to_vec(part).unwrap_or_default())
}

impl Recorder {
    /// A record that begins with the first event.
    pub(super) fn new(about: About, paths: [PathBuf; 2]) -> Self {
        Self::with(about, Place::Unwritten(paths), &Conversation::default())
    }

    /// Goes on with a record.
    pub(super) fn resume(about: About, file: RecordFile, conversation: &Conversation) -> Self {
        Self::with(about, Place::Open(file), conversation)
    }

    fn with(about: About, place: Place, conversation: &Conversation) -> Self {
        let state = State {
            place,
            prompt: None,
            asked: Vec::new(),
            batch: Vec::new(),
            count: conversation.message_count(),
            title: conversation.title(),
            summary: conversation.summary.clone(),
            open_turn: false,
        };
        let inner = Inner {
            about,
            clock: Clock::start(),
            state: Mutex::new(state),
            syncs: TaskTracker::new(),
            sync: Mutex::default(),
            on_stopped: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Where the record is, or will be; `None` once it is not written any more.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.state().place {
            Place::Unwritten([path, _]) => Some(path.clone()),
            Place::Open(file) => Some(file.path.clone()),
            Place::Stopped => None,
        }
    }

    /// Whom to tell, once, when the record can't be written any more.
    pub(crate) fn on_stopped(&self, tell: impl Fn(String) + Send + 'static) {
        *self.inner.on_stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tell));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Each step ends with a whole line or a stopped record.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session's events go through this on their way to `sessions`.
    #[must_use]
    pub fn sessions(&self, sessions: Arc<dyn SessionService>) -> Arc<dyn SessionService> {
        Arc::new(RecordedSessions { recorder: self.clone(), sessions })
    }

    /// The session's tool calls go through this on their way to `observer`.
    #[must_use]
    pub fn observer(&self, observer: Arc<dyn SchedulerObserver>) -> Arc<dyn SchedulerObserver> {
        Arc::new(RecordedCalls { recorder: self.clone(), observer })
    }

    /// What changes in the session's past goes through this on its way to `listener`.
    #[must_use]
    pub fn history(&self, listener: Arc<dyn HistoryListener>) -> Arc<dyn HistoryListener> {
        Arc::new(RecordedHistory { recorder: self.clone(), listener })
    }

    /// What a person wrote, before the event in which the model reads it.
    pub(crate) fn prompt(&self, parts: Vec<Part>, display: Option<String>) {
        self.state().prompt = Some(Pending { parts, display });
    }

    /// A name that somebody gave.
    pub(crate) fn title(&self, title: &str) {
        let mut state = self.state();
        state.summary = Some(title.to_owned());
        if !matches!(state.place, Place::Unwritten(_)) {
            let set = Set { summary: state.summary.clone(), ..Set::default() };
            self.write(&mut state, &Line { set: Some(Box::new(set)), ..Line::default() });
        }
    }

    /// The end of a turn: the record says where it stands, and goes to the disk.
    pub(crate) fn turn_over(&self) {
        let mut state = self.state();
        self.end_turn(&mut state);
        if let Place::Open(file) = &state.place {
            let syncer = file.syncer();
            drop(state);
            self.start_sync(syncer);
        }
    }

    /// The end of a turn without the disk, which needs a runtime.
    #[cfg(test)]
    pub(crate) fn turn_written(&self) {
        self.end_turn(&mut self.state());
    }

    fn end_turn(&self, state: &mut State) {
        if !state.open_turn {
            return;
        }
        let set = Set {
            last_updated: Some(iso8601(self.inner.clock.now().wall_ms)),
            session_id: Some(self.inner.about.session_id.clone()),
            message_count: Some(state.count),
            title: state.title.clone(),
            summary: state.summary.clone(),
            messages: None,
        };
        self.write(state, &Line { set: Some(Box::new(set)), ..Line::default() });
        state.open_turn = false;
    }

    fn start_sync(&self, sync: impl Fn() -> std::io::Result<()> + Send + 'static) {
        {
            let mut state = self.inner.sync.lock().unwrap_or_else(PoisonError::into_inner);
            if std::mem::replace(&mut state.running, true) {
                state.again = true;
                return;
            }
        }
        let recorder = self.clone();
        self.inner.syncs.spawn_blocking(move || {
            loop {
                if let Err(error) = sync() {
                    let mut state = recorder.state();
                    recorder.stop(&mut state, &error);
                }
                let mut state = recorder.inner.sync.lock().unwrap_or_else(PoisonError::into_inner);
                if !std::mem::take(&mut state.again) {
                    state.running = false;
                    return;
                }
            }
        });
    }

    /// Ends the recording and waits for the disk. Whether there is a record.
    pub(crate) async fn close(&self) -> bool {
        let (sync, unwritten) = {
            let mut state = self.state();
            self.end_turn(&mut state);
            let unwritten = matches!(state.place, Place::Unwritten(_));
            match std::mem::replace(&mut state.place, Place::Stopped) {
                Place::Open(file) => (Some(file.syncer()), false),
                Place::Unwritten(_) | Place::Stopped => (None, unwritten),
            }
        };
        if let Some(sync) = sync {
            self.start_sync(sync);
        }
        self.inner.syncs.close();
        self.inner.syncs.wait().await;
        !unwritten
    }

    /// Puts one line into the file, which is made with the first one.
    pub(super) fn write(&self, state: &mut State, line: &Line<'_>) {
        let written = match &state.place {
            Place::Open(file) => file.append(&line.sealed()),
            Place::Stopped => return,
            Place::Unwritten(paths) => match self.begin(paths) {
                Ok(file) => {
                    let written = file.append(&line.sealed());
                    state.place = Place::Open(file);
                    written
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = written {
            self.stop(state, &error);
        }
    }

    fn begin(&self, paths: &[PathBuf; 2]) -> std::io::Result<RecordFile> {
        let [first, second] = paths.clone();
        let made = match RecordFile::create(first) {
            Err(OpenError::Io(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                RecordFile::create(second)
            }
            made => made,
        };
        let file = made.map_err(|error| match error {
            OpenError::Io(error) => error,
            OpenError::Locked => std::io::Error::from(std::io::ErrorKind::ResourceBusy),
        })?;
        chats::mark_project(&file.path, &self.inner.about.cwd);
        file.append(&self.inner.about.line().sealed())?;
        Ok(file)
    }

    pub(super) fn stop(&self, state: &mut State, error: &std::io::Error) {
        if matches!(std::mem::replace(&mut state.place, Place::Stopped), Place::Stopped) {
            return;
        }
        let message = format!("this session is not recorded any further: {error}");
        tracing::warn!(session = %self.inner.about.session_id, "{message}");
        if let Some(tell) = &*self.inner.on_stopped.lock().unwrap_or_else(PoisonError::into_inner) {
            tell(message);
        }
    }

    fn event(&self, event: &Event) {
        if event.partial {
            return;
        }
        let mut guard = self.state();
        let state = &mut *guard;
        let content = event.content.as_deref();
        let from_user = content.is_some_and(|content| content.role == Role::User);
        let what = match (from_user, content, &event.error) {
            (true, _, _) => "user",
            (false, None, Some(_)) => "error",
            (false, _, _) => "gemini",
        };
        let mut line = Line {
            what: Some(what.into()),
            id: Some(event.id.as_str().into()),
            timestamp: Some(iso8601(event.timestamp_ms)),
            author: author(event, from_user).map(Cow::Borrowed),
            content: content.and_then(borrowed),
            model: event.model.as_deref().map(Cow::Borrowed),
            tokens: event.usage.as_ref().map(Into::into),
            finish_reason: event.finish_reason.as_ref().map(|reason| reason.0.as_str().into()),
            error: event.error.as_ref().map(error_record).map(Box::new),
            state_delta: kept(&event.actions.state_delta),
            metadata: kept(&event.actions.custom_metadata),
            ..Line::default()
        };
        if from_user && event.author == "user" {
            if let Some(pending) = state.prompt.take() {
                // Again, for a file whose first line is damaged.
                line.session_id = Some(Cow::Owned(self.inner.about.session_id.clone()));
                if state.title.is_none() {
                    state.title = title_of(&pending.parts);
                }
                mark_prompt(&mut line, pending);
                state.count += 1;
            }
        } else if let Some(content) = content.filter(|_| from_user) {
            let ids = content.parts.iter().filter_map(Part::response_id);
            let ids: Vec<String> = ids.flatten().map(ToOwned::to_owned).collect();
            if !ids.is_empty() {
                if is_told(&state.batch, content) {
                    line.content = None;
                }
                line.responses = Some(ids);
                state.batch.clear();
            }
        } else {
            state.batch.clear();
            let ids = content.into_iter().flat_map(|content| content.parts.iter()).filter_map(Part::call_id);
            state.asked = ids.flatten().map(ToOwned::to_owned).collect();
            state.count += usize::from(what == "gemini");
        }
        state.open_turn = true;
        self.write(state, &line);
    }

    fn call(&self, record: &CallRecord) {
        let Some(result) = &record.result else { return };
        let mut state = self.state();
        let now_ms = self.inner.clock.now().wall_ms;
        let call = shown::call_line(record, result, now_ms);
        let Some(at) = state.asked.iter().position(|id| *id == call.id) else { return };
        state.asked.swap_remove(at);
        let siblings = result.parts.iter().map(checksum).collect();
        let response = checksum(&Part::response(&result.response));
        state.batch.push(Kept { id: call.id.clone(), response, siblings });
        let line = Line { what: Some("tool".into()), call: Some(Box::new(call)), ..Line::default() };
        self.write(&mut state, &line);
    }
}

impl About {
    pub(super) fn line(&self) -> Line<'static> {
        Line {
            v: Some(super::line::V),
            session_id: Some(self.session_id.clone().into()),
            project_hash: Some(chats::project_hash(&self.cwd)),
            start_time: Some(iso8601(self.started_ms)),
            last_updated: Some(iso8601(self.started_ms)),
            kind: Some(if self.subagent { "subagent" } else { "main" }.into()),
            cwd: Some(self.cwd.display().to_string()),
            ..Line::default()
        }
    }
}

/// Who said it, where the kind of line does not tell.
fn author(event: &Event, from_user: bool) -> Option<&str> {
    let by_user = event.author == "user";
    let is_results =
        from_user && event.content.as_ref().is_some_and(|c| c.parts.iter().any(|p| p.response_id().is_some()));
    let told = if is_results {
        event.author == super::AGENT
    } else if from_user {
        by_user
    } else {
        event.author == super::AGENT
    };
    (!told).then_some(event.author.as_str())
}

/// State and metadata that are worth a field.
fn kept(map: &Map<String, Value>) -> Option<Cow<'_, Map<String, Value>>> {
    if map.keys().any(|key| key.starts_with("temp:")) {
        let kept = map.iter().filter(|(key, _)| !key.starts_with("temp:"));
        let kept: Map<_, _> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
        return (!kept.is_empty()).then_some(Cow::Owned(kept));
    }
    (!map.is_empty()).then_some(Cow::Borrowed(map))
}

/// Says which parts of the content a person wrote; what they wrote itself where the content has it no more.
fn mark_prompt(line: &mut Line<'_>, pending: Pending) {
    let Pending { parts, display } = pending;
    if let Some(display) = display {
        line.display_content = Some(Cow::Owned(vec![Part::text(display)]));
        return;
    }
    let content = line.content.as_deref().unwrap_or_default();
    match content.windows(parts.len().max(1)).position(|window| window == parts) {
        Some(from) => line.prompt = Some([from, from + parts.len()]),
        None => line.display_content = Some(Cow::Owned(parts)),
    }
}

/// Whether the model was told exactly what was written of its calls.
fn is_told(batch: &[Kept], content: &Content) -> bool {
    let mut left: Vec<&Kept> = batch.iter().collect();
    let (mut responses, mut siblings) = (Vec::new(), Vec::new());
    for id in content.parts.iter().filter_map(Part::response_id).flatten() {
        let Some(at) = left.iter().position(|kept| kept.id == id) else { return false };
        let kept = left.remove(at);
        responses.push(kept.response);
        siblings.extend_from_slice(&kept.siblings);
    }
    responses.extend(siblings);
    content.parts.iter().map(checksum).eq(responses)
}

impl Recorder {
    /// An output was masked.
    fn masked(&self, masked: &MaskedOutput) {
        // The kernel gives each call an id.
        let Some(call_id) = masked.call_id.clone() else { return };
        let mask = Mask {
            event_id: masked.event_id.clone(),
            call_id,
            ordinal: masked.ordinal,
            response: masked.replacement.response.clone(),
        };
        self.write(&mut self.state(), &Line { mask: Some(Box::new(mask)), ..Line::default() });
    }

    /// Everything before the event `first_kept` was replaced by `summary`; everything at all without it.
    pub(crate) fn compressed(&self, summary: &[Event], first_kept: Option<&str>) {
        let messages = summary.iter().map(|event| {
            let from_user = event.content.as_ref().is_some_and(|content| content.role == Role::User);
            Line {
                what: Some(if from_user { "user" } else { "gemini" }.into()),
                id: Some(event.id.as_str().into()),
                timestamp: Some(iso8601(event.timestamp_ms)),
                author: author(event, from_user).map(Cow::Borrowed),
                content: event.content.as_deref().and_then(borrowed),
                model: event.model.as_deref().map(Cow::Borrowed),
                metadata: kept(&event.actions.custom_metadata),
                ..Line::default()
            }
        });
        let compress = Compress { before: first_kept.map(ToOwned::to_owned), messages: messages.collect() };
        self.write(&mut self.state(), &Line { compress: Some(Box::new(compress)), ..Line::default() });
    }
}

struct RecordedHistory {
    recorder: Recorder,
    listener: Arc<dyn HistoryListener>,
}

impl HistoryListener for RecordedHistory {
    fn masked(&self, session_id: &str, masked: &MaskedOutput) {
        self.recorder.masked(masked);
        self.listener.masked(session_id, masked);
    }

    fn compressed(&self, session_id: &str, compressed: &Compressed<'_>) {
        self.recorder.compressed(compressed.summary, compressed.first_kept);
        self.listener.compressed(session_id, compressed);
    }
}

struct RecordedSessions {
    recorder: Recorder,
    sessions: Arc<dyn SessionService>,
}

impl SessionService for RecordedSessions {
    fn create(&self, key: SessionKey, state: Map<String, Value>, now_ms: u64) -> Option<LiveSession> {
        self.sessions.create(key, state, now_ms)
    }

    fn get(&self, key: &SessionKey, filter: &GetSession) -> Option<LiveSession> {
        self.sessions.get(key, filter)
    }

    fn append(&self, session: &LiveSession, event: Event) {
        self.recorder.event(&event);
        self.sessions.append(session, event);
    }

    fn list(&self, app_name: &str, user_id: &str) -> Vec<SessionSummary> {
        self.sessions.list(app_name, user_id)
    }

    fn delete(&self, key: &SessionKey) -> bool {
        self.sessions.delete(key)
    }
}

struct RecordedCalls {
    recorder: Recorder,
    observer: Arc<dyn SchedulerObserver>,
}

impl SchedulerObserver for RecordedCalls {
    fn on_change(&self, record: &CallRecord) {
        self.recorder.call(record);
        self.observer.on_change(record);
    }

    fn on_mode(&self, change: ModeChange) {
        self.observer.on_mode(change);
    }
}
