//! Making providers: an entry and the variables, put together.
//!
//! An entry without a key takes the usual variable of its kind, unless it names a server of its own: a key goes to
//! somebody else's server only where the settings say so.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use convoke_models::{
    AnthropicAuth, AnthropicOptions, Credential, GeminiAuth, GeminiOptions, GoogleCredential, HttpOptions,
    OpenAiOptions, Options, Provider, VertexAccess, VertexOptions, connect,
};

use super::Ground;
use super::entry::{Auth, Entry, InvalidEntry, Kind};
use crate::secret::{Reference, expand_home};

/// Where `gcloud auth application-default login` leaves its file, below the configuration folder of gcloud.
const ADC_FILE: &str = "application_default_credentials.json";

/// The provider, or what was looked for in vain.
pub(super) fn provider(
    name: &str,
    entry: &Entry,
    ground: &Ground<'_>,
) -> Result<Result<Provider, String>, InvalidEntry> {
    let maker = Maker { entry, ground };
    if let Err(reason) = maker.check_base() {
        return Err(InvalidEntry::new(&format!("{name}.baseUrl"), reason));
    }
    let made = match entry.kind {
        Kind::Gemini => maker.gemini(),
        Kind::Vertex => maker.vertex(),
        Kind::OpenAi => maker.openai(),
        Kind::Anthropic => maker.anthropic(),
    };
    // Nothing is sent: one that can't be connected to must not stop the others.
    Ok(made.and_then(|provider| match connect(Options::new(provider.clone())) {
        Ok(_) => Ok(provider),
        Err(error) => Err(error.to_string()),
    }))
}

struct Maker<'a> {
    entry: &'a Entry,
    ground: &'a Ground<'a>,
}

