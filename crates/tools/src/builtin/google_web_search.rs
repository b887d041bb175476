//! `google_web_search`: what does the web say? Asked of a model that searches by itself, and there only where one does.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::web::{WebModel, WebTask, cited};
use crate::{
    DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ResultDisplay, ToolFailure, ToolOutput, params,
};

const NAME: &str = "google_web_search";

/// The tool.
pub struct GoogleWebSearch {
    model: Arc<dyn WebModel>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    query: String,
}

impl GoogleWebSearch {
    /// Searches through `model`.
    #[must_use]
    pub fn new(model: Arc<dyn WebModel>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for."}},
            "required": ["query"],
        });
        Self { model, schema }
    }
}

impl DeclarativeTool for GoogleWebSearch {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "GoogleSearch"
    }

    fn kind(&self) -> Kind {
        Kind::Search
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Searches the web with Google and returns an answer with its sources. For what is not in the \
                          workspace and may be newer than what you know."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let Params { query } = params::read(&self.schema, args)?;
        if query.trim().is_empty() {
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, "params/query must not be empty"));
        }
        Ok(Arc::new(Call { model: Arc::clone(&self.model), query }))
    }
}

struct Call {
    model: Arc<dyn WebModel>,
    query: String,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        format!("Searching the web for: \"{}\"", self.query)
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let query = &self.query;
        let answer = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(ToolFailure::cancelled("The search was cancelled.")),
            answer = self.model.ask(WebTask::Search, query.clone(), &cx.cancel) => answer,
        };
        let answer = answer.map_err(|error| {
            ToolFailure::new(ErrorType::WebSearchFailed, format!("Error during web search for \"{query}\": {error}"))
        })?;
        if answer.text.trim().is_empty() {
            let text = format!("No search results or information found for query: \"{query}\"");
            return Ok(ToolOutput { summary: Some("No information found.".to_owned()), ..ToolOutput::text(text) });
        }
        let (text, sources) = cited(&answer);
        let summary = format!("Search results for \"{query}\" returned.");
        let sources: Vec<Value> =
            sources.iter().map(|source| json!({"uri": source.uri, "title": source.title})).collect();
        Ok(ToolOutput {
            text: format!("Web search results for \"{query}\":\n\n{text}"),
            display: ResultDisplay::Text(summary.clone()),
            summary: Some(summary),
            data: Some(json!({"sources": sources})),
            ..ToolOutput::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Oracle, context};
    use super::*;

    #[tokio::test]
    async fn the_answer_comes_with_its_sources() {
        let grounding = json!({
            "groundingChunks": [{"web": {"uri": "https://a.example/", "title": "A"}}],
            "groundingSupports": [{"segment": {"endIndex": 3}, "groundingChunkIndices": [0]}],
        });
        let oracle =
            Oracle::saying([Ok(("Yes.", grounding, Value::Null)), Ok((" ", Value::Null, Value::Null)), Err("busy")]);
        let tool = GoogleWebSearch::new(oracle.clone());
        let call = tool.build(&json!({"query": "is it?"})).unwrap();
        let output = call.execute(&context()).await.unwrap();
        let expected = "Web search results for \"is it?\":\n\nYes[1].\n\nSources:\n[1] A (https://a.example/)";
        assert_eq!(output.text, expected);
        assert_eq!(output.data, Some(json!({"sources": [{"uri": "https://a.example/", "title": "A"}]})));
        let nothing = call.execute(&context()).await.unwrap();
        assert_eq!(nothing.text, "No search results or information found for query: \"is it?\"");
        let failure = call.execute(&context()).await.unwrap_err();
        assert_eq!(failure.error_type(), Some(ErrorType::WebSearchFailed));
        assert_eq!(failure.message(), "Error during web search for \"is it?\": busy");
        assert_eq!(oracle.asked()[0], (WebTask::Search, "is it?".to_owned()));
        assert!(tool.build(&json!({"query": " "})).is_err());
    }
}
