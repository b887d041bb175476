//! One entry of `providers` in the settings: a dictionary of what may stand in it, and where.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::secret::Reference;

/// A protocol that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gemini,
    Vertex,
    OpenAi,
    Anthropic,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Gemini, Self::Vertex, Self::OpenAi, Self::Anthropic];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gemini => "gemini",
            Self::Vertex => "vertex",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text)
    }
}

/// The valid values of `type`.
const TYPES: &str = "gemini, vertex, openai, anthropic or gateway";
/// The valid values of `api`.
const APIS: &str = "gemini, vertex, openai or anthropic";

/// How a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// In the header that the protocol has for it.
    Header,
    Bearer,
    None,
}

/// An entry that can't be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the setting {key}: {reason}")]
pub(crate) struct InvalidEntry {
    key: String,
    reason: String,
}

impl InvalidEntry {
    /// `path` is below `providers`, with dots.
    pub(super) fn new(path: &str, reason: impl ToString) -> Self {
        let key = if path.is_empty() { "providers".to_owned() } else { format!("providers.{path}") };
        Self { key, reason: reason.to_string() }
    }
}

/// What an entry says, checked.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) from_settings: bool,
    pub(super) base_url: Option<String>,
    pub(super) api_key: Option<Reference>,
    pub(super) access_token: Option<Reference>,
    pub(super) auth: Option<Auth>,
    pub(super) headers: BTreeMap<String, Reference>,
    pub(super) models: Vec<String>,
    pub(super) extra_body: Map<String, Value>,
    pub(super) include_usage: Option<bool>,
    pub(super) prompt_caching: Option<bool>,
    pub(super) project: Option<String>,
    pub(super) location: Option<String>,
    pub(super) quota_project: Option<String>,
    pub(super) credentials: Option<String>,
    pub(super) api_version: Option<String>,
    pub(super) read_timeout_seconds: Option<u64>,
    pub(super) ca_file: Option<String>,
}

/// The shape of an entry. Unknown keys are refused: a base URL with a typing error would send the key elsewhere.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    r#type: Option<String>,
    api: Option<String>,
    base_url: Option<String>,
    api_key: Option<Value>,
    access_token: Option<Value>,
    auth: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Value>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    extra_body: Map<String, Value>,
    include_usage: Option<bool>,
    prompt_caching: Option<bool>,
    project: Option<String>,
    location: Option<String>,
    quota_project: Option<String>,
    credentials: Option<String>,
    api_version: Option<String>,
    read_timeout_seconds: Option<u64>,
    ca_file: Option<String>,
}

impl Entry {
    /// What is there without settings.
    pub(super) fn built_in(kind: Kind) -> Self {
        Self {
            kind,
            from_settings: false,
            base_url: None,
            api_key: None,
            access_token: None,
            auth: None,
            headers: BTreeMap::new(),
            models: Vec::new(),
            extra_body: Map::new(),
            include_usage: None,
            prompt_caching: None,
            project: None,
            location: None,
            quota_project: None,
            credentials: None,
            api_version: None,
            read_timeout_seconds: None,
            ca_file: None,
        }
    }

