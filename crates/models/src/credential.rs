//! Credentials: what proves to a server who asks, and where does it come from?
//!
//! A [`Credential`] is known from the start, or is [`Renewed`]: asked of a [`CredentialSource`] when it is first needed
//! and again shortly before it expires. However many calls need it at once, the source is asked once: the first one
//! starts a *flight* that all of them await. A flight belongs to no task; if every caller goes away, it rests until the
//! next one comes, and goes on.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::ModelError;
use convoke_stdx::{Clock, Tick};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use secrecy::{ExposeSecret, SecretString};

/// How long before its end a secret is replaced: longer than a request may wait in a queue on its way.
const MARGIN: Duration = Duration::from_secs(120);

/// A secret for a server.
#[derive(Clone)]
pub enum Credential {
    /// One that stays.
    Fixed(SecretString),
    /// One that is asked for.
    Renewed(Arc<Renewed>),
}

impl Credential {
    /// A credential that is asked for when it is needed.
    pub fn from_source(source: impl CredentialSource + 'static) -> Self {
        Self::Renewed(Arc::new(Renewed::new(Arc::new(source))))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed(_) => "Credential::Fixed(…)",
            Self::Renewed(_) => "Credential::Renewed(…)",
        })
    }
}

impl From<SecretString> for Credential {
    fn from(secret: SecretString) -> Self {
        Self::Fixed(secret)
    }
}

impl From<String> for Credential {
    fn from(secret: String) -> Self {
        Self::Fixed(secret.into())
    }
}

/// Gives secrets: a token endpoint, a command, a keyring.
#[async_trait]
pub trait CredentialSource: Send + Sync {
    /// One secret. Errors say what was looked for, and are [`Auth`](convoke_adk::ModelErrorKind::Auth) where trying
    /// again does not help. Dropping the future ends the attempt.
    async fn fetch(&self) -> Result<Fetched, ModelError>;
}

/// A secret that was given.
#[derive(Clone)]
pub struct Fetched {
    /// The secret.
    pub secret: SecretString,
    /// How long it is good for; `None` for as long as servers take it.
    pub valid_for: Option<Duration>,
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched").field("valid_for", &self.valid_for).finish_non_exhaustive()
    }
}

type Flight = Shared<BoxFuture<'static, Result<Held, ModelError>>>;

/// A secret that is kept until shortly before it expires.
pub struct Renewed {
    source: Arc<dyn CredentialSource>,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    flight: Option<Flight>,
}

#[derive(Clone)]
struct Held {
    secret: SecretString,
    expires: Option<Tick>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    Good,
    /// Still good, and soon no more.
    Due,
    Expired,
}

impl Held {
    fn freshness(&self, now: Tick) -> Freshness {
        match self.expires {
            Some(end) if now >= end => Freshness::Expired,
            Some(end) if now.after(MARGIN) >= end => Freshness::Due,
            _ => Freshness::Good,
        }
    }
}

impl Renewed {
    fn new(source: Arc<dyn CredentialSource>) -> Self {
        Self { source, clock: Clock::start(), state: Mutex::default() }
    }

    /// The secret: the one at hand, or a new one.
    pub(crate) async fn get(&self) -> Result<SecretString, ModelError> {
        let (flight, fallback) = {
            let mut state = self.state();
            let now = self.clock.now().tick;
            let held = state.held.clone().map(|held| (held.freshness(now), held.secret));
            let fallback = match held {
                Some((Freshness::Good, secret)) => return Ok(secret),
                Some((Freshness::Due, secret)) => Some(secret),
                Some((Freshness::Expired, _)) | None => None,
            };
            (state.flight.get_or_insert_with(|| self.flight()).clone(), fallback)
        };
        let landed = flight.clone().await;
        let mut state = self.state();
        // The first who sees it land puts it away; the flight after it is another one.
        if state.flight.as_ref().is_some_and(|current| current.ptr_eq(&flight)) {
            state.flight = None;
            if let Ok(held) = &landed {
                state.held = Some(held.clone());
            }
        }
        match (landed, fallback) {
            (Ok(held), _) => Ok(held.secret),
            // The old one is still good; there is time to try again.
            (Err(_), Some(secret)) => Ok(secret),
            (Err(error), None) => Err(error),
        }
    }

    fn flight(&self) -> Flight {
        let source = Arc::clone(&self.source);
        let clock = self.clock;
        let flight = async move {
            // Counted from before the request: rather too short than too long.
            let start = clock.now().tick;
            let fetched = source.fetch().await?;
            Ok(Held { secret: fetched.secret, expires: fetched.valid_for.map(|length| start.after(length)) })
        };
        flight.boxed().shared()
    }

    /// A server refused this one.
    pub(crate) fn forget(&self, refused: &SecretString) {
        let mut state = self.state();
        if state.held.as_ref().is_some_and(|held| held.secret.expose_secret() == refused.expose_secret()) {
            state.held = None;
        }
    }

    /// The secret at hand.
    pub(crate) fn held(&self) -> Option<SecretString> {
        self.state().held.as_ref().map(|held| held.secret.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
