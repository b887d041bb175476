//! How do bytes get to a server and back?

mod http;
mod sse;
mod stdio;

pub(crate) use http::{sse, streamable};
pub(crate) use stdio::{Process, start};
