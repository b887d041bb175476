//! Secrets in the system's keyring: the Secret Service of a Linux desktop.

use async_trait::async_trait;
use convoke_adk::{ModelError, ModelErrorKind};
use convoke_models::{CredentialSource, Fetched};
use secrecy::SecretString;

/// One entry.
pub(super) struct KeyringSource {
    service: String,
    account: String,
}

impl KeyringSource {
    pub(super) fn new(service: String, account: String) -> Self {
        Self { service, account }
    }
}

#[async_trait]
impl CredentialSource for KeyringSource {
    async fn fetch(&self) -> Result<Fetched, ModelError> {
        let (service, account) = (self.service.clone(), self.account.clone());
        // It waits for a person who unlocks it.
        let looked_up = tokio::task::spawn_blocking(move || {
            keyring::v1::Entry::new(&service, &account).and_then(|entry| entry.get_password())
        });
        let failed = |why: String| {
            let message = format!("look up {}/{} in the system's keyring: {why}", self.service, self.account);
            ModelError::new(ModelErrorKind::Auth, message)
        };
        match looked_up.await {
            Ok(Ok(secret)) => Ok(Fetched { secret: SecretString::from(secret), valid_for: None }),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
