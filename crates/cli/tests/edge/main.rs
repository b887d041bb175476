//! The daemon's edge as a whole process: flags, settings, tokens, sockets, TLS, both versions of HTTP.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

mod boot;
mod listen;
mod process;
mod settings;
mod tls;
mod tokens;
