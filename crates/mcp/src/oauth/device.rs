//! How does a login go where no browser can come back? With a code that is typed in elsewhere (RFC 8628).

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::endpoint::{self, Granted, Refusal};
use super::store::Record;

/// How a token is asked for with a device's code.
pub(super) const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Between two questions, if the server does not say.
const INTERVAL: Duration = Duration::from_secs(5);
/// What a server may ask for.
const INTERVAL_MAX: Duration = Duration::from_mins(1);
/// What `slow_down` adds. Source: RFC 8628 §3.5.
const SLOWER: Duration = Duration::from_secs(5);
/// A code is good for no longer, whatever its server says.
const GOOD_FOR_MAX: Duration = Duration::from_mins(30);

/// A code and where to type it.
#[derive(Deserialize)]
pub(super) struct Offer {
    device_code: String,
    pub(super) user_code: String,
    #[serde(alias = "verification_url")]
    pub(super) verification_uri: String,
    pub(super) verification_uri_complete: Option<String>,
    #[serde(default)]
    expires_in: u64,
    interval: Option<u64>,
}

/// When to ask next, and whether at all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Polling {
    interval: Duration,
    left: Duration,
}

/// What an answer means for the waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    Wait(Duration),
    End(String),
}

impl Polling {
    fn new(offer: &Offer) -> Self {
        let interval = offer.interval.map_or(INTERVAL, Duration::from_secs);
        let good_for = match offer.expires_in {
            0 => GOOD_FOR_MAX,
            seconds => Duration::from_secs(seconds).min(GOOD_FOR_MAX),
        };
        Self { interval: interval.clamp(Duration::from_secs(1), INTERVAL_MAX), left: good_for }
    }

    /// Before the first question.
    fn first(&mut self) -> Then {
        self.wait()
    }

    fn after(&mut self, refusal: &Refusal) -> Then {
        match refusal {
            Refusal::Said(word) => match word.as_str() {
                "authorization_pending" => self.wait(),
                "slow_down" => {
                    self.interval = (self.interval + SLOWER).min(INTERVAL_MAX);
                    self.wait()
                }
                "expired_token" => Then::End("the code was not typed in in time".to_owned()),
                "access_denied" => Then::End("the login was refused".to_owned()),
                other => Then::End(format!("the server answered {other}")),
            },
            // Source: RFC 8628 §3.5: ask less often where the connection fails.
            Refusal::Unclear(_) => {
                self.interval = (self.interval * 2).min(INTERVAL_MAX);
                self.wait()
            }
        }
    }

    fn wait(&mut self) -> Then {
        match self.left.checked_sub(self.interval) {
            Some(left) => {
                self.left = left;
                Then::Wait(self.interval)
            }
            None => Then::End("the code was not typed in in time".to_owned()),
        }
    }
}

/// Asks for a code. `Err` has the word or the reason of the refusal.
pub(super) async fn offer(
    http: &reqwest::Client,
    url: &str,
    record: &Record,
    scopes: &[String],
) -> Result<Offer, String> {
    let mut form = vec![("client_id", record.client_id.clone())];
    if !scopes.is_empty() {
        form.push(("scope", scopes.join(" ")));
    }
    form.extend(record.resource.iter().map(|resource| ("resource", resource.clone())));
    form.extend(record.audience.iter().map(|audience| ("audience", audience.clone())));
    let mut request = http.post(url).header(http::header::ACCEPT, "application/json");
    match &record.client_secret {
        Some(secret) if record.secret_in_body => form.push(("client_secret", secret.clone())),
        Some(secret) => request = request.basic_auth(&record.client_id, Some(secret)),
        None => {}
    }
    let (status, answer) = endpoint::post(endpoint::as_form(request, &form)).await?;
    if !(200..300).contains(&status) {
        return Err(endpoint::error_word(&answer).unwrap_or_else(|| format!("status {status}")));
    }
    offered(answer)
}

fn offered(answer: Value) -> Result<Offer, String> {
    let offer: Offer = serde_json::from_value(answer).map_err(|_| "an answer without a code".to_owned())?;
    let shown = |text: &str| !text.is_empty() && text.len() <= 2_000 && !text.chars().any(char::is_control);
    // A person is to open it: nothing but a page.
    let page = |url: &str| url.starts_with("https://") || url.starts_with("http://");
    let complete = offer.verification_uri_complete.as_deref();
    if !shown(&offer.user_code)
        || !shown(&offer.verification_uri)
        || !page(&offer.verification_uri)
        || complete.is_some_and(|url| !shown(url) || !page(url))
    {
        return Err("a code that can't be shown".to_owned());
    }
    Ok(offer)
}

/// Waits until the code was typed in.
pub(super) async fn wait(http: &reqwest::Client, record: &Record, offer: Offer) -> Result<Granted, String> {
    let mut polling = Polling::new(&offer);
    let mut then = polling.first();
    loop {
        match then {
            Then::End(why) => return Err(why),
            Then::Wait(interval) => tokio::time::sleep(interval).await,
        }
        let form = vec![("grant_type", GRANT.to_owned()), ("device_code", offer.device_code.clone())];
        match endpoint::ask(http, record, form).await {
            Ok(granted) => return Ok(granted),
            Err(refusal) => then = polling.after(&refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn polling(interval: u64, expires_in: u64) -> Polling {
        let offer = json!({"device_code": "d", "user_code": "U", "verification_uri": "https://a/d", "interval": interval, "expires_in": expires_in});
        Polling::new(&offered(offer).unwrap())
    }

    #[test]
    fn the_pace_is_the_servers_and_ends() {
        let said = |word: &str| Refusal::Said(word.to_owned());
        let wait = |seconds| Then::Wait(Duration::from_secs(seconds));
        let mut polling = polling(2, 30);
        assert_eq!(polling.first(), wait(2));
        assert_eq!(polling.after(&said("authorization_pending")), wait(2));
        assert_eq!(polling.after(&said("slow_down")), wait(7));
        assert_eq!(polling.after(&said("authorization_pending")), wait(7));
        assert_eq!(
            polling.after(&Refusal::Unclear(String::new())),
            Then::End("the code was not typed in in time".to_owned())
        );
        assert_eq!(polling.after(&said("access_denied")), Then::End("the login was refused".to_owned()));
        assert!(matches!(polling.after(&said("invalid_client")), Then::End(_)));
    }

    #[test]
    fn a_server_s_numbers_have_bounds() {
        assert_eq!(polling(0, 0), Polling { interval: Duration::from_secs(1), left: GOOD_FOR_MAX });
        assert_eq!(polling(100_000, u64::MAX), Polling { interval: INTERVAL_MAX, left: GOOD_FOR_MAX });
        for offer in [
            json!({"device_code": "d", "user_code": "\u{1b}[2J", "verification_uri": "https://a"}),
            json!({"device_code": "d", "user_code": "U", "verification_uri": "javascript:x"}),
            json!({"user_code": "U"}),
        ] {
            assert!(offered(offer.clone()).is_err(), "{offer}");
        }
    }
}
