//! A question that is answered by more than one option of a few: in words, or by several of them.

use crate::{SessionId, ToolCallId};

/// A question of the model for a person. Not about permission: whatever the answer is, it allows nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionRequest {
    /// The session that asks.
    pub session_id: SessionId,
    /// The call that asks.
    pub tool_call_id: ToolCallId,
    /// What is asked.
    pub question: String,
    /// A word or two that say what it is about; may be empty.
    pub header: String,
    /// How it is answered.
    pub answer: AnswerKind,
}

/// How a question is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// In words.
    Text {
        /// An example of an answer.
        example: Option<String>,
    },
    /// By one of these.
    One(Vec<AnswerChoice>),
    /// By any number of these.
    Several(Vec<AnswerChoice>),
}

/// One of the answers to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerChoice {
    /// The answer.
    pub label: String,
    /// What it means; may be empty.
    pub description: String,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionOutcome {
    /// The answer; several only where several were asked for.
    Answered(Vec<String>),
    /// The person does not want to answer.
    Declined,
    /// Nobody will answer: the turn was cancelled, or nobody is there.
    Cancelled,
}
