//! Where does a connection come from? Judged from the socket alone; no header is ever asked.
//!
//! `local-only` permission votes rest on this, so `X-Forwarded-For` and `Forwarded` must not reach it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tokio_util::sync::CancellationToken;

/// One accepted connection, as its requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The other end of the socket.
    pub(crate) peer: Peer,
    /// Cancelled to destroy the socket without waiting for what is queued on it.
    pub(crate) destroy: CancellationToken,
}

impl Connection {
    /// Whether the other end is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.peer {
            Peer::Tcp(address) => is_loopback(address.ip()),
            Peer::Unix => true,
        }
    }
}

/// The other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An address.
    Tcp(SocketAddr),
    /// A process of this machine that may open the socket's file.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// Whether an address is in 127.0.0.0/8, is `::1`, or is the IPv6 form `::ffff:127.*` under which a dual-stack socket
/// shows an IPv4 peer.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback(),
        // `Ipv6Addr::is_loopback` is false for mapped addresses.
        IpAddr::V6(v6) => v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_is_of_this_machine() {
        let of = |peer| Connection { peer, destroy: CancellationToken::new() }.is_loopback();
        assert!(of(Peer::Unix));
        assert!(of(Peer::Tcp("[::ffff:127.0.0.2]:9".parse().unwrap())));
        assert!(!of(Peer::Tcp("10.0.0.1:9".parse().unwrap())));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (text, expected) in [
            ("127.0.0.1", true),
            ("127.255.1.2", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:127.8.8.8", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("128.0.0.1", false),
            ("::", false),
            ("0.0.0.0", false),
            // IPv4-compatible, not mapped: another address family's dead form, routable nowhere.
            ("::127.0.0.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(is_loopback(text.parse().unwrap()), expected, "{text}");
        }
    }
}
