//! `ask_user`: what does the person want? Questions go out through a port, one after the other, and the answers come
//! back as one object.
//!
//! A client may be able to show only some kinds of questions. Where one of a call's questions can't be shown, none is:
//! half of an answer is worth little, and the model can ask in words.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ToolFailure, ToolOutput,
    params,
};

const NAME: &str = "ask_user";
// Source of both: runtime specification §13.2.
const QUESTIONS_MAX: usize = 4;
const OPTIONS: std::ops::RangeInclusive<usize> = 2..=4;
const DISMISSED: &str = "User dismissed ask_user dialog without answering.";

/// Puts questions to a person.
#[async_trait]
pub trait Questioner: Send + Sync {
    /// Why a question of this kind can't be put to this person, as a phrase; `None` if it can.
    fn refusal(&self, question: &Question) -> Option<String>;

    /// Asks and waits for the answer; `None` if there will be none.
    ///
    /// Cancellation: dropping the future withdraws the question.
    async fn ask(&self, call_id: &str, question: &Question) -> Option<String>;
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// What is asked.
    pub question: String,
    /// A word or two that say what it is about.
    #[serde(default)]
    pub header: String,
    /// How it is answered.
    #[serde(rename = "type", default)]
    pub kind: QuestionKind,
    /// What can be chosen; none for the other kinds.
    #[serde(default)]
    pub options: Vec<Choice>,
    /// Whether several of the options may be chosen.
    #[serde(default)]
    pub multi_select: bool,
    /// What stands in an empty field of text.
    #[serde(default)]
    pub placeholder: Option<String>,
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionKind {
    /// By one of its options, or several.
    #[default]
    Choice,
    /// In words.
    Text,
    /// By yes or no.
    YesNo,
}

/// One of the answers to choose from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Choice {
    /// The answer.
    pub label: String,
    /// What it means.
    #[serde(default)]
    pub description: String,
}

/// The tool.
pub struct AskUser {
    questioner: Arc<dyn Questioner>,
    schema: Value,
}

impl AskUser {
    /// Questions go to `questioner`.
    #[must_use]
    pub fn new(questioner: Arc<dyn Questioner>) -> Self {
        let text = |description: &str| json!({"type": "string", "description": description});
        let choice = json!({
            "type": "object",
            "properties": {
                "label": text("The answer, in a few words."),
                "description": text("What choosing it means."),
            },
            "required": ["label", "description"],
        });
        let question = json!({
            "type": "object",
            "properties": {
                "question": text("The whole question."),
                "header": text("A word or two that say what it is about."),
                "type": {
                    "type": "string",
                    "enum": ["choice", "text", "yesno"],
                    "description": "How it is answered: by one of the options, in words, or by yes or no.",
                },
                "options": {"type": "array", "items": choice, "description": "For choice: two to four answers."},
                "multiSelect": {"type": "boolean", "description": "For choice: whether several may be chosen."},
                "placeholder": text("For text: an example of an answer."),
            },
            "required": ["question", "header", "type"],
        });
        let schema = json!({
            "type": "object",
            "properties": {
                "questions": {"type": "array", "items": question, "description": "One to four questions."},
            },
            "required": ["questions"],
        });
        Self { questioner, schema }
    }
}

#[derive(Debug, Deserialize)]
struct Params {
    questions: Vec<Question>,
}

impl DeclarativeTool for AskUser {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "Ask User"
    }

    fn kind(&self) -> Kind {
        Kind::Communicate
    }

    fn asks_itself(&self) -> bool {
        true
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Asks the user, where the task leaves open what they want and looking does not tell. Prefer \
                          choices. Not for leave to run a tool: that is asked for by itself."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let Params { questions } = params::read(&self.schema, args)?;
        let invalid = |message: String| Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
        if questions.is_empty() || questions.len() > QUESTIONS_MAX {
            return invalid(format!("params/questions must have 1 to {QUESTIONS_MAX} entries"));
        }
        for (index, question) in questions.iter().enumerate() {
            if question.question.trim().is_empty() {
                return invalid(format!("params/questions/{index}/question must not be empty"));
            }
            if question.kind != QuestionKind::Choice {
                continue;
            }
            if !OPTIONS.contains(&question.options.len()) {
                let (least, most) = (OPTIONS.start(), OPTIONS.end());
                return invalid(format!("params/questions/{index}/options must have {least} to {most} entries"));
            }
            if question.options.iter().any(|option| option.label.trim().is_empty()) {
                return invalid(format!("params/questions/{index}/options must have labels that are not empty"));
            }
        }
        Ok(Arc::new(Call { questioner: Arc::clone(&self.questioner), questions }))
    }
}

struct Call {
    questioner: Arc<dyn Questioner>,
    questions: Vec<Question>,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let headers: Vec<&str> = self.questions.iter().map(|question| question.question.trim()).collect();
        headers.join(" / ")
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        Ok(ConfirmationDetails::Info { prompt: format!("The agent wants to ask: {}", self.description()) })
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        if let Some(why) = self.questions.iter().find_map(|question| self.questioner.refusal(question)) {
            let message = format!("The user can't be asked this way, because {why}. Ask in your answer instead.");
            return Err(ToolFailure::new(ErrorType::ExecutionFailed, message));
        }
        let mut answers = Map::new();
        for (index, question) in self.questions.iter().enumerate() {
            let answer = tokio::select! {
                biased;
                () = cx.cancel.cancelled() => {
                    return Err(ToolFailure::cancelled("The questions were withdrawn before all were answered."));
                }
                answer = self.questioner.ask(&cx.call_id, question) => answer,
            };
            let Some(answer) = answer else { return Ok(ToolOutput::text(DISMISSED)) };
            answers.insert(index.to_string(), Value::String(answer));
        }
        let lines =
            self.questions.iter().zip(answers.values()).map(|(question, answer)| {
                format!("{}: {}", question.question.trim(), answer.as_str().unwrap_or_default())
            });
        let display = crate::ResultDisplay::Text(lines.collect::<Vec<_>>().join("\n"));
        let answers = json!({"answers": answers});
        Ok(ToolOutput { text: answers.to_string(), display, data: Some(answers), ..ToolOutput::default() })
    }
}
