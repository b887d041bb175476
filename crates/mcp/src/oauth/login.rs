//! One login, from the question where to the token in the file.

use std::path::Path;
use std::time::Duration;

use futures::{Stream, StreamExt};
use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig};
use serde_json::{Value, json};

use super::callback::{self, Callback, Returned};
use super::endpoint::{self, Granted};
use super::store::{Record, Store};
use super::{OAuthSettings, device, now};
use crate::{ServerConfig, TransportConfig};

/// Where a browser comes back to, unless the configuration says otherwise. Source: runtime specification §14.
const CALLBACK_PATH: &str = "/oauth/callback";
/// How much of a failure's text is told.
const REASON_MAX: usize = 500;

/// How to log in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// With a device code if the server offers it, else with a browser.
    #[default]
    Auto,
    /// With a browser that comes back to this machine, or whose last address is pasted.
    Browser,
    /// With a device code.
    Device,
}

/// What to log in to.
#[derive(Clone, Copy, Debug)]
pub struct LoginRequest<'a> {
    /// The server.
    pub server: &'a ServerConfig,
    /// The file that tokens are kept in.
    pub tokens: &'a Path,
    /// How.
    pub flow: Flow,
    /// The port that a browser comes back to; any otherwise.
    pub port: Option<u16>,
    /// How long a person may take.
    pub patience: Duration,
    /// Our name, for a server that registers clients.
    pub client: &'a str,
}

/// What a person is to do, or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// Open this address, in a browser anywhere.
    Open {
        /// The address.
        url: String,
        /// Whether a browser of this machine comes back by itself.
        comes_back: bool,
    },
    /// Open this address and type this code in.
    Type {
        /// The address.
        url: String,
        /// The same with the code in it.
        complete: Option<String>,
        /// The code.
        code: String,
    },
    /// Something went another way than asked for.
    Note(String),
}

/// A login that worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// Seconds that the token is good for; unknown otherwise.
    pub expires_in: Option<u64>,
    /// Whether it is renewed without another login.
    pub renews: bool,
}

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("log in to {server}: {reason}")]
pub struct LoginError {
    /// The server.
    pub server: String,
    /// Why.
    pub reason: String,
}

/// Logs in and keeps the token. `pasted` are lines of a person whose browser could not come back.
///
/// Dropping the future gives up; nothing is stored then.
pub async fn login(
    request: LoginRequest<'_>,
    tell: impl FnMut(LoginStep),
    pasted: impl Stream<Item = String> + Unpin,
) -> Result<LoggedIn, LoginError> {
    let server = request.server.name.clone();
    let done = run(request, tell, pasted).await;
    done.map_err(|reason| LoginError { server, reason: shown(&reason) })
}

/// Forgets the tokens of a server; says whether there were any. Blocks.
pub fn logout(tokens: &Path, server: &str) -> Result<bool, LoginError> {
    Store::new(tokens).forget(server).map_err(|error| LoginError {
        server: server.to_owned(),
        reason: format!("change {}: {error}", tokens.display()),
    })
}

fn shown(reason: &str) -> String {
    let clean: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    convoke_stdx::cut::head(&clean, REASON_MAX).to_owned()
}

fn told(error: &AuthError) -> String {
    crate::client::told(error)
}