impl Maker<'_> {
    fn env(&self, name: &str) -> Option<&str> {
        self.ground.environment.get(name)
    }

    fn check_base(&self) -> Result<(), String> {
        match &self.entry.base_url {
            Some(base) => convoke_models::check_base_url(base).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// The entry's own server, or the variable's.
    fn base_url(&self, variable: &str) -> Option<String> {
        self.entry.base_url.clone().or_else(|| self.env(variable).map(str::to_owned))
    }

    fn secret(&self, reference: &Reference) -> Result<Credential, String> {
        reference.credential(self.ground.environment, self.ground.home).map_err(|error| error.to_string())
    }

    /// The entry's key, or the first of these variables that is set; `None` if the entry has a server of its own.
    fn key(&self, variables: &[&str]) -> Result<Option<Credential>, String> {
        if self.entry.auth == Some(Auth::None) {
            return Ok(None);
        }
        if let Some(reference) = &self.entry.api_key {
            return self.secret(reference).map(Some);
        }
        if self.entry.base_url.is_some() {
            return Ok(None);
        }
        match variables.iter().find_map(|name| self.env(name)) {
            Some(value) => Ok(Some(Credential::from(value.trim().to_owned()))),
            None => Err(not_set(variables)),
        }
    }

    fn http(&self) -> Result<HttpOptions, String> {
        let mut http = HttpOptions::default();
        for (name, reference) in &self.entry.headers {
            let value = reference.at_once(self.ground.environment, self.ground.home);
            http.headers.push((name.clone(), value.map_err(|error| format!("the header {name}: {error}"))?));
        }
        if let Some(seconds) = self.entry.read_timeout_seconds {
            http.read_timeout = Duration::from_secs(seconds.max(1));
        }
        if let Some(path) = &self.entry.ca_file {
            let pem = fs::read(expand_home(path, self.ground.home));
            http.extra_roots_pem.push(pem.map_err(|error| format!("the file {path} can't be read: {error}"))?);
        }
        Ok(http)
    }

    fn gemini(&self) -> Result<Provider, String> {
        let defaults = GeminiOptions::default();
        let bearer = match self.entry.auth {
            Some(auth) => auth == Auth::Bearer,
            None => self.env("GEMINI_API_KEY_AUTH_MECHANISM") == Some("bearer"),
        };
        Ok(Provider::Gemini(GeminiOptions {
            base_url: self.base_url("GOOGLE_GEMINI_BASE_URL").unwrap_or(defaults.base_url),
            api_version: self.api_version().unwrap_or(defaults.api_version),
            api_key: self.key(&["GEMINI_API_KEY"])?,
            auth: if bearer { GeminiAuth::Bearer } else { GeminiAuth::ApiKeyHeader },
            http: self.http()?,
        }))
    }

    fn openai(&self) -> Result<Provider, String> {
        let setting = || self.ground.settings.text("openai.baseUrl").map(str::to_owned);
        let base = self.base_url("OPENAI_BASE_URL").or_else(setting);
        let api_key = match self.key(&["OPENAI_API_KEY"]) {
            Ok(key) => key,
            // A server of one's own may want none.
            Err(_) if base.is_some() && self.entry.api_key.is_none() => None,
            Err(_) if self.entry.api_key.is_none() => return Err(not_set(&["OPENAI_API_KEY", "OPENAI_BASE_URL"])),
            Err(error) => return Err(error),
        };
        let mut options = OpenAiOptions::new(base.unwrap_or_else(|| "https://api.openai.com/v1".to_owned()));
        options.api_key = api_key;
        options.include_usage = self.entry.include_usage.unwrap_or(options.include_usage);
        options.extra_body.clone_from(&self.entry.extra_body);
        options.http = self.http()?;
        Ok(Provider::OpenAi(options))
    }

    fn anthropic(&self) -> Result<Provider, String> {
        let defaults = AnthropicOptions::default();
        // A token rather than a key, as other programs read it.
        let is_token = self.entry.api_key.is_none() && self.env("ANTHROPIC_API_KEY").is_none();
        let bearer = self.entry.auth.map_or(is_token, |auth| auth == Auth::Bearer);
        Ok(Provider::Anthropic(AnthropicOptions {
            base_url: self.base_url("ANTHROPIC_BASE_URL").unwrap_or(defaults.base_url),
            api_key: self.key(&["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])?,
            auth: if bearer { AnthropicAuth::Bearer } else { AnthropicAuth::ApiKeyHeader },
            caching: self.entry.prompt_caching.unwrap_or(defaults.caching),
            extra_body: self.entry.extra_body.clone(),
            http: self.http()?,
        }))
    }

    fn api_version(&self) -> Option<String> {
        self.entry.api_version.clone().or_else(|| self.env("GOOGLE_GENAI_API_VERSION").map(str::to_owned))
    }

    fn vertex(&self) -> Result<Provider, String> {
        let http = self.http()?;
        let mut options = VertexOptions::new(self.vertex_access(&http)?);
        options.base_url = self.base_url("GOOGLE_VERTEX_BASE_URL");
        options.api_version = self.api_version().unwrap_or(options.api_version);
        options.http = http;
        Ok(Provider::Vertex(options))
    }

    /// What the settings say goes before what variables say, and a project before a key.
    fn vertex_access(&self, http: &HttpOptions) -> Result<VertexAccess, String> {
        let project = self.entry.project.as_deref();
        let project =
            project.or_else(|| self.env("GOOGLE_CLOUD_PROJECT")).or_else(|| self.env("GOOGLE_CLOUD_PROJECT_ID"));
        let own_token = self.entry.access_token.is_some() || self.entry.credentials.is_some();
        let key = match &self.entry.api_key {
            Some(reference) => Some(self.secret(reference)?),
            None => self.env("GOOGLE_API_KEY").map(|key| Credential::from(key.to_owned())),
        };
        if let Some(key) = key.clone().filter(|_| !own_token && (self.entry.api_key.is_some() || project.is_none())) {
            return Ok(VertexAccess::ApiKey(key));
        }
        let location = self.entry.location.as_deref().or_else(|| self.env("GOOGLE_CLOUD_LOCATION")).unwrap_or("global");
        let found = match self.token() {
            Ok(found) => found,
            Err(error) => return key.map(VertexAccess::ApiKey).ok_or(error),
        };
        let (token, of_file, quota_project) = match found {
            Token::Given(token) => (token, None, None),
            Token::File(credential) => {
                let (project, quota) =
                    (credential.project().map(str::to_owned), credential.quota_project().map(str::to_owned));
                (credential.into_tokens(http.clone()).map_err(|error| error.to_string())?, project, quota)
            }
        };
        let project = project.map(str::to_owned).or(of_file).ok_or_else(|| not_set(&["GOOGLE_CLOUD_PROJECT"]))?;
        let quota_project = self.entry.quota_project.clone().or(quota_project);
        Ok(VertexAccess::Token { token, project, location: location.to_owned(), quota_project })
    }

    fn token(&self) -> Result<Token, String> {
        if let Some(reference) = &self.entry.access_token {
            return self.secret(reference).map(Token::Given);
        }
        if let Some(path) = &self.entry.credentials {
            return read_adc(&expand_home(path, self.ground.home));
        }
        if let Some(token) = self.env("GOOGLE_OAUTH_ACCESS_TOKEN") {
            return Ok(Token::Given(Credential::from(token.trim().to_owned())));
        }
        if let Some(path) = self.ground.environment.path("GOOGLE_APPLICATION_CREDENTIALS") {
            return read_adc(&path);
        }
        let gcloud = self.ground.environment.path("CLOUDSDK_CONFIG");
        let gcloud = gcloud.or_else(|| Some(self.ground.environment.path("HOME")?.join(".config").join("gcloud")));
        let file = gcloud.map(|folder| folder.join(ADC_FILE));
        match file {
            Some(file) if file.is_file() => read_adc(&file),
            file => {
                let file = file.map_or_else(String::new, |file| format!(" and {} is not there", file.display()));
                let names = "GOOGLE_API_KEY, GOOGLE_OAUTH_ACCESS_TOKEN and GOOGLE_APPLICATION_CREDENTIALS are not set";
                Err(format!("{names}{file}"))
            }
        }
    }
}

enum Token {
    Given(Credential),
    File(GoogleCredential),
}

fn read_adc(path: &PathBuf) -> Result<Token, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("the file {} can't be read: {error}", path.display()))?;
    GoogleCredential::parse(&text).map(Token::File).map_err(|error| format!("{} ({error})", path.display()))
}

fn not_set(variables: &[&str]) -> String {
    match variables {
        [one] => format!("{one} is not set"),
        [one, other] => format!("neither {one} nor {other} is set"),
        more => format!("none of {} is set", more.join(", ")),
    }
}
