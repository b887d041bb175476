//! The daemon's edge as a whole process: flags, settings, tokens, sockets, TLS, both versions of HTTP.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

mod acp;
mod boot;
// The demo's client is a client of these tests as well.
#[path = "../../src/demo/client.rs"]
mod client;
mod editor;
mod hooks;
mod listen;
mod process;
mod settings;
mod tls;
mod tokens;
