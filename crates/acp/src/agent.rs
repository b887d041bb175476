//! The agent end: how do our sessions look to an ACP client?
//!
//! ```text
//! client's requests ─▶ SDK ─▶ desk (one task: which session?) ─▶ session (one task each: what happens next?)
//! client ◀─ outlet ◀─ SDK ◀─ outbox (credits) ◀─ translate ◀─ the session's event log
//!                                            ◀─ questions, behind the events that came before them
//! ```
//! The SDK queues without bound, so a session takes a credit for every update, and the outlet gives it back once the
//! update is written: a client that stops reading stops the sessions' forwarding, while the log they read from goes on
//! in its own bounds. Nothing is decided here: prompts, modes and tools belong to whoever made the session.

mod abilities;
mod content;
mod desk;
mod files;
mod form;
mod methods;
mod outbox;
mod past;
mod permission;
mod plan;
mod quota;
mod rewind;
mod serve;
mod servers;
mod session;
mod settings;
mod steer;
mod terminals;
mod translate;
mod v2;

pub use serve::{ServeError, serve, serve_stdio};
pub use v2::serve_with_v2;
