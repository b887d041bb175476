//! What does the client say it can do?

use std::sync::{Arc, OnceLock};

use agent_client_protocol::v1::schema::ClientCapabilities;

/// What a client said at `initialize`; nothing until then. Copies share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Abilities(Arc<OnceLock<ClientCapabilities>>);

impl Abilities {
    /// A client introduces itself once; what it says later does not count.
    pub(super) fn learn(&self, capabilities: ClientCapabilities) {
        if self.0.set(capabilities).is_err() {
            tracing::debug!("the client introduced itself twice");
        }
    }

    /// Whether it presents notices to its user.
    pub(super) fn notices(&self) -> bool {
        self.session(|session| session.notices.is_some())
    }

    /// Whether it shows its user a form and sends back what was filled in.
    pub(super) fn forms(&self) -> bool {
        self.0.get().and_then(|client| client.elicitation.as_ref()).is_some_and(|asks| asks.form.is_some())
    }

    /// Whether it can be asked for the text of a file.
    pub(super) fn reads_files(&self) -> bool {
        self.0.get().is_some_and(|client| client.fs.read_text_file)
    }

    /// Whether it takes the text of a file.
    pub(super) fn writes_files(&self) -> bool {
        self.0.get().is_some_and(|client| client.fs.write_text_file)
    }

    /// Whether it runs commands in terminals of its own.
    pub(super) fn terminals(&self) -> bool {
        self.0.get().is_some_and(|client| client.terminal)
    }

    fn session(&self, has: impl FnOnce(&agent_client_protocol::v1::schema::ClientSessionCapabilities) -> bool) -> bool {
        self.0.get().and_then(|client| client.session.as_ref()).is_some_and(has)
    }
}