async fn run(
    request: LoginRequest<'_>,
    mut tell: impl FnMut(LoginStep),
    pasted: impl Stream<Item = String> + Unpin,
) -> Result<LoggedIn, String> {
    let server = request.server;
    let remote = match &server.transport {
        TransportConfig::Stdio(_) => return Err("it is a child process; give it what it needs in env".to_owned()),
        TransportConfig::Http(remote) | TransportConfig::Sse(remote) | TransportConfig::Detect(remote) => remote,
    };
    if !server.oauth.enabled {
        return Err("its configuration says oauth.enabled false".to_owned());
    }
    let http = endpoint::client()?;
    let mut login = Login::discover(server, &remote.url, http).await?;
    if login.device.is_none() && request.flow == Flow::Device {
        return Err("the server offers no device codes".to_owned());
    }
    let device = login.device.clone().filter(|_| request.flow != Flow::Browser);
    let by_device = match device {
        Some(url) => match login.offer(&url, request.client).await {
            Ok((record, offer)) => Some((record, offer)),
            Err(why) if request.flow == Flow::Auto => {
                tell(LoginStep::Note(shown(&format!("the server gave no device code: {why}; using a browser"))));
                None
            }
            Err(why) => return Err(format!("ask for a device code: {why}")),
        },
        None => None,
    };
    let (granted, mut record) = match by_device {
        Some((record, offer)) => {
            tell(LoginStep::Type {
                url: offer.verification_uri.clone(),
                complete: offer.verification_uri_complete.clone(),
                code: offer.user_code.clone(),
            });
            (device::wait(&login.http, &record, offer).await?, record)
        }
        None => login.browser(&request, &mut tell, pasted).await?,
    };
    granted.into_record(&mut record, now());
    let done = LoggedIn {
        expires_in: record.expires_at.map(|end| end.saturating_sub(now())),
        renews: record.refresh_token.is_some(),
    };
    let store = Store::new(request.tokens);
    let path = request.tokens.display();
    match tokio::task::spawn_blocking(move || store.put(record)).await {
        Ok(Ok(())) => Ok(done),
        Ok(Err(error)) => Err(format!("write {path}: {error}")),
        Err(_) => Err(format!("write {path}")),
    }
}

/// What is known of a server's login.
struct Login<'a> {
    server: &'a ServerConfig,
    url: String,
    http: reqwest::Client,
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    scopes: Vec<String>,
    device: Option<String>,
    /// Whether the server said any of it.
    discovered: bool,
}

impl<'a> Login<'a> {
    async fn discover(server: &'a ServerConfig, url: &str, http: reqwest::Client) -> Result<Self, String> {
        let settings = &server.oauth;
        let manager = |url: String| async move {
            AuthorizationManager::new_allowing_private_addresses(url).await.map_err(|error| told(&error))
        };
        let mut ours = manager(url.to_owned()).await?;
        let (mut metadata, discovered) = match given(settings) {
            Some(metadata) => (metadata, true),
            None => {
                let found = match &settings.issuer {
                    Some(issuer) => manager(issuer.clone()).await?.resolve_metadata().await,
                    None => ours.resolve_metadata().await,
                };
                let found = found.map_err(|error| format!("find out where: {}", told(&error)))?;
                (found.metadata, found.source.is_discovered())
            }
        };
        if let Some(url) = &settings.registration_url {
            metadata.registration_endpoint = Some(url.clone());
        }
        for endpoint in [Some(&metadata.token_endpoint), metadata.registration_endpoint.as_ref()].into_iter().flatten()
        {
            if !endpoint::may_go_to(endpoint, url) {
                return Err(format!("its metadata name {endpoint}, which is not reached over https"));
            }
        }
        ours.set_metadata(metadata.clone());
        let scopes = match settings.scopes.is_empty() {
            true => ours.select_initial_scopes(&[]).await,
            false => settings.scopes.clone(),
        };
        let field = |name: &str| metadata.additional_fields.get(name);
        let grants = field("grant_types_supported").and_then(Value::as_array);
        let device = field("device_authorization_endpoint").and_then(Value::as_str);
        let device = device
            .filter(|device| endpoint::may_go_to(device, url))
            .filter(|_| grants.is_none_or(|grants| grants.iter().any(|grant| grant == device::GRANT)))
            .map(ToOwned::to_owned);
        Ok(Self { server, url: url.to_owned(), http, manager: ours, metadata, scopes, device, discovered })
    }

