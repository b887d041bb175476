//! How is a token asked for? One post of a form, whose answer is a token or a word that says why not.

use std::time::Duration;

use futures::StreamExt;
use reqwest::Url;
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::Value;

use super::store::Record;

/// How long an authorization server may think.
const WAIT: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const BYTES_MAX: usize = 1 << 20;

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The server said so, in a word of RFC 6749 or RFC 8628.
    #[error("it answered {0}")]
    Said(String),
    /// It could not be asked, or made no sense.
    #[error("{0}")]
    Unclear(String),
}

/// A token, as it is given.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) expires_in: Option<f64>,
    pub(super) scope: Option<String>,
}

/// A client that follows nobody: what it sends is secret.
pub(super) fn client() -> Result<reqwest::Client, String> {
    // Somebody may have installed one before; either is ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = reqwest::Client::builder().timeout(WAIT).redirect(Policy::none()).build();
    built.map_err(|_| "make an HTTP client".to_owned())
}

/// Whether secrets may go there: over TLS, on this machine, or to a server that is spoken to without TLS anyway.
pub(super) fn may_go_to(url: &str, server: &str) -> bool {
    let (Ok(url), Ok(server)) = (Url::parse(url), Url::parse(server)) else { return false };
    let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    url.scheme() == "https" || (url.scheme() == "http" && (local || url.origin() == server.origin()))
}

/// Posts `body` and gives status and answer.
pub(super) async fn post(request: reqwest::RequestBuilder) -> Result<(u16, Value), String> {
    // The address is known to whoever reads this, and what was sent must not be.
    let response = request.send().await.map_err(|error| crate::client::told(&error.without_url()))?;
    let status = response.status().as_u16();
    let (mut bytes, mut chunks) = (Vec::new(), response.bytes_stream());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| crate::client::told(&error.without_url()))?;
        if bytes.len() + chunk.len() > BYTES_MAX {
            return Err("its answer is too long".to_owned());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

/// Asks the token endpoint of `record`, as its client.
pub(super) async fn ask(
    http: &reqwest::Client,
    record: &Record,
    mut form: Vec<(&str, String)>,
) -> Result<Granted, Refusal> {
    let mut request = http.post(&record.token_url).header(http::header::ACCEPT, "application/json");
    form.push(("client_id", record.client_id.clone()));
    match &record.client_secret {
        Some(secret) if record.secret_in_body => form.push(("client_secret", secret.clone())),
        Some(secret) => request = request.basic_auth(encoded(&record.client_id), Some(encoded(secret))),
        None => {}
    }
    form.extend(record.resource.iter().map(|resource| ("resource", resource.clone())));
    form.extend(record.audience.iter().map(|audience| ("audience", audience.clone())));
    let (status, answer) = post(as_form(request, &form)).await.map_err(Refusal::Unclear)?;
    if (200..300).contains(&status) {
        return serde_json::from_value(answer).map_err(|_| Refusal::Unclear("its answer holds no token".to_owned()));
    }
    Err(match error_word(&answer) {
        Some(word) if status < 500 => Refusal::Said(word),
        _ => Refusal::Unclear(format!("it answered with status {status}")),
    })
}

/// A request with a form as its body.
pub(super) fn as_form(request: reqwest::RequestBuilder, form: &[(&str, String)]) -> reqwest::RequestBuilder {
    let pairs: Vec<String> = form.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    request.header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(pairs.join("&"))
}

/// The word for a failure, if it is one: nothing else of an answer is repeated.
pub(super) fn error_word(answer: &Value) -> Option<String> {
    let word = answer.get("error")?.as_str()?;
    let is_word = !word.is_empty() && word.len() <= 64 && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word.then(|| word.to_owned())
}

/// As in a form: everything but unreserved characters in percent.
fn encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl Granted {
    /// Writes the token into `record`. A token for renewal that is not replaced goes on.
    pub(super) fn into_record(self, record: &mut Record, now: u64) {
        record.access_token = Some(self.access_token);
        if self.refresh_token.is_some() {
            record.refresh_token = self.refresh_token;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a year")]
        let seconds = |seconds: f64| seconds.clamp(0.0, 31_536_000.0) as u64;
        record.expires_at = self.expires_in.map(|expires_in| now + seconds(expires_in));
        record.scope = self.scope.or(record.scope.take());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_go_over_tls_or_stay_here() {
        let remote = "https://mcp.example/mcp";
        for (url, may) in [
            ("https://auth.example/token", true),
            ("http://auth.example/token", false),
            ("http://127.0.0.1:9/token", true),
            ("ftp://auth.example/token", false),
            ("token", false),
        ] {
            assert_eq!(may_go_to(url, remote), may, "{url}");
        }
        assert!(may_go_to("http://mcp.lan/token", "http://mcp.lan/mcp"));
    }

    #[test]
    fn only_a_word_of_a_refusal_is_repeated() {
        assert_eq!(error_word(&json!({"error": "invalid_grant"})).as_deref(), Some("invalid_grant"));
        assert_eq!(error_word(&json!({"error": "your token abc is bad"})), None);
        assert_eq!(error_word(&Value::Null), None);
        assert_eq!(encoded("a b/ü~"), "a%20b%2F%C3%BC~");
    }
}
