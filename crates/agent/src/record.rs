//! What is kept of a session, and how does it come back?
//!
//! A record is a file of JSON lines that only grows. Its kinds are those of Gemini CLI's chat files, which are read as a
//! dialect; ours are different where theirs hurt: each line ends with a checksum, a tool's result is written once, and
//! what changes later (a masked output, a compressed beginning, a rewind) is one more line and never a copy of all.
//!
//! ```text
//! {"v":1,"sessionId":…,"projectHash":…,"startTime":…,"kind":"main","cwd":…}   about the session
//! {"type":"user","id":…,"timestamp":…,"content":[…],"prompt":[1,2]}           a prompt; which of its parts a person wrote
//! {"type":"gemini","id":…,"content":[…],"model":…,"tokens":{…}}               an answer, with its calls and signatures
//! {"type":"tool","timestamp":…,"call":{"id":…,"name":…,"result":[…],…}}       a call that ended, at once
//! {"type":"user","id":…,"responses":["id",…]}                                 the results as the model got them
//! {"$mask":{"eventId":…,"callId":…,"ordinal":0,"response":{…}}}                           an output that was masked
//! {"$compress":{"before":"id","messages":[…]}}                                what stands for everything before `id`
//! {"$rewindTo":"id"}                                                          that message and all after it are gone
//! {"$files":{"end":"call","changes":[…]}}                                     what a call did to files; see `rewind`
//! {"$set":{"lastUpdated":…,"messageCount":2,…}}                               the end of a turn
//! ```
//! Every line goes to the kernel with one `write` before anybody is told of what it says, so a process that is killed
//! loses the line being written and no other; the disk is waited for at the end of each turn, off the session's path.
//! A record has one writer, which holds a lock on the file. Source: runtime specification §11, and its part (c) 28 to 31.

mod chats;
mod conversation;
mod copy;
mod events;
mod file;
mod line;
mod measured;
mod read;
mod recorder;
mod replay;
mod retention;
mod rewinding;
mod shown;
mod summary;

/// The agent's name in events; an author that differs is written down.
pub(crate) const AGENT: &str = "convoke";

pub(crate) use chats::Loaded;
pub use chats::{RecordError, RecordOptions, Records};
pub(crate) use conversation::Conversation;
pub(crate) use events::state_after;
pub(crate) use file::make_folder;
pub use measured::{LoadedRecord, MeasuredRecord};
pub use recorder::Recorder;
pub use retention::Retention;
pub(crate) use rewinding::PromptPoint;
#[cfg(test)]
mod tests;
