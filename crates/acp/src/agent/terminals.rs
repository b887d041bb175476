//! The client's terminals, for one session. Source: ACP v1, "Terminals".

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agent_client_protocol as sdk;
use async_trait::async_trait;
use convoke_protocol::{
    ClientTerminal, ClientTerminalError, ClientTerminals, SessionId, TerminalCommand, TerminalExit, TerminalOutput,
};
use serde_json::{Value, json};

use super::abilities::Abilities;
use super::outbox::Client;

/// How long the client may take to start or end a command, or to say what it printed.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Runs commands at the client.
#[derive(Clone, Debug)]
pub(super) struct AcpTerminals {
    client: Client,
    abilities: Abilities,
    /// Known once the session is made; until then nothing runs that could ask.
    session: Arc<OnceLock<SessionId>>,
}

/// One terminal; released when it is dropped.
struct AcpTerminal {
    client: Client,
    session: SessionId,
    id: String,
}

impl AcpTerminals {
    pub(super) fn new(client: Client, abilities: Abilities) -> Self {
        Self { client, abilities, session: Arc::default() }
    }

    /// The session that they are asked for by. The first one stays.
    pub(super) fn belong_to(&self, session: &SessionId) {
        self.session.get_or_init(|| session.clone());
    }
}

fn gone(why: impl Into<String>) -> ClientTerminalError {
    ClientTerminalError(why.into())
}

async fn in_time<T>(asked: impl Future<Output = Result<T, ClientTerminalError>>) -> Result<T, ClientTerminalError> {
    tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| Err(gone("the client took too long")))
}

#[async_trait]
impl ClientTerminals for AcpTerminals {
    fn offered(&self) -> bool {
        self.abilities.terminals()
    }

    async fn start(&self, command: TerminalCommand) -> Result<Box<dyn ClientTerminal>, ClientTerminalError> {
        let session = self.session.get().ok_or_else(|| gone("the session is not open yet"))?;
        let TerminalCommand { program, args, set, folder, output_bytes_max } = command;
        let env: Vec<_> = set.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let params = json!({
            "sessionId": session,
            "command": program,
            "args": args,
            "env": env,
            "cwd": folder,
            "outputByteLimit": output_bytes_max,
        });
        let message = sdk::UntypedMessage { method: "terminal/create".to_owned(), params };
        let asked = self.client.send_request(message).block_task();
        let created = in_time(async { asked.await.map_err(|error| gone(error.message)) }).await?;
        match created.get("terminalId").and_then(Value::as_str) {
            Some(id) => {
                Ok(Box::new(AcpTerminal { client: self.client.clone(), session: session.clone(), id: id.to_owned() }))
            }
            None => Err(gone("the client answered without a terminal")),
        }
    }
}

impl AcpTerminal {
    fn message(&self, method: &str) -> sdk::UntypedMessage {
        let params = json!({"sessionId": self.session, "terminalId": self.id});
        sdk::UntypedMessage { method: method.to_owned(), params }
    }

    async fn ask(&self, method: &str) -> Result<Value, ClientTerminalError> {
        self.client.send_request(self.message(method)).block_task().await.map_err(|error| gone(error.message))
    }
}

#[async_trait]
impl ClientTerminal for AcpTerminal {
    fn id(&self) -> &str {
        &self.id
    }

    async fn output(&self) -> Result<TerminalOutput, ClientTerminalError> {
        let told = in_time(self.ask("terminal/output")).await?;
        let text = told.get("output").and_then(Value::as_str).ok_or_else(|| gone("the client told no output"))?;
        let is_cut = told.get("truncated").and_then(Value::as_bool).unwrap_or(false);
        Ok(TerminalOutput { text: text.to_owned(), is_cut })
    }

    async fn exited(&self) -> Result<TerminalExit, ClientTerminalError> {
        let told = self.ask("terminal/wait_for_exit").await?;
        let code = told.get("exitCode").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
        let signal = told.get("signal").and_then(Value::as_str).map(ToOwned::to_owned);
        Ok(TerminalExit { code, signal })
    }

    async fn kill(&self) -> Result<(), ClientTerminalError> {
        in_time(self.ask("terminal/kill")).await.map(|_| ())
    }
}

impl Drop for AcpTerminal {
    fn drop(&mut self) {
        // Its answer says nothing that anybody waits for.
        self.client.send_request(self.message("terminal/release")).detach();
    }
}
