//! Vertex AI: Gemini models in Google's cloud.
//!
//! Requests and answers are the Gemini API's; addresses, proof and a few bodies are not. With an API key ("express
//! mode") models need no project; with a token they are asked for in a project and a location. Source: Vertex AI REST
//! reference, v1beta1, where function calls have ids.

use std::fmt;

use reqwest::header::{AUTHORIZATION, HeaderName};
use secrecy::SecretString;

use super::gemini::{Gemini, Place};
use crate::connect::ConnectError;
use crate::credential::Credential;
use crate::http::{Http, HttpOptions, parse_base, shown};

/// How a caller proves who it is, and what its models belong to.
#[derive(Clone)]
pub enum VertexAccess {
    /// A key, in express mode.
    ApiKey(Credential),
    /// A token of Google's OAuth.
    Token {
        /// The token, usually [renewed](crate::GoogleCredential::into_tokens).
        token: Credential,
        /// The project's id.
        project: String,
        /// A region such as `europe-west4`, a multi-region such as `eu`, or `global`.
        location: String,
        /// The project that calls are charged to, if it is another one.
        quota_project: Option<String>,
    },
}

/// How to reach Vertex AI.
#[derive(Clone)]
pub struct VertexOptions {
    /// Proof and place.
    pub access: VertexAccess,
    /// Where, if not at the location's own address.
    pub base_url: Option<String>,
    /// The API version, if the base URL does not end in one.
    pub api_version: String,
    /// Headers and timeouts.
    pub http: HttpOptions,
}

impl VertexOptions {
    /// The usual address.
    #[must_use]
    pub fn new(access: VertexAccess) -> Self {
        Self { access, base_url: None, api_version: "v1beta1".to_owned(), http: HttpOptions::default() }
    }

    /// The address: the given one, or that of the location.
    fn base(&self) -> Result<String, ConnectError> {
        if let Some(base) = &self.base_url {
            return Ok(base.clone());
        }
        let location = match &self.access {
            VertexAccess::ApiKey(_) => "global",
            VertexAccess::Token { location, .. } => location,
        };
        // It becomes part of a host's name.
        if location.is_empty() || !location.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            return Err(ConnectError::Location(location.to_owned()));
        }
        Ok(match location {
            "global" => "https://aiplatform.googleapis.com".to_owned(),
            "us" | "eu" => format!("https://aiplatform.{location}.rep.googleapis.com"),
            region => format!("https://{region}-aiplatform.googleapis.com"),
        })
    }
}

impl fmt::Debug for VertexOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shape = f.debug_struct("VertexOptions");
        if let VertexAccess::Token { project, location, .. } = &self.access {
            shape.field("project", project).field("location", location);
        }
        shape.field("base_url", &self.base_url.as_deref().map(shown)).finish_non_exhaustive()
    }
}

/// Gemini models as Vertex AI serves them.
pub(crate) fn vertex(options: VertexOptions) -> Result<Gemini, ConnectError> {
    let mut base = parse_base(&options.base()?)?;
    let path = base.path().trim_end_matches('/').to_owned();
    if !super::ends_in_version(&path) {
        base.set_path(&format!("{path}/{}", options.api_version.trim_matches('/')));
    }
    let mut http = options.http;
    let (proof, place) = match options.access {
        VertexAccess::ApiKey(key) => {
            ((HeaderName::from_static("x-goog-api-key"), "", key), Place::Vertex { parent: String::new() })
        }
        VertexAccess::Token { token, project, location, quota_project } => {
            let charged = quota_project.filter(|_| !http.headers.iter().any(|(name, _)| name == QUOTA_PROJECT));
            http.headers.extend(charged.map(|project| (QUOTA_PROJECT.to_owned(), SecretString::from(project))));
            let parent =
                format!("projects/{}/locations/{}/", super::path_segment(&project), super::path_segment(&location));
            ((AUTHORIZATION, "Bearer ", token), Place::Vertex { parent })
        }
    };
    Ok(Gemini::at(place, Http::new(base, Some(proof), http)?))
}

/// Names the project that is charged.
const QUOTA_PROJECT: &str = "x-goog-user-project";

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn at(location: &str) -> Result<String, ConnectError> {
        VertexOptions::new(VertexAccess::Token {
            token: "t".to_owned().into(),
            project: "p".to_owned(),
            location: location.to_owned(),
            quota_project: None,
        })
        .base()
    }

    #[test]
    fn addresses() {
        assert_eq!(at("global").unwrap(), "https://aiplatform.googleapis.com");
        assert_eq!(at("europe-west4").unwrap(), "https://europe-west4-aiplatform.googleapis.com");
        assert_eq!(at("eu").unwrap(), "https://aiplatform.eu.rep.googleapis.com");
        for odd in ["", "evil.example/", "EU", "a.b"] {
            assert_eq!(at(odd), Err(ConnectError::Location(odd.to_owned())), "{odd}");
        }
        let express = VertexOptions::new(VertexAccess::ApiKey("k".to_owned().into()));
        assert_eq!(express.base().unwrap(), "https://aiplatform.googleapis.com");
    }
}
