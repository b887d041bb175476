//! A client's terminals, for the shell: the protocol's port as its own.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_protocol::{ClientTerminal, ClientTerminals};
use convoke_tools::{TerminalCommand, TerminalExit, TerminalOutput};

/// Hands the shell the terminals of the session's client.
#[derive(Debug)]
pub(crate) struct Terminals(pub(crate) Arc<dyn ClientTerminals>);

/// One of them.
struct Terminal(Box<dyn ClientTerminal>);

#[async_trait]
impl convoke_tools::ClientTerminals for Terminals {
    fn offered(&self) -> bool {
        self.0.offered()
    }

    async fn start(&self, command: TerminalCommand) -> Result<Box<dyn convoke_tools::ClientTerminal>, String> {
        let TerminalCommand { program, args, set, folder, output_bytes_max } = command;
        let command = convoke_protocol::TerminalCommand { program, args, set, folder, output_bytes_max };
        let started = self.0.start(command).await.map_err(|error| error.to_string())?;
        Ok(Box::new(Terminal(started)))
    }
}

#[async_trait]
impl convoke_tools::ClientTerminal for Terminal {
    fn id(&self) -> &str {
        self.0.id()
    }

    async fn output(&self) -> Result<TerminalOutput, String> {
        let convoke_protocol::TerminalOutput { text, is_cut } =
            self.0.output().await.map_err(|error| error.to_string())?;
        Ok(TerminalOutput { text, is_cut })
    }

    async fn exited(&self) -> Result<TerminalExit, String> {
        let convoke_protocol::TerminalExit { code, signal } =
            self.0.exited().await.map_err(|error| error.to_string())?;
        Ok(TerminalExit { code, signal })
    }

    async fn kill(&self) -> Result<(), String> {
        self.0.kill().await.map_err(|error| error.to_string())
    }
}
