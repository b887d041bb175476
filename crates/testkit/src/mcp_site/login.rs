//! The site's authorization server.

use std::collections::{HashMap, HashSet, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Sent, Shared, SiteRequest, object, whole};

const DEVICE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// What was given out.
#[derive(Default)]
pub(super) struct Login {
    count: u64,
    /// Clients and their secrets.
    clients: HashMap<String, Option<String>>,
    codes: HashMap<String, Code>,
    pub(super) access: HashSet<String>,
    pub(super) refresh: HashSet<String>,
    device: Option<(String, VecDeque<&'static str>)>,
}

struct Code {
    client: String,
    redirect: String,
    challenge: String,
}

impl Login {
    pub(super) fn admits(&self, authorization: Option<&str>) -> bool {
        authorization.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|token| self.access.contains(token))
    }

    fn next(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-SECRET-{}", self.count)
    }

    fn grant(&mut self, expires_in: u64) -> Value {
        let (access, refresh) = (self.next("access"), self.next("refresh"));
        self.access.insert(access.clone());
        self.refresh.insert(refresh.clone());
        json!({"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": expires_in, "scope": "mcp:tools"})
    }
}

/// The pairs of a form or a query.
fn pairs(text: &str) -> HashMap<String, String> {
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                out.extend(u8::from_str_radix(&digits, 16).ok());
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn refused(word: &str) -> Sent {
    object(400, &json!({"error": word}))
}

pub(super) fn answer(site: &Shared, path: &str, query: &str, request: &SiteRequest) -> Sent {
    let base = &site.base;
    match path {
        _ if site.options.no_metadata || !site.options.login => object(404, &Value::Null),
        "/.well-known/oauth-protected-resource/mcp" | "/.well-known/oauth-protected-resource/sse" => {
            let resource = format!("{base}/{}", path.rsplit('/').next().unwrap_or_default());
            let scopes = ["mcp:tools"];
            object(200, &json!({"resource": resource, "authorization_servers": [base], "scopes_supported": scopes}))
        }
        "/.well-known/oauth-authorization-server" => {
            let mut metadata = json!({
                "issuer": base, "authorization_endpoint": format!("{base}/authorize"),
                "token_endpoint": format!("{base}/token"), "registration_endpoint": format!("{base}/register"),
                "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "authorization_response_iss_parameter_supported": true,
            });
            if site.options.device.is_some() {
                metadata["device_authorization_endpoint"] = json!(format!("{base}/device"));
                metadata["grant_types_supported"] = json!(["authorization_code", "refresh_token", DEVICE]);
            }
            object(200, &metadata)
        }
        "/register" => register(site, request),
        "/authorize" => authorize(site, &pairs(query)),
        "/token" => token(site, request),
        "/device" => device(site, request),
        _ => object(404, &Value::Null),
    }
}

fn register(site: &Shared, request: &SiteRequest) -> Sent {
    let asked: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let Some(redirects) = asked["redirect_uris"].as_array().filter(|redirects| !redirects.is_empty()) else {
        return refused("invalid_redirect_uri");
    };
    let mut state = site.state();
    let id = format!("client-{}", state.login.clients.len() + 1);
    let secret = site.options.client_secret.then(|| state.login.next("client"));
    state.login.clients.insert(id.clone(), secret.clone());
    let mut answer = json!({"client_id": id, "redirect_uris": redirects, "client_name": asked["client_name"]});
    if let Some(secret) = secret {
        answer["client_secret"] = json!(secret);
    }
    object(201, &answer)
}

/// Its user says yes at once.
fn authorize(site: &Shared, asked: &HashMap<String, String>) -> Sent {
    let value = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let mut state = site.state();
    let sound = value("response_type") == "code"
        && value("code_challenge_method") == "S256"
        && !value("code_challenge").is_empty()
        && !value("state").is_empty()
        && value("resource").starts_with(&site.base)
        && state.login.clients.contains_key(&value("client_id"));
    if !sound {
        return refused("invalid_request");
    }
    let code = state.login.next("code");
    let kept = Code { client: value("client_id"), redirect: value("redirect_uri"), challenge: value("code_challenge") };
    state.login.codes.insert(code.clone(), kept);
    let location = format!(
        "{}?code={code}&state={}&iss={}",
        value("redirect_uri"),
        value("state"),
        site.base.replace(':', "%3A").replace('/', "%2F")
    );
    let mut response = whole(302, "text/plain", "");
    if let Ok(location) = location.parse() {
        response.headers_mut().insert("location", location);
    }
    response
}

fn token(site: &Shared, request: &SiteRequest) -> Sent {
    let asked = pairs(&request.body);
    let value = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let mut state = site.state();
    let login = &mut state.login;
    let basic = request.authorization.as_deref().and_then(|value| value.strip_prefix("Basic "));
    let basic = basic.and_then(|text| STANDARD.decode(text).ok()).and_then(|bytes| String::from_utf8(bytes).ok());
    let (id, secret) = match basic.as_deref().and_then(|pair| pair.split_once(':')) {
        Some((id, secret)) => (id.to_owned(), Some(secret.to_owned())),
        None => (value("client_id"), asked.get("client_secret").cloned()),
    };
    match login.clients.get(&id) {
        Some(known) if *known == secret => {}
        _ => return object(401, &json!({"error": "invalid_client"})),
    }
    if !value("resource").starts_with(&site.base) {
        return refused("invalid_target");
    }
    match value("grant_type").as_str() {
        "authorization_code" => {
            let Some(code) = login.codes.remove(&value("code")) else { return refused("invalid_grant") };
            let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(value("code_verifier")));
            if proof != code.challenge || code.redirect != value("redirect_uri") || code.client != id {
                return refused("invalid_grant");
            }
        }
        "refresh_token" => {
            if !login.refresh.remove(&value("refresh_token")) {
                return refused("invalid_grant");
            }
        }
        DEVICE => match &mut login.device {
            Some((code, words)) if *code == value("device_code") => {
                if let Some(word) = words.pop_front() {
                    return refused(word);
                }
                login.device = None;
            }
            _ => return refused("invalid_grant"),
        },
        _ => return refused("unsupported_grant_type"),
    }
    object(200, &login.grant(site.options.expires_in))
}

fn device(site: &Shared, request: &SiteRequest) -> Sent {
    let Some(words) = &site.options.device else { return refused("unsupported_grant_type") };
    let mut state = site.state();
    if !state.login.clients.contains_key(&pairs(&request.body)["client_id"]) {
        return refused("invalid_client");
    }
    let code = state.login.next("device");
    state.login.device = Some((code.clone(), words.iter().copied().collect()));
    let page = format!("{}/type", site.base);
    object(
        200,
        &json!({"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": page, "expires_in": 600, "interval": 1}),
    )
}
