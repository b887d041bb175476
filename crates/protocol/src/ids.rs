//! Ids as newtypes. They are minted at the edge and passed in; no room below `cli` and `daemon` makes one up.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

id!(
    /// An ACP session.
    SessionId
);
id!(
    /// A client registered on one session of the daemon: `client_<uuid>`, minted by the daemon.
    ClientId
);
id!(
    /// A permission request, daemon-wide: an opaque UUID.
    RequestId
);
id!(
    /// One `session/prompt` turn in the daemon.
    PromptId
);
id!(
    /// One stream of an [`AgentProtocol`](crate::AgentProtocol): from `agent_start` to `agent_end`.
    StreamId
);
id!(
    /// One [`AgentEvent`](crate::AgentEvent), unique within its session.
    EventId
);
id!(
    /// One tool call, as the scheduler and ACP know it.
    ToolCallId
);

impl SessionId {
    /// Whether `text` can be the id of a session: short, printable, and no way to another folder should somebody make
    /// a file name of it.
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        (1..=128).contains(&text.len())
            && !text.contains("..")
            && !text.contains(|c: char| c.is_control() || matches!(c, '/' | '\\'))
    }
}

impl ClientId {
    /// Whether `text` has the shape of a client id on the wire: 1 to 128 of `A-Z a-z 0-9 . _ : -`.
    ///
    /// Source: daemon spec, "Client identity" rule 1.
    #[must_use]
    pub fn is_well_formed(text: &str) -> bool {
        (1..=128).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientId, SessionId};

    #[test]
    fn session_id_shape() {
        for good in ["s1", "6f1c-ü", "a.b", &"a".repeat(128)] {
            assert!(SessionId::is_well_formed(good), "{good:?}");
        }
        for bad in ["", "a/b", "a\\b", "..", "a..b", "a\nb", "a\u{85}", &"a".repeat(129)] {
            assert!(!SessionId::is_well_formed(bad), "{bad:?}");
        }
    }

    #[test]
    fn client_id_shape() {
        assert!(ClientId::is_well_formed("client_6f-9.:Z"));
        assert!(ClientId::is_well_formed(&"a".repeat(128)));
        for bad in ["", "a b", "é", "a/b", &"a".repeat(129)] {
            assert!(!ClientId::is_well_formed(bad), "{bad:?}");
        }
    }
}
