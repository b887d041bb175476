//! `ask_user`: questions of the model as the session's questions, and the chosen option as the answer.
//!
//! Where the port takes questions, all of them go there as such. Elsewhere it offers options, so what is answered by one
//! of a few is asked as a permission is; words can't be, and neither can several answers at once.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_protocol::{
    AnswerChoice, AnswerKind, PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome,
    PermissionPort, PermissionRequest, QuestionOutcome, QuestionRequest, SessionId, ToolKind,
};
use convoke_tools::builtin::{Question, QuestionKind, Questioner};
use serde_json::json;

const DISMISS: &str = "cancel";

/// Sends a session's `ask_user` questions to its permission port.
pub(crate) struct PortQuestioner {
    session_id: SessionId,
    port: Arc<dyn PermissionPort>,
}

impl PortQuestioner {
    pub(crate) fn new(session_id: SessionId, port: Arc<dyn PermissionPort>) -> Self {
        Self { session_id, port }
    }

    /// As a question, for a port that takes those.
    fn question(&self, call_id: &str, question: &Question) -> QuestionRequest {
        let choice = |label: &str, description: &str| AnswerChoice {
            label: label.to_owned(),
            description: description.trim().to_owned(),
        };
        let choices = || question.options.iter().map(|option| choice(&option.label, &option.description)).collect();
        QuestionRequest {
            session_id: self.session_id.clone(),
            tool_call_id: call_id.into(),
            question: question.question.clone(),
            header: question.header.clone(),
            answer: match question.kind {
                QuestionKind::Text => AnswerKind::Text { example: question.placeholder.clone() },
                QuestionKind::YesNo => AnswerKind::One(vec![choice("Yes", ""), choice("No", "")]),
                QuestionKind::Choice if question.multi_select => AnswerKind::Several(choices()),
                QuestionKind::Choice => AnswerKind::One(choices()),
            },
        }
    }

    /// As a choice among options.
    fn request(&self, call_id: &str, question: &Question, answers: &[String]) -> PermissionRequest {
        let mut lines = vec![question.question.clone()];
        let described = question.options.iter().filter(|option| !option.description.trim().is_empty());
        lines.extend(described.map(|option| format!("- {}: {}", option.label, option.description)));
        let option = |(index, answer): (usize, &String)| PermissionOption {
            option_id: format!("answer_{index}"),
            name: answer.clone(),
            kind: PermissionOptionKind::AllowOnce,
        };
        let dismiss = PermissionOption {
            option_id: DISMISS.to_owned(),
            name: "Don't answer".to_owned(),
            kind: PermissionOptionKind::RejectOnce,
        };
        let labels: Vec<&str> = answers.iter().map(String::as_str).collect();
        PermissionRequest {
            session_id: self.session_id.clone(),
            tool_call_id: call_id.into(),
            tool_name: "ask_user".to_owned(),
            title: question.question.clone(),
            kind: ToolKind::Other,
            content: vec![PermissionContent::Text(lines.join("\n"))],
            locations: Vec::new(),
            raw_input: json!({"question": question.question, "header": question.header, "options": labels}),
            options: answers.iter().enumerate().map(option).chain([dismiss]).collect(),
            origin: Vec::new(),
        }
    }
}

#[async_trait]
impl Questioner for PortQuestioner {
    fn refusal(&self, question: &Question) -> Option<String> {
        if self.port.takes_questions() {
            return None;
        }
        let why = match question.kind {
            QuestionKind::Text => "their client only takes a choice among options, no text",
            QuestionKind::Choice if question.multi_select => "their client only takes one choice, not several",
            QuestionKind::Choice | QuestionKind::YesNo => return None,
        };
        Some(why.to_owned())
    }

    async fn ask(&self, call_id: &str, question: &Question) -> Option<String> {
        if self.port.takes_questions() {
            return match self.port.ask(self.question(call_id, question)).await {
                QuestionOutcome::Answered(answers) => Some(answers.join(", ")),
                QuestionOutcome::Declined | QuestionOutcome::Cancelled => None,
            };
        }
        let answers: Vec<String> = match question.kind {
            QuestionKind::YesNo => ["Yes", "No"].map(str::to_owned).to_vec(),
            QuestionKind::Choice | QuestionKind::Text => {
                question.options.iter().map(|option| option.label.clone()).collect()
            }
        };
        match self.port.request(self.request(call_id, question, &answers)).await {
            PermissionOutcome::Selected { option_id } => {
                let index: usize = option_id.strip_prefix("answer_")?.parse().ok()?;
                answers.into_iter().nth(index)
            }
            PermissionOutcome::Cancelled => None,
        }
    }
}
