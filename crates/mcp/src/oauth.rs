//! How does a server behind an address learn who its user is?
//!
//! ```text
//! convoke mcp login ── login: discovery, a client, a browser or a device code ──▶ store
//! every request ────── tokens: what is stored, renewed ahead of its end or once a server refuses it ──▶ store
//! ```
//! Discovery (RFC 9728, RFC 8414), registration of a client (RFC 7591), and the exchange of a code with its proof (RFC 7636)
//! are the SDK's; the callback, the device code (RFC 8628), renewing and keeping tokens are ours. A token goes to
//! the address that it was obtained for and to no other. No token, code or secret is part of an error or a log line.
//! Source: runtime specification §14; Model Context Protocol, authorization.

mod callback;
mod device;
mod endpoint;
mod login;
mod settings;
mod store;
mod tokens;

pub use login::{Flow, LoggedIn, LoginError, LoginRequest, LoginStep, login, logout};
pub use settings::OAuthSettings;
pub(crate) use tokens::{TokenError, Tokens};

/// Seconds since 1970.
fn now() -> u64 {
    convoke_stdx::Clock::start().now().wall_ms / 1000
}
