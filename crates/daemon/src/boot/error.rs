//! Why does a daemon not start? One variant per reason, with a text that tells what to do.

use std::io;
use std::path::PathBuf;

use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};

use crate::tls::TlsError;

/// Why a daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// `policy` in the settings is not an object.
    #[error("invalid policy: must be an object with permissionStrategy, consensusQuorum and cancel, not {0}")]
    InvalidPolicy(String),
    /// `policy.permissionStrategy` names no policy.
    #[error("invalid policy.permissionStrategy \"{0}\"; must be one of {valid}", valid = policies())]
    InvalidStrategy(String),
    /// `policy.cancel` names no rule.
    #[error("invalid policy.cancel \"{0}\"; must be one of {valid}", valid = CancelRule::ALL.map(CancelRule::name).join(", "))]
    InvalidCancelRule(String),
    /// `policy.consensusQuorum` is not a positive integer.
    #[error("invalid policy.consensusQuorum {0}; must be a positive integer")]
    InvalidQuorum(String),
    /// `--require-auth` with nothing to authenticate by.
    #[error(
        "Refusing to start with --require-auth set but no bearer token configured. Set QWEN_SERVER_TOKEN or pass \
         --token, or omit --require-auth to keep the loopback developer default."
    )]
    RequireAuthWithoutToken,
    /// `--allow-origin '*'` with nothing to authenticate by.
    #[error(
        "Refusing to start with --allow-origin '*' but no bearer token configured. '*' admits any cross-origin browser \
         to the API; without a token of yours, any local page can drive the daemon. Set QWEN_SERVER_TOKEN or pass \
         --token, or list specific origins instead of '*'."
    )]
    AnyOriginWithoutToken,
    /// `--allow-origin` of another machine with nothing to authenticate by.
    #[error(
        "Refusing to start with --allow-origin \"{0}\" but no bearer token configured. Non-loopback HTTP(S) browser \
         origins can drive the full operator API, including code execution as the daemon user. Set QWEN_SERVER_TOKEN \
         or pass --token, or use a loopback origin."
    )]
    RemoteOriginWithoutToken(String),
    /// `--allow-origin` is neither `*` nor an origin in its canonical form.
    #[error(
        "Invalid --allow-origin pattern \"{pattern}\": {problem}. Expected `*` or a URL origin of the form \
         `<scheme>://<host>[:<port>]` (no trailing slash, no path, no userinfo, no query)."
    )]
    InvalidOrigin {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// `--no-auth` where others could connect.
    #[error(
        "Refusing to start with --no-auth on \"{0}\": everyone who reaches that address could drive the agent. Bind a \
         loopback address, or drop --no-auth."
    )]
    NoAuthBeyondLoopback(String),
    /// `--hostname` with a port in it.
    #[error(
        "Invalid --hostname \"{hostname}\": looks like a \"host:port\" combination. Use --port for the port, e.g. \
         \"--hostname {host} --port {port}\"."
    )]
    HostnameWithPort {
        /// As given.
        hostname: String,
        /// Its first part.
        host: String,
        /// Its second part.
        port: String,
    },
    /// `--hostname ''`.
    #[error(
        "Invalid --hostname: empty value binds every interface. Pass an explicit address (e.g. --hostname 0.0.0.0) or \
         omit the flag."
    )]
    EmptyHostname,
    /// `--hostname` is not an address and not `localhost`, and does not resolve.
    #[error("Invalid --hostname \"{hostname}\": does not resolve to an address")]
    UnknownHostname {
        /// As given.
        hostname: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// `--workspace` is relative.
    #[error("Invalid --workspace \"{}\": must be an absolute path.", .0.display())]
    WorkspaceNotAbsolute(PathBuf),
    /// `--workspace` does not exist.
    #[error("Invalid --workspace \"{}\": directory does not exist.", .0.display())]
    WorkspaceMissing(PathBuf),
    /// `--workspace` is not a folder.
    #[error("Invalid --workspace \"{}\": exists but is not a directory.", .0.display())]
    WorkspaceNotFolder(PathBuf),
    /// `--workspace` can't be looked at.
    #[error("Invalid --workspace \"{}\": can't be read.", path.display())]
    WorkspaceUnreadable {
        /// As given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A flag's or a setting's number that its [`crate::NumberRule`] refuses.
    #[error("Invalid {name}: {given}. Must be {must}.")]
    InvalidNumber {
        /// What the wire calls it.
        name: &'static str,
        /// As given; `NaN` for what is no number.
        given: String,
        /// What it may be.
        must: &'static str,
    },
    /// A number of the rate limit, which its peers refuse in words of their own.
    #[error("{flag} must be a positive integer.")]
    InvalidRate {
        /// The flag.
        flag: &'static str,
    },
    /// No agent to host.
    #[error("no agent command is configured")]
    NoAgent,
    /// The given port is taken, or the address is not ours.
    #[error("can't listen on {address}: {source}")]
    Bind {
        /// Where.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `--listen` is in no form that is known.
    #[error("Invalid --listen \"{0}\": expected unix:PATH with an absolute path.")]
    InvalidListen(String),
    /// Nothing to listen on.
    #[error("no address to listen on is configured")]
    NoListener,
    /// The token holds what a header can't carry.
    #[error(
        "Invalid token: it holds characters that can't be sent in an Authorization header. Use printable ASCII without \
         spaces."
    )]
    UnusableToken,
    /// TLS without a TCP address.
    #[error("TLS needs a TCP address: pass --port or --hostname beside --listen, or omit --tls-cert and --tls-key")]
    TlsWithoutTcp,
    /// The certificate or its key can't be used.
    #[error("can't serve TLS")]
    Tls(#[source] TlsError),
    /// No random numbers for the token.
    #[error("can't make a token: {0}")]
    Token(String),
    /// The token file can't be written.
    #[error("can't write the token file \"{}\"", path.display())]
    TokenFile {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The policies that there are, as messages list them.
fn policies() -> String {
    PermissionPolicy::ALL.map(PermissionPolicy::name).join(", ")
}
