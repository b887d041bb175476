//! Which token goes with the next request?
//!
//! What is stored, renewed a minute ahead of its end; and once a server refuses it, whatever somebody else has stored since, or
//! a new one. One renewal at a time for a server, in all processes: the others take what it brought.

use std::path::Path;
use std::sync::Arc;

use super::endpoint::{self, Refusal};
use super::now;
use super::store::{Record, Store};

/// Seconds before its end at which a token is renewed: longer than a request is on its way.
const AHEAD: u64 = 60;

/// Why there is no token although there was one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("renew its token: {0}")]
pub(crate) struct TokenError(String);

/// The tokens of one server.
#[derive(Debug)]
pub(crate) struct Tokens {
    store: Store,
    server: String,
    url: String,
    http: reqwest::Client,
    /// One of us at a time waits for its turn among the processes.
    turn: tokio::sync::Mutex<()>,
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, TokenError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| TokenError(format!("use the file of tokens: {error}"))),
        Err(_) => Err(TokenError("use the file of tokens".to_owned())),
    }
}

impl Tokens {
    pub(crate) fn new(path: &Path, server: &str, url: &str) -> Result<Self, TokenError> {
        let http = endpoint::client().map_err(TokenError)?;
        let store = Store::new(path);
        Ok(Self { store, server: server.to_owned(), url: url.to_owned(), http, turn: tokio::sync::Mutex::default() })
    }

    /// The token to send; `None` if there is none, or none any more.
    pub(crate) async fn current(&self) -> Result<Option<String>, TokenError> {
        let Some(record) = self.find().await? else { return Ok(None) };
        match is_fresh(&record) {
            true => Ok(record.access_token),
            false => self.renew(None).await,
        }
    }

    /// A token other than `refused`; `None` if there is none to be had without a login.
    pub(crate) async fn instead_of(&self, refused: &str) -> Result<Option<String>, TokenError> {
        self.renew(Some(refused)).await
    }

    async fn find(&self) -> Result<Option<Record>, TokenError> {
        let (store, server, url) = (self.store.clone(), self.server.clone(), self.url.clone());
        blocking(move || store.find(&server, &url)).await
    }

    async fn renew(&self, refused: Option<&str>) -> Result<Option<String>, TokenError> {
        let _one = self.turn.lock().await;
        let (store, server, url) = (self.store.clone(), self.server.clone(), self.url.clone());
        // Kept up to the end: whoever comes next finds what this brought.
        let _held = Arc::new(blocking(move || store.turn(&server, &url)).await?);
        let Some(mut record) = self.find().await? else { return Ok(None) };
        if is_fresh(&record) && record.access_token.as_deref() != refused {
            return Ok(record.access_token);
        }
        let Some(refresh) = record.refresh_token.clone() else {
            return self.give_up(record).await;
        };
        let mut form = vec![("grant_type", "refresh_token".to_owned()), ("refresh_token", refresh)];
        form.extend(record.scope.iter().map(|scope| ("scope", scope.clone())));
        match endpoint::ask(&self.http, &record, form).await {
            Ok(granted) => {
                granted.into_record(&mut record, now());
                let token = record.access_token.clone();
                self.put(record).await?;
                Ok(token)
            }
            // Whatever the word, the same question has the same answer.
            Err(Refusal::Said(word)) => {
                tracing::info!(server = %self.server, %word, "a token can't be renewed; the server wants a login");
                self.give_up(record).await
            }
            // It may still be good for a while.
            Err(Refusal::Unclear(_)) if refused.is_none() && record.expires_at.is_some_and(|end| now() < end) => {
                Ok(record.access_token)
            }
            Err(Refusal::Unclear(why)) => Err(TokenError(why)),
        }
    }

    /// Tokens that are of no use any more go, so that nobody tries them again.
    async fn give_up(&self, record: Record) -> Result<Option<String>, TokenError> {
        self.put(Record { access_token: None, refresh_token: None, expires_at: None, ..record }).await?;
        Ok(None)
    }

    async fn put(&self, record: Record) -> Result<(), TokenError> {
        let store = self.store.clone();
        blocking(move || store.put(record)).await
    }
}

fn is_fresh(record: &Record) -> bool {
    record.access_token.is_some() && record.expires_at.is_none_or(|end| now() + AHEAD < end)
}
