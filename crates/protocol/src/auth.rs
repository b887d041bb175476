//! Giving an agent a credential, and taking it back.

use async_trait::async_trait;

/// Takes credentials for the sessions that are made from then on. A factory that can be given one has it; see
/// [`SessionFactory::authenticator`](crate::SessionFactory::authenticator).
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The ways there are, the usual one first.
    fn methods(&self) -> Vec<AuthMethod>;

    /// Makes the credential of a method the one that is used: `secret` if one is given, else one that the agent finds
    /// by itself. It is kept in memory only.
    ///
    /// Errors: [`AuthError`].
    async fn authenticate(&self, method: &str, secret: Option<String>) -> Result<(), AuthError>;

    /// Forgets what was given. A credential that the agent finds by itself is used again.
    async fn logout(&self);
}

/// A way to give a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthMethod {
    /// Name for programs.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// What a person has to do.
    pub description: String,
}

/// Why there is no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There is no such method.
    #[error("authenticate by \"{0}\": there is no such method")]
    UnknownMethod(String),
    /// The method has no credential. The text says what is missing.
    #[error("{0}")]
    Missing(String),
}
