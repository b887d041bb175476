//! The client's files, for one session. Source: ACP v1, "File System".

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use agent_client_protocol as sdk;
use async_trait::async_trait;
use convoke_protocol::{ClientFiles, ClientFilesError, SessionId};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::abilities::Abilities;
use super::outbox::Client;

/// How long a read may take. It is an editor's memory; after that the disk will do.
const READ_MAX: Duration = Duration::from_secs(20);

/// Requests of one session that are under way. Their texts wait in the SDK's queue, which has no bound.
const UNDER_WAY_MAX: usize = 4;

/// Reads and writes through the client.
pub(super) struct AcpFiles {
    client: Client,
    abilities: Abilities,
    /// Known once the session is made; until then nothing runs that could ask.
    session: OnceLock<SessionId>,
    under_way: Semaphore,
}

impl AcpFiles {
    pub(super) fn new(client: Client, abilities: Abilities) -> Self {
        Self { client, abilities, session: OnceLock::new(), under_way: Semaphore::new(UNDER_WAY_MAX) }
    }

    /// The session that they are asked for by. The first one stays.
    pub(super) fn belong_to(&self, session: &SessionId) {
        self.session.get_or_init(|| session.clone());
    }

    async fn ask(&self, method: &str, mut params: Value) -> Result<Value, ClientFilesError> {
        let gone = |why: &str| ClientFilesError(why.to_owned());
        let session = self.session.get().ok_or_else(|| gone("the session is not open yet"))?;
        let _under_way = self.under_way.acquire().await.map_err(|_| gone("the client is gone"))?;
        if let Value::Object(params) = &mut params {
            params.insert("sessionId".to_owned(), json!(session));
        }
        let message = sdk::UntypedMessage { method: method.to_owned(), params };
        // Dropping the future withdraws the request.
        self.client.send_request(message).block_task().await.map_err(|error| ClientFilesError(error.message))
    }
}

#[async_trait]
impl ClientFiles for AcpFiles {
    fn reads(&self) -> bool {
        self.abilities.reads_files()
    }

    fn writes(&self) -> bool {
        self.abilities.writes_files()
    }

    async fn read_text(&self, path: &Path) -> Result<String, ClientFilesError> {
        let asked = tokio::time::timeout(READ_MAX, self.ask("fs/read_text_file", json!({"path": path}))).await;
        let answered = asked.unwrap_or_else(|_| Err(ClientFilesError("the client took too long".to_owned())));
        match answered?.get_mut("content").map(Value::take) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(ClientFilesError("the client answered without content".to_owned())),
        }
    }

    async fn write_text(&self, path: &Path, text: &str) -> Result<(), ClientFilesError> {
        self.ask("fs/write_text_file", json!({"path": path, "content": text})).await.map(|_| ())
    }
}
