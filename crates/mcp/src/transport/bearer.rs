//! Requests of streamable HTTP with the token that is good now; one that is refused is renewed once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Error as SseError, Sse};

use crate::oauth::Tokens;

type Headers = HashMap<http::HeaderName, http::HeaderValue>;
type Failure = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The SDK's client, with tokens.
#[derive(Clone)]
pub(crate) struct Bearer {
    client: reqwest::Client,
    tokens: Option<Arc<Tokens>>,
}

impl Bearer {
    pub(super) fn new(client: reqwest::Client, tokens: Option<Arc<Tokens>>) -> Self {
        Self { client, tokens }
    }

    async fn with_token<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        ask: impl Fn(Option<String>) -> F,
    ) -> Result<T, Failure> {
        let later = |error: crate::oauth::TokenError| Failure::UnexpectedServerResponse(Cow::Owned(error.to_string()));
        let token = match &self.tokens {
            Some(tokens) => tokens.current().await.map_err(later)?,
            None => None,
        };
        let refused = match ask(token.clone()).await.map_err(challenged) {
            Err(Failure::AuthRequired(refused)) => refused,
            done => return done,
        };
        let (Some(tokens), Some(token)) = (&self.tokens, token) else { return Err(Failure::AuthRequired(refused)) };
        match tokens.instead_of(&token).await.map_err(later)? {
            Some(fresh) => ask(Some(fresh)).await.map_err(challenged),
            None => Err(Failure::AuthRequired(refused)),
        }
    }
}

/// A server that wants a token and does not say which one wants a token too.
fn challenged(failure: Failure) -> Failure {
    match failure {
        Failure::UnexpectedServerResponse(text) if text.starts_with("HTTP 401") => {
            Failure::AuthRequired(AuthRequiredError::new("Bearer".to_owned()))
        }
        Failure::Client(error) if error.status() == Some(reqwest::StatusCode::UNAUTHORIZED) => {
            Failure::AuthRequired(AuthRequiredError::new("Bearer".to_owned()))
        }
        other => other,
    }
}

impl StreamableHttpClient for Bearer {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.with_token(|token| {
            let asked = (uri.clone(), message.clone(), session.clone(), headers.clone());
            async move { self.client.post_message(asked.0, asked.1, asked.2, token, asked.3).await }
        })
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.with_token(|token| {
            let asked = (uri.clone(), message.clone(), session.clone(), headers.clone());
            let client = &self.client;
            async move {
                client.post_message_with_max_sse_event_size(asked.0, asked.1, asked.2, token, asked.3, max).await
            }
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        self.with_token(|token| {
            let asked = (uri.clone(), session.clone(), headers.clone());
            async move { self.client.delete_session(asked.0, asked.1, token, asked.2).await }
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failure> {
        self.with_token(|token| {
            let asked = (uri.clone(), session.clone(), last.clone(), headers.clone());
            async move { self.client.get_stream(asked.0, asked.1, asked.2, token, asked.3).await }
        })
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: Headers,
        max: usize,
    ) -> Result<Events, Failure> {
        self.with_token(|token| {
            let asked = (uri.clone(), session.clone(), last.clone(), headers.clone());
            let client = &self.client;
            async move { client.get_stream_with_max_sse_event_size(asked.0, asked.1, asked.2, token, asked.3, max).await }
        })
        .await
    }
}
