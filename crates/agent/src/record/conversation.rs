//! What the lines of a record come to: what was said, for people; what the model is to know of it.
//!
//! Pure: lines in, conversation out. What can't be applied (a rewind to nowhere, a mask of nothing) is counted and
//! changes nothing.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use convoke_adk::{FunctionCall, Part};
use convoke_stdx::{cut, parse_iso8601};
use serde_json::{Map, Value};

use super::file;
use super::line::{CallLine, Compress, Line, Mask, Set, V};
use super::read::{self, Source};
use crate::rewind::FilesLine;

/// Bytes of a title. Source: runtime specification §11.4.
const TITLE_BYTES_MAX: usize = 100;

/// What comes behind a message's id in the one of its results, where that has none of its own.
pub(super) const RESULTS: &str = "-results";

/// A record, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Conversation {
    pub(super) session_id: Option<String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) started_ms: Option<u64>,
    pub(super) updated_ms: Option<u64>,
    /// A name that somebody gave.
    pub(super) summary: Option<String>,
    pub(super) subagent: bool,
    pub(super) messages: Vec<Message>,
    pub(super) compressions: Vec<Compression>,
    /// What was done to files, whatever became of the words.
    pub(crate) files: Vec<FilesLine>,
    /// Lines that could not be used.
    pub(crate) damaged: usize,
    /// Whether the last line was cut short.
    pub(super) torn: bool,
    /// The newest version that a line names.
    pub(super) version: u32,
    /// Whether it is ours and not Gemini CLI's.
    pub(super) ours: bool,
    /// Where Gemini CLI's messages are by their ids, while they are read. A place may be out of date.
    pub(super) places: HashMap<String, usize>,
}

/// Something that was said, with what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    pub(super) line: Box<Line<'static>>,
    /// The calls that ended, in the order in which they did.
    pub(super) calls: Vec<CallLine>,
    /// The line that gave the results to the model.
    pub(super) responses: Option<Box<Line<'static>>>,
    /// How much had been done to files before it.
    pub(super) files_before: usize,
}

/// What stands for a beginning.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Compression {
    /// How many messages there were.
    at: usize,
    /// The first of them that stayed.
    keep_from: usize,
    messages: Vec<Message>,
}

impl Message {
    fn new(line: Box<Line<'static>>) -> Self {
        Self { line, calls: Vec::new(), responses: None, files_before: 0 }
    }

    pub(super) fn id(&self) -> &str {
        self.line.id.as_deref().unwrap_or_default()
    }

    pub(super) fn is(&self, what: &str) -> bool {
        self.line.what.as_deref() == Some(what)
    }

    pub(super) fn parts(&self) -> &[Part] {
        self.line.content.as_deref().unwrap_or_default()
    }

    /// What a person wrote; `None` if nobody did.
    pub(super) fn prompt(&self) -> Option<&[Part]> {
        let line = &self.line;
        if !self.is("user") {
            return None;
        }
        if let Some(shown) = &line.display_content {
            return Some(shown);
        }
        let [from, to] = line.prompt?;
        self.parts().get(from..to)
    }

    pub(super) fn timestamp_ms(&self) -> u64 {
        timestamp_ms(&self.line)
    }

    fn has_id(&self, id: &str) -> bool {
        let told = self.responses.as_ref().and_then(|line| line.id.as_deref());
        // The second name is what a lost line with the results is given.
        self.id() == id || told == Some(id) || id.strip_suffix(RESULTS) == Some(self.id())
    }

    /// Whether this is an answer with a call of that id that has no result yet.
    fn awaits(&self, call_id: &str) -> bool {
        let asked = self.parts().iter().filter(|part| part.call_id() == Some(Some(call_id))).count();
        asked > self.calls.iter().filter(|call| call.id == call_id).count()
    }

    /// Every response in it, the place where a mask goes.
    fn responses_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let changed = self.responses.as_mut().and_then(|line| line.content.as_mut()).map(Cow::to_mut);
        let plain = if changed.is_none() {
            Some(self.calls.iter_mut().filter_map(|call| call.result.as_mut()).flat_map(|parts| parts.to_mut()))
        } else {
            None
        };
        let own = self.line.content.as_mut().map(Cow::to_mut);
        let own = own.into_iter().flatten();
        own.chain(changed.into_iter().flatten()).chain(plain.into_iter().flatten())
    }
}