    /// What is kept, but for the token.
    fn record(&self, client: &OAuthClientConfig, resource: Option<String>) -> Record {
        let methods = self.metadata.additional_fields.get("token_endpoint_auth_methods_supported");
        let takes =
            |method: &str| methods.and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == method));
        let audiences = &self.server.oauth.audiences;
        Record {
            server: self.server.name.clone(),
            url: self.url.clone(),
            token_url: self.metadata.token_endpoint.clone(),
            issuer: self.metadata.issuer.clone(),
            client_id: client.client_id.clone(),
            client_secret: client.client_secret.clone(),
            secret_in_body: takes("client_secret_post") && !takes("client_secret_basic"),
            resource,
            audience: (!audiences.is_empty()).then(|| audiences.join(" ")),
            scope: (!self.scopes.is_empty()).then(|| self.scopes.join(" ")),
            ..Record::default()
        }
    }

    /// The client that was registered by hand.
    fn own_client(&self, redirect: &str) -> Option<OAuthClientConfig> {
        let settings = &self.server.oauth;
        let client = OAuthClientConfig::new(settings.client_id.clone()?, redirect).with_scopes(self.scopes.clone());
        Some(match &settings.client_secret {
            Some(secret) => client.with_client_secret(secret),
            None => client,
        })
    }

    fn no_client(&self, why: &str) -> String {
        if self.discovered {
            format!("register as a client: {why}; or give it oauth.clientId")
        } else {
            format!(
                "the server does not say how to log in ({why}); say it in oauth.authorizationUrl and oauth.tokenUrl"
            )
        }
    }

    /// The address to open, with its state and what the token is for.
    async fn address(&mut self, client: OAuthClientConfig) -> Result<(Url, String, Option<String>), String> {
        self.manager.configure_client(client).map_err(|error| told(&error))?;
        let scopes: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
        let url = self.manager.get_authorization_url(&scopes).await.map_err(|error| told(&error))?;
        let mut url = Url::parse(&url).map_err(|_| "its metadata name no usable address".to_owned())?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err("its metadata name an address that is no page".to_owned());
        }
        for audience in &self.server.oauth.audiences {
            url.query_pairs_mut().append_pair("audience", audience);
        }
        let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let (state, resource) = (value("state").unwrap_or_default(), value("resource"));
        Ok((url, state, resource))
    }

    /// A device code, and the client that it was given to.
    async fn offer(&mut self, url: &str, name: &str) -> Result<(Record, device::Offer), String> {
        // Nobody comes there; registrations want one.
        let redirect = format!("http://127.0.0.1{CALLBACK_PATH}");
        let client = match self.own_client(&redirect) {
            Some(client) => client,
            None => self.register_device(name, &redirect).await?,
        };
        let resource = match self.address(client.clone()).await {
            Ok((_, _, resource)) => resource,
            // It may offer device codes and nothing else.
            Err(_) => Some(self.url.clone()),
        };
        let record = self.record(&client, resource);
        let offer = device::offer(&self.http, url, &record, &self.scopes).await?;
        Ok((record, offer))
    }

    async fn register_device(&self, name: &str, redirect: &str) -> Result<OAuthClientConfig, String> {
        let Some(url) = &self.metadata.registration_endpoint else {
            return Err(self.no_client("it registers none"));
        };
        let body = json!({
            "client_name": name, "redirect_uris": [redirect], "application_type": "native",
            "grant_types": [device::GRANT, "authorization_code", "refresh_token"], "response_types": ["code"],
            "token_endpoint_auth_method": "none", "scope": self.scopes.join(" "),
        });
        let (status, answer) = endpoint::post(self.http.post(url).json(&body)).await?;
        let text = |key: &str| answer.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(id) = text("client_id").filter(|_| (200..300).contains(&status)) else {
            let why = endpoint::error_word(&answer).unwrap_or_else(|| format!("status {status}"));
            return Err(self.no_client(&why));
        };
        let client = OAuthClientConfig::new(id, redirect).with_scopes(self.scopes.clone());
        Ok(match text("client_secret") {
            Some(secret) => client.with_client_secret(secret),
            None => client,
        })
    }

    async fn browser(
        &mut self,
        request: &LoginRequest<'_>,
        tell: &mut impl FnMut(LoginStep),
        pasted: impl Stream<Item = String> + Unpin,
    ) -> Result<(Granted, Record), String> {
        let (callback, redirect) = listen(&self.server.oauth, request.port).await?;
        let client = match self.own_client(&redirect) {
            Some(client) => client,
            None => {
                let scopes: Vec<&str> = self.scopes.iter().map(String::as_str).collect();
                let registered = self.manager.register_client(request.client, &redirect, &scopes).await;
                registered.map_err(|error| self.no_client(&told(&error)))?
            }
        };
        let (url, state, resource) = self.address(client.clone()).await?;
        let record = self.record(&client, resource);
        tell(LoginStep::Open { url: url.to_string(), comes_back: callback.is_some() });
        let came = come_back(callback.as_ref(), pasted, &state, tell);
        let returned = tokio::time::timeout(request.patience, came).await;
        let returned = returned.map_err(|_| "nobody logged in in time".to_owned())??;
        let pairs = Url::parse(&returned).map_err(|_| "what came back is no address".to_owned())?;
        let value = |name: &str| pairs.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let (code, issuer) = (value("code").unwrap_or_default(), value("iss"));
        let exchanged = self.manager.exchange_code_for_token_with_issuer(&code, &state, issuer.as_deref()).await;
        let token = exchanged.map_err(|error| format!("exchange the code for a token: {}", told(&error)))?;
        // The SDK's type is a dictionary in the words of RFC 6749.
        let token = serde_json::to_value(&token).map_err(|_| "read the token".to_owned())?;
        let granted = serde_json::from_value(token).map_err(|_| "read the token".to_owned())?;
        Ok((granted, record))
    }
}

