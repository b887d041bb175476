//! Google's credentials: how does an ADC file become an access token?
//!
//! Application default credentials are a JSON file: of a person (a refresh token, as `gcloud auth application-default
//! login` writes it) or of a service account (a private key, with which we sign who we are). Both are exchanged for a
//! token that lives an hour. Other kinds are refused by name, as is a machine's metadata server, which is no file.
//! Source: RFC 6749 §6, RFC 7523 §2.1, Google's guide to OAuth for server-to-server applications.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_adk::{ModelError, ModelErrorKind};
use convoke_stdx::Clock;
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connect::ConnectError;
use crate::credential::{Credential, CredentialSource, Fetched};
use crate::http::{Http, HttpOptions, parse_base, parse_json};

/// Where tokens are given, if the file does not say.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// What the token is for.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// How long a signed claim is good for; the most that Google takes.
const CLAIM_SECONDS: u64 = 3600;
/// The most that a token endpoint's answer may have: tokens have a few KiB.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Why a file is no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoogleCredentialError {
    /// It is not the JSON that it should be; the text quotes nothing of it.
    #[error("read Google credentials: {0}")]
    Shape(String),
    /// Another kind.
    #[error("use Google credentials of type \"{0}\": only authorized_user and service_account are known")]
    Kind(String),
    /// The private key of a service account.
    #[error("read the private key of a service account: {0}")]
    Key(String),
}

/// What an ADC file holds.
pub struct GoogleCredential {
    kind: Kind,
    token_uri: String,
    project: Option<String>,
    quota_project: Option<String>,
}

enum Kind {
    User { client_id: String, client_secret: SecretString, refresh_token: SecretString },
    Service { email: String, key_id: Option<String>, key: Box<dyn rustls::sign::Signer> },
}

impl fmt::Debug for GoogleCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GoogleCredential").field("project", &self.project).finish_non_exhaustive()
    }
}

/// The fields of both kinds.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "type", default)]
    kind: String,
    client_id: Option<String>,
    client_secret: Option<SecretString>,
    refresh_token: Option<SecretString>,
    client_email: Option<String>,
    private_key: Option<SecretString>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
    project_id: Option<String>,
    quota_project_id: Option<String>,
}

impl GoogleCredential {
    /// Reads the text of an ADC file.
    pub fn parse(text: &str) -> Result<Self, GoogleCredentialError> {
        // The error's own text may quote a value.
        let file: File = serde_json::from_str(text).map_err(|error| {
            let at = format!("not the expected JSON at line {}, column {}", error.line(), error.column());
            GoogleCredentialError::Shape(at)
        })?;
        let missing = |field: &str| GoogleCredentialError::Shape(format!("the field {field} is missing"));
        let kind = match file.kind.as_str() {
            "authorized_user" => Kind::User {
                client_id: file.client_id.ok_or_else(|| missing("client_id"))?,
                client_secret: file.client_secret.ok_or_else(|| missing("client_secret"))?,
                refresh_token: file.refresh_token.ok_or_else(|| missing("refresh_token"))?,
            },
            "service_account" => Kind::Service {
                email: file.client_email.ok_or_else(|| missing("client_email"))?,
                key_id: file.private_key_id,
                key: signer(file.private_key.ok_or_else(|| missing("private_key"))?.expose_secret())?,
            },
            "" => return Err(missing("type")),
            other => return Err(GoogleCredentialError::Kind(other.to_owned())),
        };
        Ok(Self {
            kind,
            token_uri: file.token_uri.unwrap_or_else(|| TOKEN_URI.to_owned()),
            project: file.project_id,
            quota_project: file.quota_project_id,
        })
    }