pub(super) fn timestamp_ms(line: &Line<'_>) -> u64 {
    line.timestamp.as_deref().and_then(parse_iso8601).unwrap_or_default()
}

impl Conversation {
    /// Reads a file of any of the formats. A file with nothing in it is a conversation with nothing in it.
    pub(super) fn read(source: &impl Source) -> io::Result<Self> {
        let read = read::lines(source)?;
        let mut conversation = Self { damaged: read.damaged, torn: read.torn, ours: read.ours, ..Self::default() };
        for line in read.lines {
            conversation.apply(line);
        }
        conversation.places = HashMap::new();
        Ok(conversation)
    }

    /// Reads a file that somebody may be writing.
    pub(super) fn read_file(path: &Path) -> io::Result<Self> {
        Self::read(&file::stored_unlocked(path)?)
    }

    /// Whether a newer version than ours wrote it.
    pub(super) fn is_from_the_future(&self) -> bool {
        self.version > V
    }

    /// Everything that was said and not taken back.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// What the model is to know: what was said, with what stands for its beginning.
    pub(super) fn into_history(mut self) -> impl Iterator<Item = Message> {
        let (summary, from) = match self.compressions.pop() {
            Some(compression) => (compression.messages, compression.keep_from),
            None => (Vec::new(), 0),
        };
        summary.into_iter().chain(self.messages.into_iter().skip(from))
    }

