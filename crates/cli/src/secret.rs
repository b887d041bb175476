//! Secrets by reference: where does a setting say that a secret is, and what is there?
//!
//! A settings file says where: `"$NAME"` or `{"env": "NAME"}`, `{"file": "~/key"}`, `{"command": "pass show key"}`,
//! `{"keyring": "account"}`. Variables and files are read at once, so that what is missing is told before anything
//! starts. Commands and the keyring may ask a person something, and are asked when a request needs them.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use convoke_models::Credential;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::home::Home;

mod command;
#[cfg(feature = "keyring")]
mod keyring;

use command::CommandSource;

/// Key files hold a line; this much is refused, since it is another file.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// What the keyring calls us, if a setting does not say otherwise.
const SERVICE: &str = "convoke";

/// Where a secret is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// In a variable.
    Env(String),
    /// In a file; a `~/` stands for the home.
    File(String),
    /// What a command prints: a line for the shell, or a program with its arguments.
    Command(Vec<String>),
    /// In the system's keyring.
    Keyring { service: String, account: String },
    /// Here, which is not what settings are for.
    Literal(String),
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {path}"),
            Self::Command(words) => write!(f, "the command {}", words.last().map_or("", String::as_str)),
            Self::Keyring { service, account } => write!(f, "the keyring's entry {service}/{account}"),
            Self::Literal(_) => f.write_str("a text in the settings"),
        }
    }
}

/// Why a reference is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it must be \"$VARIABLE\" or an object with one of env, file, command (a text or a list of texts), keyring (a text \
     or {{service, account}})"
)]
pub(crate) struct NoReference;

/// Why a secret is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretError {
    /// A variable.
    #[error("the variable {0} is not set")]
    NotSet(String),
    /// A file.
    #[error("the file {path} can't be read: {reason}")]
    File { path: String, reason: String },
    /// One that a request would have to wait for.
    #[error("{0} can't stand here: only variables and files can")]
    NotAtOnce(String),
    /// Built without it.
    #[cfg(not(feature = "keyring"))]
    #[error("{0} can't be read: this convoke is built without the feature `keyring`")]
    NoKeyring(String),
}

impl Reference {
    /// Reads a setting.
    pub(crate) fn parse(value: &Value) -> Result<Self, NoReference> {
        match value {
            Value::String(text) => Ok(match variable(text) {
                Some(name) => Self::Env(name.to_owned()),
                None if text.trim().is_empty() => return Err(NoReference),
                None => Self::Literal(text.clone()),
            }),
            Value::Object(map) => Self::parse_object(map),
            _ => Err(NoReference),
        }
    }

    fn parse_object(map: &Map<String, Value>) -> Result<Self, NoReference> {
        let mut entries = map.iter();
        let (Some((key, value)), None) = (entries.next(), entries.next()) else { return Err(NoReference) };
        let text = |value: &Value| value.as_str().map(str::to_owned).filter(|text| !text.trim().is_empty());
        match (key.as_str(), value) {
            ("env", value) => text(value).map(Self::Env),
            ("file", value) => text(value).map(Self::File),
            ("command", Value::Array(words)) => {
                let words: Option<Vec<String>> = words.iter().map(text).collect();
                words.filter(|words| !words.is_empty()).map(Self::Command)
            }
            ("command", value) => text(value).map(|line| Self::Command(vec!["sh".to_owned(), "-c".to_owned(), line])),
            ("keyring", Value::Object(entry)) => {
                let field = |key: &str| entry.get(key).and_then(text);
                field("account").filter(|_| entry.keys().all(|key| matches!(key.as_str(), "account" | "service"))).map(
                    |account| Self::Keyring {
                        service: field("service").unwrap_or_else(|| SERVICE.to_owned()),
                        account,
                    },
                )
            }
            ("keyring", value) => text(value).map(|account| Self::Keyring { service: SERVICE.to_owned(), account }),
            _ => None,
        }
        .ok_or(NoReference)
    }

    /// The variable that it names.
    pub(crate) fn variable(&self) -> Option<&str> {
        match self {
            Self::Env(name) => Some(name),
            _ => None,
        }
    }

    /// The secret, or what asks for it later.
    pub(crate) fn credential(&self, environment: &Environment, home: Option<&Home>) -> Result<Credential, SecretError> {
        match self {
            Self::Command(words) => Ok(Credential::from_source(CommandSource::new(words.clone()))),
            #[cfg(feature = "keyring")]
            Self::Keyring { service, account } => {
                Ok(Credential::from_source(keyring::KeyringSource::new(service.clone(), account.clone())))
            }
            #[cfg(not(feature = "keyring"))]
            Self::Keyring { .. } => Err(SecretError::NoKeyring(self.to_string())),
            Self::Env(_) | Self::File(_) | Self::Literal(_) => self.at_once(environment, home).map(Credential::from),
        }
    }

    /// The secret, where it can be read without waiting for anybody.
    pub(crate) fn at_once(&self, environment: &Environment, home: Option<&Home>) -> Result<SecretString, SecretError> {
        match self {
            Self::Env(name) => {
                let value = environment.get(name).ok_or_else(|| SecretError::NotSet(name.clone()))?;
                Ok(SecretString::from(value.trim().to_owned()))
            }
            Self::File(path) => read_file(path, home),
            Self::Literal(text) => Ok(SecretString::from(text.clone())),
            Self::Command(_) | Self::Keyring { .. } => Err(SecretError::NotAtOnce(self.to_string())),
        }
    }
}

/// `$NAME` or `${NAME}`, and nothing around it.
fn variable(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let fits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    fits.then_some(name)
}

/// A path that a person wrote.
pub(crate) fn expand_home(path: &str, home: Option<&Home>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.parent().join(rest),
        _ => PathBuf::from(path),
    }
}

fn read_file(path: &str, home: Option<&Home>) -> Result<SecretString, SecretError> {
    let failed = |reason: String| SecretError::File { path: path.to_owned(), reason };
    let place = expand_home(path, home);
    let length = fs::metadata(&place).map_err(|error| failed(error.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(failed(format!("it has {length} bytes, which is no secret")));
    }
    let text = fs::read_to_string(&place).map_err(|error| failed(error.to_string()))?;
    match text.trim() {
        "" => Err(failed("it is empty".to_owned())),
        secret => Ok(SecretString::from(secret.to_owned())),
    }
}

#[cfg(test)]
mod tests;
