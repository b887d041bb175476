//! A question of the model as a form that the client shows, and what was filled in.
//!
//! One field, `answer`. Source: ACP v1, `elicitation/create` in form mode.

use convoke_protocol::{AnswerChoice, AnswerKind, QuestionOutcome, QuestionRequest};
use serde_json::{Map, Value, json};

/// The method.
pub(super) const CREATE: &str = "elicitation/create";

/// The only field.
const FIELD: &str = "answer";

/// A person types it; what is longer is no answer. The model would read all of it.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// `params` of [`CREATE`].
pub(super) fn params(question: &QuestionRequest) -> Value {
    let mut field = match &question.answer {
        AnswerKind::Text { .. } => json!({"type": "string", "minLength": 1}),
        AnswerKind::One(choices) => json!({"type": "string", "oneOf": titled(choices)}),
        AnswerKind::Several(choices) => {
            json!({"type": "array", "minItems": 1, "items": {"anyOf": titled(choices)}})
        }
    };
    let title = Some(question.header.trim()).filter(|header| !header.is_empty()).unwrap_or("Answer");
    let example = match &question.answer {
        AnswerKind::Text { example } => example.as_deref().map(str::trim).filter(|example| !example.is_empty()),
        AnswerKind::One(_) | AnswerKind::Several(_) => None,
    };
    if let Value::Object(field) = &mut field {
        field.insert("title".to_owned(), json!(title));
        field.extend(example.map(|example| ("description".to_owned(), json!(format!("For example: {example}")))));
    }
    json!({
        "mode": "form",
        "sessionId": question.session_id,
        "toolCallId": question.tool_call_id,
        "message": question.question,
        "requestedSchema": {"type": "object", "properties": {FIELD: field}, "required": [FIELD]},
    })
}

fn titled(choices: &[AnswerChoice]) -> Vec<Value> {
    let titled = |choice: &AnswerChoice| {
        let mut option = Map::new();
        option.insert("const".to_owned(), json!(choice.label));
        option.insert("title".to_owned(), json!(choice.label));
        let description = Some(&choice.description).filter(|description| !description.is_empty());
        option.extend(description.map(|description| ("description".to_owned(), json!(description))));
        Value::Object(option)
    };
    choices.iter().map(titled).collect()
}

/// What a client answered. What the form did not allow is no answer.
pub(super) fn outcome(answered: &Value, question: &QuestionRequest) -> QuestionOutcome {
    match answered.get("action").and_then(Value::as_str) {
        Some("accept") => {}
        Some("decline") => return QuestionOutcome::Declined,
        _ => return QuestionOutcome::Cancelled,
    }
    let filled_in = answered.get("content").and_then(|content| content.get(FIELD));
    let on_offer = |choices: &[AnswerChoice], answer: &str| choices.iter().any(|choice| choice.label == answer);
    let answers: Option<Vec<String>> = match (&question.answer, filled_in) {
        (AnswerKind::Text { .. }, Some(Value::String(text))) => Some(text)
            .filter(|text| !text.trim().is_empty() && text.len() <= ANSWER_BYTES_MAX)
            .cloned()
            .map(|t| vec![t]),
        (AnswerKind::One(choices), Some(Value::String(label))) => {
            Some(label).filter(|label| on_offer(choices, label)).cloned().map(|label| vec![label])
        }
        (AnswerKind::Several(choices), Some(Value::Array(labels))) if !labels.is_empty() => {
            let chosen = |label: &str| labels.iter().any(|answer| answer.as_str() == Some(label));
            let all = labels.iter().all(|label| label.as_str().is_some_and(|label| on_offer(choices, label)));
            // Each once, in the order of the question.
            let picked = choices.iter().map(|choice| &choice.label).filter(|label| chosen(label)).cloned();
            all.then(|| picked.collect())
        }
        _ => None,
    };
    answers.map_or(QuestionOutcome::Cancelled, QuestionOutcome::Answered)
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::CreateElicitationRequest;

    use super::*;

    fn question(answer: AnswerKind) -> QuestionRequest {
        QuestionRequest {
            session_id: "s".into(),
            tool_call_id: "t".into(),
            question: "Which?".into(),
            header: "Colour".into(),
            answer,
        }
    }

    fn choices() -> Vec<AnswerChoice> {
        let choice =
            |label: &str, description: &str| AnswerChoice { label: label.into(), description: description.into() };
        vec![choice("red", "warm"), choice("blue", "")]
    }

    #[test]
    fn every_kind_of_question_is_a_form_of_acp() {
        for answer in [
            AnswerKind::Text { example: Some("green".into()) },
            AnswerKind::One(choices()),
            AnswerKind::Several(choices()),
        ] {
            let sent = params(&question(answer));
            let typed: CreateElicitationRequest = serde_json::from_value(sent.clone()).unwrap();
            assert_eq!(serde_json::to_value(typed).unwrap(), sent);
        }
        let sent = params(&question(AnswerKind::One(choices())));
        let field = json!({"type": "string", "title": "Colour", "oneOf": [
            {"const": "red", "title": "red", "description": "warm"}, {"const": "blue", "title": "blue"},
        ]});
        assert_eq!(sent["requestedSchema"]["properties"]["answer"], field);
    }

    #[test]
    fn only_what_the_form_allows_is_an_answer() {
        let answered = |kind: AnswerKind, answer: Value| {
            outcome(&json!({"action": "accept", "content": {"answer": answer}}), &question(kind))
        };
        let given = |answers: &[&str]| QuestionOutcome::Answered(answers.iter().map(|a| (*a).to_owned()).collect());
        let words = || AnswerKind::Text { example: None };
        assert_eq!(answered(words(), json!("green")), given(&["green"]));
        assert_eq!(answered(AnswerKind::One(choices()), json!("red")), given(&["red"]));
        assert_eq!(answered(AnswerKind::Several(choices()), json!(["blue", "red", "blue"])), given(&["red", "blue"]));
        for (kind, answer) in [
            (words(), json!(" ")),
            (words(), json!("x".repeat(ANSWER_BYTES_MAX + 1))),
            (words(), json!(5)),
            (AnswerKind::One(choices()), json!("green")),
            (AnswerKind::One(choices()), json!(["red"])),
            (AnswerKind::Several(choices()), json!([])),
            (AnswerKind::Several(choices()), json!(["red", "green"])),
        ] {
            assert_eq!(answered(kind, answer.clone()), QuestionOutcome::Cancelled, "{answer}");
        }
        let one = question(AnswerKind::One(choices()));
        assert_eq!(outcome(&json!({"action": "decline"}), &one), QuestionOutcome::Declined);
        assert_eq!(
            outcome(&json!({"action": "cancel", "content": {"answer": "red"}}), &one),
            QuestionOutcome::Cancelled
        );
        assert_eq!(outcome(&json!({"action": "accept"}), &one), QuestionOutcome::Cancelled);
        assert_eq!(outcome(&json!(null), &one), QuestionOutcome::Cancelled);
    }
}