    /// The project that the credential belongs to.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        self.project.as_deref().or(self.quota_project.as_deref())
    }

    /// The project that calls are charged to, where the file names one.
    #[must_use]
    pub fn quota_project(&self) -> Option<&str> {
        self.quota_project.as_deref()
    }

    /// Access tokens, fetched with `http`'s timeouts when they are needed.
    pub fn into_tokens(self, http: HttpOptions) -> Result<Credential, ConnectError> {
        // Headers are for the model's server.
        let http = Http::new(parse_base(&self.token_uri)?, None, HttpOptions { headers: Vec::new(), ..http })?;
        Ok(Credential::from_source(Tokens { credential: self, http, clock: Clock::start() }))
    }

    /// What a token endpoint is asked.
    fn form(&self, now_seconds: u64) -> Result<Vec<u8>, ModelError> {
        let fields: Vec<(&str, String)> = match &self.kind {
            Kind::User { client_id, client_secret, refresh_token } => vec![
                ("grant_type", "refresh_token".to_owned()),
                ("client_id", client_id.clone()),
                ("client_secret", client_secret.expose_secret().to_owned()),
                ("refresh_token", refresh_token.expose_secret().to_owned()),
            ],
            Kind::Service { email, key_id, key } => {
                let claim = Claim { email, key_id: key_id.as_deref(), audience: &self.token_uri };
                vec![
                    ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned()),
                    ("assertion", claim.signed(key.as_ref(), now_seconds)?),
                ]
            }
        };
        let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        Ok(pairs.join("&").into_bytes())
    }

    /// What must never be told.
    fn secrets(&self) -> Vec<&SecretString> {
        match &self.kind {
            Kind::User { client_secret, refresh_token, .. } => vec![client_secret, refresh_token],
            Kind::Service { .. } => Vec::new(),
        }
    }
}

/// Reads an RSA key in PEM.
fn signer(pem: &str) -> Result<Box<dyn rustls::sign::Signer>, GoogleCredentialError> {
    let key = |text: String| GoogleCredentialError::Key(text);
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| key("it is not PEM".to_owned()))?;
    let signing = rustls::crypto::ring::sign::any_supported_type(&der).map_err(|error| key(error.to_string()))?;
    signing.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).ok_or_else(|| key("it is not an RSA key".to_owned()))
}

/// Who we are, to be signed (RFC 7523 §3).
struct Claim<'a> {
    email: &'a str,
    key_id: Option<&'a str>,
    audience: &'a str,
}

impl Claim<'_> {
    /// A JSON web token, signed with RS256.
    fn signed(&self, key: &dyn rustls::sign::Signer, now_seconds: u64) -> Result<String, ModelError> {
        let mut head = json!({"alg": "RS256", "typ": "JWT"});
        if let (Some(id), Some(head)) = (self.key_id, head.as_object_mut()) {
            head.insert("kid".to_owned(), id.into());
        }
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.audience,
            "iat": now_seconds,
            "exp": now_seconds.saturating_add(CLAIM_SECONDS),
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&head), encode(&claims));
        let signature = key.sign(text.as_bytes());
        let signature = signature.map_err(|error| {
            ModelError::new(ModelErrorKind::Auth, format!("sign for the service account {}: {error}", self.email))
        })?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// A value of a form.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

struct Tokens {
    credential: GoogleCredential,
    http: Http,
    clock: Clock,
}

#[async_trait]
impl CredentialSource for Tokens {
    async fn fetch(&self) -> Result<Fetched, ModelError> {
        #[derive(Deserialize)]
        struct Answer {
            access_token: SecretString,
            expires_in: Option<u64>,
        }
        let form = self.credential.form(self.clock.now().wall_ms / 1000)?;
        let answer = async { self.http.post_form("", form).await?.bytes_up_to(ANSWER_BYTES_MAX).await };
        let answer: Answer = parse_json(&answer.await.map_err(|error| self.explain(error))?)?;
        Ok(Fetched { secret: answer.access_token, valid_for: answer.expires_in.map(Duration::from_secs) })
    }
}

impl Tokens {
    /// Says what was tried. A refusal is one of the credential, whatever its status.
    fn explain(&self, mut error: ModelError) -> ModelError {
        for secret in self.credential.secrets() {
            error.message = error.message.replace(secret.expose_secret(), "[redacted]");
        }
        if matches!(error.status, Some(400..=403)) {
            error.kind = ModelErrorKind::Auth;
        }
        let whose = match &self.credential.kind {
            Kind::User { .. } => "the user of the ADC file".to_owned(),
            Kind::Service { email, .. } => format!("the service account {email}"),
        };
        error.message = format!("get an access token for {whose} from {}: {}", self.http.origin(), error.message);
        error
    }
}

#[cfg(test)]
mod tests;
