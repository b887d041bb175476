//! What may a configuration say about a login, where it can't be discovered?

use std::fmt;

use serde_json::{Map, Value};

/// The `oauth` of a server's configuration. Whatever is missing is discovered.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuthSettings {
    /// Whether tokens are used at all.
    pub enabled: bool,
    /// A client that was registered by hand.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// Where a person says yes.
    pub authorization_url: Option<String>,
    /// Where tokens come from.
    pub token_url: Option<String>,
    /// Where clients are registered.
    pub registration_url: Option<String>,
    /// Whose metadata to read, in place of those that the server names.
    pub issuer: Option<String>,
    /// What to ask for.
    pub scopes: Vec<String>,
    /// For whom tokens are to be good.
    pub audiences: Vec<String>,
    /// Where the answer goes, if the client was registered with one address.
    pub redirect_uri: Option<String>,
}

impl Default for OAuthSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            client_id: None,
            client_secret: None,
            authorization_url: None,
            token_url: None,
            registration_url: None,
            issuer: None,
            scopes: Vec::new(),
            audiences: Vec::new(),
            redirect_uri: None,
        }
    }
}

impl fmt::Debug for OAuthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("enabled", &self.enabled)
            .field("client_id", &self.client_id)
            .field("client_secret", &self.client_secret.is_some())
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl OAuthSettings {
    /// Reads an entry's `oauth` and `authProviderType`.
    pub(crate) fn parse(entry: &Map<String, Value>) -> Result<Self, String> {
        match entry.get("authProviderType").and_then(Value::as_str) {
            None | Some("dynamic_discovery") => {}
            Some(other) => {
                return Err(format!("authProviderType \"{other}\" is not supported: give a token in headers"));
            }
        }
        let read = match entry.get("oauth") {
            None | Some(Value::Null) => return Ok(Self::default()),
            // As some write it to say no.
            Some(Value::Bool(enabled)) => return Ok(Self { enabled: *enabled, ..Self::default() }),
            Some(Value::Object(read)) => read,
            Some(_) => return Err("oauth is not an object".to_owned()),
        };
        let text = |key: &str| match read.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("oauth.{key} must be a text")),
        };
        let address = |key: &str| match text(key)? {
            Some(url) if !is_address(&url) => {
                Err(format!("oauth.{key} must be an address that begins with http:// or https://"))
            }
            url => Ok(url),
        };
        let texts = |key: &str| match read.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(text.split_whitespace().map(ToOwned::to_owned).collect()),
            Some(Value::Array(items)) => {
                let items: Option<Vec<_>> = items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect();
                items.ok_or_else(|| format!("oauth.{key} must be a list of texts"))
            }
            Some(_) => Err(format!("oauth.{key} must be a list of texts")),
        };
        let settings = Self {
            enabled: read.get("enabled").and_then(Value::as_bool).unwrap_or(true),
            client_id: text("clientId")?,
            client_secret: text("clientSecret")?,
            authorization_url: address("authorizationUrl")?,
            token_url: address("tokenUrl")?,
            registration_url: address("registrationUrl")?,
            issuer: address("issuer")?,
            scopes: texts("scopes")?,
            audiences: texts("audiences")?,
            redirect_uri: address("redirectUri")?,
        };
        if settings.authorization_url.is_some() != settings.token_url.is_some() {
            return Err("oauth.authorizationUrl and oauth.tokenUrl belong together".to_owned());
        }
        if settings.client_secret.is_some() && settings.client_id.is_none() {
            return Err("oauth.clientSecret needs oauth.clientId".to_owned());
        }
        Ok(settings)
    }
}

fn is_address(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(entry: &Value) -> Result<OAuthSettings, String> {
        OAuthSettings::parse(entry.as_object().unwrap())
    }

    #[test]
    fn what_is_written_is_read_and_the_secret_is_not_shown() {
        let settings = parse(&json!({"oauth": {
            "clientId": "c", "clientSecret": "hidden", "authorizationUrl": "https://a/authorize", "tokenUrl": "https://a/token",
            "scopes": ["a", "b"], "audiences": "x y", "redirectUri": "http://localhost:7777/oauth/callback",
        }}))
        .unwrap();
        assert_eq!((settings.scopes.len(), settings.audiences.len(), settings.enabled), (2, 2, true));
        assert!(!format!("{settings:?}").contains("hidden"));
        assert!(!parse(&json!({"oauth": {"enabled": false}})).unwrap().enabled);
        assert!(parse(&json!({"authProviderType": "dynamic_discovery"})).is_ok());
    }

    #[test]
    fn what_can_not_be_used_is_said() {
        for (entry, part) in [
            (json!({"oauth": 1}), "not an object"),
            (json!({"oauth": {"tokenUrl": "https://a/token"}}), "belong together"),
            (json!({"oauth": {"clientSecret": "x"}}), "needs oauth.clientId"),
            (json!({"oauth": {"issuer": "nowhere"}}), "oauth.issuer"),
            (json!({"oauth": {"scopes": [1]}}), "oauth.scopes"),
            (json!({"authProviderType": "google_credentials"}), "not supported"),
        ] {
            assert!(parse(&entry).unwrap_err().contains(part), "{entry}");
        }
    }
}
