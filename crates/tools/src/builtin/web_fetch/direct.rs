//! `web_fetch` of one address with nobody in between: what does its server send?
//!
//! No model looks at the page, so whoever asked reads it as it is, or sees the picture or document that is there. The guard
//! against private addresses and the bounds are those of every page. Source: runtime specification §13.2, direct mode.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke_adk::Part;
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use super::get::{Getter, Page};
use super::{CHARS_MAX, Shared, output, urls};
use crate::{ConfirmationDetails, ErrorType, ExecutionContext, Invocation, ToolFailure, ToolOutput, params};

#[derive(Debug, Deserialize)]
struct Params {
    url: String,
}

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "The address, beginning with http:// or https://."},
        },
        "required": ["url"],
    })
}

pub(super) fn build(shared: &Arc<Shared>, schema: &Value, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
    let Params { url } = params::read(schema, args)?;
    let wrong =
        |why: String| ToolFailure::new(ErrorType::InvalidToolParams, format!("params/url can't be used: {why}"));
    let mut url = Url::parse(url.trim()).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(format!("{} is not an address of the web", url.scheme())));
    }
    url.set_fragment(None);
    Ok(Arc::new(Direct { shared: Arc::clone(shared), url }))
}

struct Direct {
    shared: Arc<Shared>,
    url: Url,
}

#[async_trait]
impl Invocation for Direct {
    fn description(&self) -> String {
        self.url.to_string()
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        Ok(ConfirmationDetails::Info { prompt: format!("Fetch {}", urls::raw(&self.url)) })
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => Err(ToolFailure::cancelled("Reading the page was cancelled.")),
            done = self.fetch() => done,
        }
    }
}

impl Direct {
    async fn fetch(&self) -> Result<ToolOutput, ToolFailure> {
        let failed = |kind, why: String| ToolFailure::new(kind, format!("{} could not be read: {why}", self.url));
        let admitted = self.shared.admit(&self.url).await;
        admitted.map_err(|why| failed(ErrorType::WebFetchProcessingError, why))?;
        let getter = Getter::new(Arc::clone(&self.shared.allowed), self.shared.time_max).with_media();
        let page = getter.get(&self.url).await;
        let Page { url, text, media, cut } = page.map_err(|why| failed(ErrorType::WebFetchFallbackFailed, why))?;
        let read = [url];
        if let Some((mime, bytes)) = media {
            let told = format!("{} is {mime}, {} bytes.", self.url, bytes.len());
            let parts = vec![Part::inline_data(mime, STANDARD.encode(bytes))];
            return Ok(ToolOutput { parts, ..output(told, &read) });
        }
        let (shown, cut) = match text.char_indices().nth(CHARS_MAX) {
            Some((at, _)) => (text.get(..at).unwrap_or_default(), true),
            None => (text.as_str(), cut),
        };
        let cut = if cut { "\n[The page is longer than this.]" } else { "" };
        let framed = format!("--- Content of {0} ---\n{1}{cut}\n--- End of {0} ---", self.url, shown.trim());
        Ok(output(framed, &read))
    }
}
