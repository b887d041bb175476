//! `update_topic`: what is this session about now? The model names it, and whoever shows the session is told.
//!
//! It comes before all other calls of its answer, so that what follows is seen under its title.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ToolFailure, ToolOutput, params};

const NAME: &str = "update_topic";
// A line in a list of sessions.
const TITLE_CHARS_MAX: usize = 200;

/// Told of a new title, from the task that runs the call: it must not block.
pub type TopicListener = Arc<dyn Fn(&str) + Send + Sync>;

/// The tool.
pub struct UpdateTopic {
    on_title: TopicListener,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    summary: Option<String>,
    strategic_intent: String,
}

impl UpdateTopic {
    /// Titles go to `on_title`.
    #[must_use]
    pub fn new(on_title: TopicListener) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "The title of the new topic, a few words."},
                "summary": {
                    "type": "string",
                    "description": "What was done under the topic before, and what comes now, in a few sentences.",
                },
                "strategic_intent": {
                    "type": "string",
                    "description": "What the next steps are for, in one sentence.",
                },
            },
            "required": ["strategic_intent"],
        });
        Self { on_title, schema }
    }
}

impl DeclarativeTool for UpdateTopic {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "Update Topic"
    }

    fn kind(&self) -> Kind {
        Kind::Think
    }

    fn goes_first(&self) -> bool {
        true
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Tells the user what you are about to do: a title when a new topic begins, and the intent of \
                          the next steps. Call it at the start of a task and whenever the phase of the work changes."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let mut params: Params = params::read(&self.schema, args)?;
        let line = |text: String| {
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            Some(line.chars().take(TITLE_CHARS_MAX).collect::<String>()).filter(|line| !line.is_empty())
        };
        params.title = params.title.and_then(line);
        params.summary = params.summary.filter(|text| !text.trim().is_empty());
        if params.strategic_intent.trim().is_empty() {
            let message = "params/strategic_intent must not be empty";
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
        }
        Ok(Arc::new(Call { on_title: Arc::clone(&self.on_title), params }))
    }
}

struct Call {
    on_title: TopicListener,
    params: Params,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        match &self.params.title {
            Some(title) => format!("Topic: {title}"),
            None => self.params.strategic_intent.trim().to_owned(),
        }
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let Params { title, summary, strategic_intent } = &self.params;
        if let Some(title) = title {
            (self.on_title)(title);
        }
        let lines = [("Topic", title.as_deref()), ("Summary", summary.as_deref()), ("Intent", Some(strategic_intent))];
        let lines = lines.iter().filter_map(|(name, text)| Some(format!("{name}: {}", text.as_ref()?.trim())));
        Ok(ToolOutput::text(lines.collect::<Vec<_>>().join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::testing::context;
    use super::*;

    #[tokio::test]
    async fn titles_are_told_and_intents_are_not() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let titles = Arc::clone(&told);
        let tool = UpdateTopic::new(Arc::new(move |title| titles.lock().unwrap().push(title.to_owned())));
        assert!(tool.goes_first());
        let run = async |args| tool.build(&args).unwrap().execute(&context()).await.unwrap().text;
        let args = json!({"title": " Fix\nthe  build ", "summary": "It broke.", "strategic_intent": "find out why"});
        assert_eq!(run(args).await, "Topic: Fix the build\nSummary: It broke.\nIntent: find out why");
        assert_eq!(run(json!({"title": " ", "strategic_intent": "look"})).await, "Intent: look");
        run(json!({"title": "é".repeat(999), "strategic_intent": "look"})).await;
        assert_eq!(*told.lock().unwrap(), ["Fix the build".to_owned(), "é".repeat(200)]);
        for args in [json!({"title": "x"}), json!({"strategic_intent": " "})] {
            assert_eq!(tool.build(&args).err().unwrap().error_type(), Some(ErrorType::InvalidToolParams));
        }
    }
}
