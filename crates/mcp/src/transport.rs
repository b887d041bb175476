//! How do bytes get to a server and back?

mod bearer;
mod http;
mod sse;
mod stdio;

pub(crate) use http::{sse, streamable, tokens_of};
pub(crate) use sse::SseError;
pub(crate) use stdio::{Process, start};