    /// Reads and checks an entry. Errors tell names and never a value of a secret.
    pub(super) fn read(name: &str, value: &Value) -> Result<Self, InvalidEntry> {
        if name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace()) {
            return Err(InvalidEntry::new(name, "a provider's name has no slash and no blank"));
        }
        let Value::Object(map) = value else { return Err(InvalidEntry::new(name, "it must be an object")) };
        let written: Written = serde_json::from_value(value.clone()).map_err(|error| InvalidEntry::new(name, error))?;
        let (kind, gateway) = kind(name, &written)?;
        let at = |key: &str| format!("{name}.{key}");
        if let Some(key) = map.keys().find(|key| !fits(key, kind, gateway)) {
            let whose = if gateway { "a gateway to " } else { "" };
            return Err(InvalidEntry::new(&at(key), format!("it means nothing for {whose}{}", kind.name())));
        }
        if gateway && written.base_url.is_none() {
            return Err(InvalidEntry::new(&at("baseUrl"), "a gateway needs one"));
        }
        let auth = match written.auth.as_deref() {
            None => gateway.then_some(Auth::Bearer),
            Some("header") if kind == Kind::OpenAi => {
                let reason = "this protocol has no header of its own for keys: choose bearer or none";
                return Err(InvalidEntry::new(&at("auth"), reason));
            }
            Some("header") => Some(Auth::Header),
            Some("bearer") => Some(Auth::Bearer),
            Some("none") => Some(Auth::None),
            Some(other) => {
                let reason = format!("\"{other}\" is unknown: choose header, bearer or none");
                return Err(InvalidEntry::new(&at("auth"), reason));
            }
        };
        let reference = |key: &str, value: Option<Value>| {
            value.map(|value| Reference::parse(&value)).transpose().map_err(|error| InvalidEntry::new(&at(key), error))
        };
        let mut headers = BTreeMap::new();
        for (header, value) in written.headers {
            let found = reference(&format!("headers.{header}"), Some(value))?;
            headers.extend(found.map(|found| (header, found)));
        }
        Ok(Self {
            kind,
            from_settings: true,
            base_url: written.base_url,
            api_key: reference("apiKey", written.api_key)?,
            access_token: reference("accessToken", written.access_token)?,
            auth,
            headers,
            models: written.models,
            extra_body: written.extra_body,
            include_usage: written.include_usage,
            prompt_caching: written.prompt_caching,
            project: written.project,
            location: written.location,
            quota_project: written.quota_project,
            credentials: written.credentials,
            api_version: written.api_version,
            read_timeout_seconds: written.read_timeout_seconds,
            ca_file: written.ca_file,
        })
    }

    /// A key that stands in the file itself. Headers often hold no secret.
    pub(super) fn warning(&self, name: &str) -> Option<String> {
        let literal = |reference: &Option<Reference>| matches!(reference, Some(Reference::Literal(_)));
        let key = match () {
            () if literal(&self.api_key) => "apiKey",
            () if literal(&self.access_token) => "accessToken",
            () => return None,
        };
        Some(format!(
            "the setting providers.{name}.{key} holds the secret itself; \"$VARIABLE\" would keep it out of the file"
        ))
    }
}

fn kind(name: &str, written: &Written) -> Result<(Kind, bool), InvalidEntry> {
    let unknown = |key: &str, text: &str, valid: &str| {
        InvalidEntry::new(&format!("{name}.{key}"), format!("\"{text}\" is unknown: choose {valid}"))
    };
    match written.r#type.as_deref() {
        Some("gateway") => match written.api.as_deref() {
            Some(api) => Kind::parse(api).map(|kind| (kind, true)).ok_or_else(|| unknown("api", api, APIS)),
            None => Err(InvalidEntry::new(&format!("{name}.api"), format!("a gateway needs one: choose {APIS}"))),
        },
        Some(text) => Kind::parse(text).map(|kind| (kind, false)).ok_or_else(|| unknown("type", text, TYPES)),
        None => Kind::parse(name)
            .map(|kind| (kind, false))
            .ok_or_else(|| InvalidEntry::new(&format!("{name}.type"), format!("it is missing: choose {TYPES}"))),
    }
}

/// Whether a key means something for a provider.
fn fits(key: &str, kind: Kind, gateway: bool) -> bool {
    match key {
        "type" | "baseUrl" | "apiKey" | "headers" | "models" | "readTimeoutSeconds" | "caFile" => true,
        "api" => gateway,
        // Vertex AI takes keys and tokens, each in its place.
        "auth" => kind != Kind::Vertex && (gateway || kind != Kind::OpenAi),
        "extraBody" => matches!(kind, Kind::OpenAi | Kind::Anthropic),
        "includeUsage" => kind == Kind::OpenAi,
        "promptCaching" => kind == Kind::Anthropic,
        "project" | "location" | "quotaProject" | "credentials" | "accessToken" => kind == Kind::Vertex,
        "apiVersion" => matches!(kind, Kind::Gemini | Kind::Vertex),
        _ => false,
    }
}