/// Endpoints that the configuration names.
fn given(settings: &OAuthSettings) -> Option<AuthorizationMetadata> {
    let (authorize, token) = (settings.authorization_url.as_ref()?, settings.token_url.as_ref()?);
    let metadata = json!({
        "authorization_endpoint": authorize, "token_endpoint": token, "issuer": settings.issuer,
        "registration_endpoint": settings.registration_url,
    });
    serde_json::from_value(metadata).ok()
}

/// A port for the browser, and the address that it is sent to. There is no port where that address is elsewhere.
async fn listen(settings: &OAuthSettings, port: Option<u16>) -> Result<(Option<Callback>, String), String> {
    let bound = |error: std::io::Error| format!("listen for the browser: {error}");
    let Some(fixed) = &settings.redirect_uri else {
        let callback = Callback::bind(port.unwrap_or(0), "127.0.0.1", CALLBACK_PATH).await.map_err(bound)?;
        let redirect = callback.redirect.to_string();
        return Ok((Some(callback), redirect));
    };
    let url = Url::parse(fixed).map_err(|_| "oauth.redirectUri is no address".to_owned())?;
    match url.host_str() {
        Some(host @ ("localhost" | "127.0.0.1")) if url.scheme() == "http" => {
            let port = url.port_or_known_default().unwrap_or(0);
            let callback = Callback::bind(port, host, url.path()).await.map_err(bound)?;
            Ok((Some(callback), fixed.clone()))
        }
        _ => Ok((None, fixed.clone())),
    }
}

/// The address that the browser was sent to, from the browser itself or from a person.
async fn come_back(
    callback: Option<&Callback>,
    mut pasted: impl Stream<Item = String> + Unpin,
    state: &str,
    tell: &mut impl FnMut(LoginStep),
) -> Result<String, String> {
    let listening = async {
        match callback {
            Some(callback) => callback.wait(state).await,
            None => std::future::pending().await,
        }
    };
    futures::pin_mut!(listening);
    let mut open = true;
    loop {
        let returned = tokio::select! {
            returned = &mut listening => returned?,
            line = pasted.next(), if open => match line {
                Some(line) if line.trim().is_empty() => continue,
                Some(line) => match Url::parse(line.trim()) {
                    Ok(url) => callback::read(&url, state),
                    Err(_) => Returned::Foreign,
                },
                None => {
                    open = false;
                    continue;
                }
            },
        };
        match returned {
            Returned::Yes(url) => return Ok(url),
            Returned::No(word) => return Err(format!("the server answered {word}")),
            Returned::Foreign => {
                tell(LoginStep::Note("that is not the address that this login leads to".to_owned()));
            }
        }
    }
}