    /// The lines that would make this conversation, oldest first.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        let mut compressions = self.compressions.iter().peekable();
        for at in 0..=self.messages.len() {
            while let Some(compression) = compressions.next_if(|compression| compression.at == at) {
                let before = self.messages.get(compression.keep_from).filter(|_| compression.keep_from < at);
                let messages = compression.messages.iter().flat_map(Message::lines).collect();
                let compress = Compress { before: before.map(|message| message.id().to_owned()), messages };
                lines.push(Line { compress: Some(Box::new(compress)), ..Line::default() });
            }
            lines.extend(self.messages.get(at).into_iter().flat_map(Message::lines));
        }
        lines
    }

    /// Prompts and answers.
    pub(super) fn message_count(&self) -> usize {
        self.messages.iter().filter(|message| message.prompt().is_some() || message.is("gemini")).count()
    }

    /// Its name for people: one that was given, else the first prompt in short.
    pub(crate) fn title(&self) -> Option<String> {
        let prompts = || self.messages.iter().filter_map(Message::prompt);
        self.summary.clone().or_else(|| prompts().find_map(title_of))
    }

    /// Keeps what was before that message. Whether there is such a message; nothing changes otherwise.
    pub(crate) fn rewind_to(&mut self, id: &str) -> bool {
        let Some(at) = self.messages.iter().rposition(|message| message.id() == id) else { return false };
        self.messages.truncate(at);
        self.compressions.retain(|compression| compression.at <= at);
        true
    }

    fn apply(&mut self, line: Box<Line<'static>>) {
        self.version = self.version.max(line.v.unwrap_or_default());
        if let Some(set) = line.set {
            return self.set(*set);
        }
        if let Some(id) = &line.rewind_to {
            let found = self.rewind_to(id);
            self.damaged += usize::from(!found);
        }
        if let Some(files) = line.files {
            self.files.push(*files);
            return;
        }
        if line.rewind_to.is_some() {
            return;
        }
        if let Some(mask) = line.mask {
            let applied = self.mask(*mask);
            self.damaged += usize::from(!applied);
            return;
        }
        if let Some(compress) = line.compress {
            let applied = self.compress(*compress);
            self.damaged += usize::from(!applied);
            return;
        }
        match line.what.as_deref() {
            Some("tool") => {
                if let Some(mut call) = line.call {
                    call.timestamp = call.timestamp.or(line.timestamp);
                    self.call(*call);
                }
            }
            Some(_) => self.message(line),
            None => self.about(*line),
        }
    }

    /// The first line, or a whole old file.
    fn about(&mut self, line: Line<'static>) {
        self.session_id = line.session_id.map(Cow::into_owned).or_else(|| self.session_id.take());
        self.cwd = line.cwd.map(PathBuf::from).or_else(|| self.cwd.take());
        self.started_ms = line.start_time.as_deref().and_then(parse_iso8601).or(self.started_ms);
        self.subagent |= line.kind.as_deref() == Some("subagent");
        self.set(Set {
            last_updated: line.last_updated,
            summary: line.summary,
            messages: line.messages,
            ..Set::default()
        });
    }

    fn set(&mut self, set: Set<'static>) {
        let Set { last_updated, session_id, summary, messages, .. } = set;
        self.updated_ms = last_updated.as_deref().and_then(parse_iso8601).or(self.updated_ms);
        self.session_id = self.session_id.take().or(session_id);
        self.summary = summary.or_else(|| self.summary.take());
        if let Some(messages) = messages {
            self.messages.clear();
            self.compressions.clear();
            messages.into_iter().for_each(|line| self.message(Box::new(line)));
        }
    }

    fn message(&mut self, mut line: Box<Line<'static>>) {
        if line.session_id.is_some() && self.session_id.is_none() {
            self.session_id = line.session_id.take().map(Cow::into_owned);
        }
        if line.id.is_none() {
            line.id = Some(format!("message-{}", self.messages.len()).into());
        }
        self.updated_ms = self.updated_ms.max(Some(timestamp_ms(&line)));
        if line.responses.is_some() {
            return self.responses(line);
        }
        if self.ours {
            // What a prompt's own commands did comes before the prompt.
            let early = self.files.iter().rev().take_while(|files| files.early).count();
            let files_before = self.files.len() - early;
            return self.messages.push(Message { files_before, ..Message::new(line) });
        }
        let Some(message) = self.foreign(line) else { return };
        // Gemini CLI writes a message again when there is more of it.
        let place = self.places.get(message.id()).copied();
        match place.and_then(|place| self.messages.get_mut(place)).filter(|known| known.id() == message.id()) {
            Some(known) => *known = message,
            None => {
                self.places.insert(message.id().to_owned(), self.messages.len());
                self.messages.push(message);
            }
        }
    }

    /// A message of Gemini CLI as one of ours; `None` for what only its screen needs.
    fn foreign(&mut self, mut line: Box<Line<'static>>) -> Option<Message> {
        let parts = line.content.as_deref().unwrap_or_default();
        match line.what.as_deref() {
            Some("user") => {
                let is_response = |part: &Part| part.response_id().is_some();
                if !parts.is_empty() && parts.iter().all(is_response) {
                    // Told a second time, unless the first time failed.
                    for part in line.content.take().map(Cow::into_owned).unwrap_or_default() {
                        self.late_result(part);
                    }
                    return None;
                }
                let text: String = parts.iter().filter_map(Part::as_text).collect();
                let is_context = text.trim_start().starts_with("<session_context>");
                if text.starts_with(['/', '?']) {
                    return None;
                }
                line.prompt = (!is_context).then_some([0, parts.len()]);
                Some(Message::new(line))
            }
            Some("gemini") => {
                let calls = line.tool_calls.take().unwrap_or_default();
                let parts = line.content.get_or_insert_default().to_mut();
                // It writes an empty text where there is none.
                parts.retain(|part| part.as_text() != Some(""));
                for call in &calls {
                    if !parts.iter().any(|part| part.call_id() == Some(Some(call.id.as_str()))) {
                        parts.push(call_part(call));
                    }
                }
                Some(Message { calls, ..Message::new(line) })
            }
            _ => None,
        }
    }

    fn late_result(&mut self, part: Part) {
        let Some(id) = part.response_id().flatten().map(ToOwned::to_owned) else { return };
        let calls = self.messages.iter_mut().rev().flat_map(|message| message.calls.iter_mut());
        let empty = |call: &&mut CallLine| call.id == id && call.result.as_ref().is_none_or(|parts| parts.is_empty());
        if let Some(call) = { calls }.find(empty) {
            call.result = Some(Cow::Owned(vec![part]));
        }
    }

    /// A call that ended.
    fn call(&mut self, call: CallLine) {
        match self.messages.iter_mut().rev().find(|message| message.is("gemini") && message.awaits(&call.id)) {
            Some(message) => {
                if message.calls.is_empty() {
                    message.calls.reserve_exact(message.parts().len());
                }
                message.calls.push(call);
            }
            None => {
                // The line of its answer was damaged. What it did is worth more than how it was asked for.
                let line = Line {
                    what: Some("gemini".into()),
                    id: Some(format!("call-{}", call.id).into()),
                    timestamp: call.timestamp.clone(),
                    content: Some(Cow::Owned(vec![call_part(&call)])),
                    ..Line::default()
                };
                self.messages.push(Message { calls: vec![call], ..Message::new(Box::new(line)) });
            }
        }
    }

    /// The results, as the model got them.
    fn responses(&mut self, line: Box<Line<'static>>) {
        let open = |message: &&mut Message| message.is("gemini") && message.responses.is_none();
        let last = self.messages.iter_mut().rev().take_while(|message| !message.is("user")).find(open);
        match last {
            Some(message) => message.responses = Some(line),
            None => self.damaged += 1,
        }
    }

    fn mask(&mut self, mask: Mask) -> bool {
        let Mask { event_id, call_id, ordinal, response } = mask;
        let summary = self.compressions.last_mut().into_iter().flat_map(|compression| compression.messages.iter_mut());
        let mut history = self.messages.iter_mut().rev().chain(summary);
        let Some(message) = history.find(|message| message.has_id(&event_id)) else { return false };
        let mut responses = message.responses_mut().filter(|part| part.response_id() == Some(Some(call_id.as_str())));
        let Some(Value::Object(fields)) =
            responses.nth(ordinal).and_then(|part| part.raw_mut().get_mut("functionResponse"))
        else {
            return false;
        };
        fields.insert("response".to_owned(), response);
        true
    }

    fn compress(&mut self, compress: Compress<'static>) -> bool {
        let Compress { before, messages } = compress;
        let at = self.messages.len();
        let mut summary: Vec<Message> = Vec::new();
        for line in messages {
            match (line.call, line.responses.is_some(), summary.last_mut()) {
                (Some(call), _, Some(last)) => last.calls.push(*call),
                (None, true, Some(last)) => last.responses = Some(Box::new(Line { call: None, ..line })),
                (None, _, _) => summary.push(Message::new(Box::new(Line { call: None, ..line }))),
                (Some(_), _, None) => {}
            }
        }
        let keep_from = match &before {
            None => at,
            Some(id) => {
                let found = self.messages.iter().rposition(|message| message.has_id(id));
                match (found, self.compressions.last()) {
                    (Some(index), _) => index,
                    (None, Some(last)) => {
                        // It stays from within what stood for an earlier beginning.
                        let Some(index) = last.messages.iter().position(|message| message.has_id(id)) else {
                            return false;
                        };
                        summary.extend(last.messages.iter().skip(index).cloned());
                        last.keep_from
                    }
                    (None, None) => return false,
                }
            }
        };
        self.compressions.push(Compression { at, keep_from, messages: summary });
        true
    }
}

impl Message {
    fn lines(&self) -> Vec<Line<'_>> {
        let calls = self.calls.iter().map(|call| Line {
            what: Some("tool".into()),
            timestamp: call.timestamp.clone(),
            call: Some(Box::new(call.clone())),
            ..Line::default()
        });
        let own = std::iter::once((*self.line).clone());
        own.chain(calls).chain(self.responses.as_deref().cloned()).collect()
    }
}

fn call_part(call: &CallLine) -> Part {
    let args = call.args.clone().unwrap_or_else(|| Value::Object(Map::new()));
    Part::call(&FunctionCall { id: Some(call.id.clone()), name: call.name.clone(), args })
}

/// A prompt as one short line.
pub(super) fn title_of(parts: &[Part]) -> Option<String> {
    let text: String = parts.iter().filter_map(Part::as_text).collect::<Vec<_>>().join(" ");
    let mut title = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if title.len() > TITLE_BYTES_MAX {
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
    }
    if title.len() > TITLE_BYTES_MAX {
        title = format!("{}…", cut::head(&title, TITLE_BYTES_MAX));
    }
    (!title.is_empty()).then_some(title)
}
