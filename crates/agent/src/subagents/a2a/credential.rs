//! What proves to an agent elsewhere who we are, and where is the secret? In the environment, and nowhere else: a
//! definition names a variable.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::subagents::definition::RemoteAuth;

/// A variable that holds a secret, written `$NAME` or `${NAME}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretVariable(String);

impl SecretVariable {
    /// Reads `$NAME` or `${NAME}`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let name = text.trim().strip_prefix('$')?;
        let name = name.strip_prefix('{').map_or(Some(name), |name| name.strip_suffix('}'))?;
        let fits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        fits.then(|| Self(name.to_owned()))
    }

    /// The variable's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Where the values of variables are; nowhere by default.
#[derive(Clone, Default)]
pub struct Variables(Option<Arc<Lookup>>);

impl Variables {
    /// Asks `lookup` for a variable by its name.
    pub fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(lookup)))
    }

    fn get(&self, variable: &SecretVariable) -> Result<String, CredentialError> {
        let value = self.0.as_ref().and_then(|lookup| lookup(&variable.0));
        value.ok_or_else(|| CredentialError::Missing(variable.0.clone()))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variables(…)")
    }
}

/// Why there is nothing to prove it with. No text holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CredentialError {
    #[error("the variable {0} is not set")]
    Missing(String),
    #[error("\"{0}\" is no name of a header")]
    Header(String),
    #[error("the variable {0} holds characters that no header may have")]
    Value(String),
}

/// The headers that prove it.
pub(super) fn proof(auth: Option<&RemoteAuth>, variables: &Variables) -> Result<HeaderMap, CredentialError> {
    let (name, value, variable) = match auth {
        None => return Ok(HeaderMap::new()),
        Some(RemoteAuth::ApiKey { key, header }) => {
            let name = HeaderName::try_from(header.as_str());
            (name.map_err(|_| CredentialError::Header(header.clone()))?, variables.get(key)?, key)
        }
        Some(RemoteAuth::Bearer(token)) => (AUTHORIZATION, format!("Bearer {}", variables.get(token)?), token),
        Some(RemoteAuth::Basic { username, password }) => {
            let username = match SecretVariable::parse(username) {
                Some(variable) => variables.get(&variable)?,
                None => username.clone(),
            };
            let pair = STANDARD.encode(format!("{username}:{}", variables.get(password)?));
            (AUTHORIZATION, format!("Basic {pair}"), password)
        }
    };
    let mut value = HeaderValue::try_from(value).map_err(|_| CredentialError::Value(variable.0.clone()))?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(name, value)]))
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn a_variable_is_named_and_nothing_else_is_one() {
        let name = |text: &str| SecretVariable::parse(text).map(|variable| variable.0);
        assert_eq!([name("$A_1"), name(" ${B} ")], [Some("A_1".into()), Some("B".into())]);
        for text in ["", "$", "${", "${}", "${A", "$A}", "A", "$A B", "!command", "$$A", "sk-literal"] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn each_kind_has_its_header_and_none_is_shown() {
        let variables = Variables::new(|name| match name {
            "T" => Some("secret".to_owned()),
            "BAD" => Some("a\nb".to_owned()),
            _ => None,
        });
        let variable = |name: &str| SecretVariable::parse(&format!("${name}")).unwrap();
        let read = |auth: RemoteAuth| {
            let headers = proof(Some(&auth), &variables)?;
            let (name, value) = headers.iter().next().unwrap();
            assert!(!format!("{headers:?} {auth:?} {variables:?}").contains("secret"));
            Ok(format!("{name}: {}", value.to_str().unwrap()))
        };
        let key = |header: &str| RemoteAuth::ApiKey { key: variable("T"), header: header.to_owned() };
        assert_eq!(read(key("X-API-Key")), Ok("x-api-key: secret".into()));
        assert_eq!(read(RemoteAuth::Bearer(variable("T"))), Ok("authorization: Bearer secret".into()));
        let basic = RemoteAuth::Basic { username: "u".into(), password: variable("T") };
        assert_eq!(read(basic), Ok("authorization: Basic dTpzZWNyZXQ=".into()));
        assert_eq!(read(RemoteAuth::Bearer(variable("GONE"))), Err(CredentialError::Missing("GONE".into())));
        assert_eq!(read(RemoteAuth::Bearer(variable("BAD"))), Err(CredentialError::Value("BAD".into())));
        assert_eq!(read(key("a b")), Err(CredentialError::Header("a b".into())));
        assert!(proof(None, &variables).unwrap().is_empty());
    }
}
