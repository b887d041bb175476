//! A vote: is its body one? The bridge judges everything else, in the order that gives no oracle away.
//!
//! Source: daemon specification, §f.3, steps 1 and 2, and §f.4.

use convoke_bridge::{Input, VoteChoice};
use convoke_protocol::{RequestId, SessionId};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::Incoming;
use crate::body::Fields;
use crate::http_error::HttpError;
use crate::respond::{self, Reply};
use crate::service::Service;

/// `POST /session/:id/permission/:requestId`, and without a session `POST /permission/:requestId`.
pub(super) async fn vote(
    service: &Service,
    incoming: &Incoming<'_>,
    session: Option<&String>,
    request: &str,
) -> Result<Reply, HttpError> {
    let choice = choice(&incoming.fields)?;
    let caller = incoming.caller()?;
    let session = session.map(|id| SessionId::from(id.as_str()));
    let request = RequestId::from(request);
    service.handle.call(|call| Input::Vote { call, session, request, caller, choice }).await?;
    Ok(respond::json(StatusCode::OK, &json!({})))
}

/// Reads the nested form only; the flat ones are refused.
fn choice(fields: &Fields) -> Result<VoteChoice, HttpError> {
    let shape = || {
        HttpError::malformed(
            "`outcome` must be `{ outcome: \"cancelled\" }` or `{ outcome: \"selected\", optionId: string }`",
        )
    };
    let outcome = fields.get("outcome").and_then(Value::as_object).ok_or_else(shape)?;
    match outcome.get("outcome").and_then(Value::as_str) {
        Some("cancelled") => Ok(VoteChoice::Cancelled),
        Some("selected") => {
            let option_id = outcome.get("optionId").and_then(Value::as_str).filter(|id| !id.is_empty());
            let option_id = option_id.ok_or_else(shape)?.to_owned();
            Ok(VoteChoice::Selected { option_id, extras: extras(fields)? })
        }
        Some(_) | None => Err(shape()),
    }
}

/// Fields that go to the agent beside the choice.
fn extras(fields: &Fields) -> Result<Option<Value>, HttpError> {
    let mut extras = Map::new();
    if let Some(answers) = fields.get("answers").filter(|answers| !answers.is_null()) {
        let texts = answers.as_object().is_some_and(|answers| answers.values().all(Value::is_string));
        if !texts {
            return Err(HttpError::malformed("`answers` must be an object of strings when provided"));
        }
        extras.insert("answers".to_owned(), answers.clone());
    }
    if let Some(mode) = fields.get("expectedPlanExecutionMode").filter(|mode| !mode.is_null()) {
        if !mode.is_string() {
            return Err(HttpError::malformed("`expectedPlanExecutionMode` must be a string when provided"));
        }
        extras.insert("expectedPlanExecutionMode".to_owned(), mode.clone());
    }
    Ok((!extras.is_empty()).then_some(Value::Object(extras)))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Option<VoteChoice> {
        let Value::Object(fields) = body else { panic!("a body is an object") };
        choice(&fields).ok()
    }

    #[test]
    fn only_the_nested_forms_are_votes() {
        let selected = |extras| VoteChoice::Selected { option_id: "proceed_once".to_owned(), extras };
        for (body, expected) in [
            (json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}}), Some(selected(None))),
            (json!({"outcome": {"outcome": "cancelled"}}), Some(VoteChoice::Cancelled)),
            (
                json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}, "answers": {"q": "a"}}),
                Some(selected(Some(json!({"answers": {"q": "a"}})))),
            ),
            (json!({"outcome": {"outcome": "selected", "optionId": "x"}, "answers": {"q": 1}}), None),
            (json!({"outcome": {"outcome": "selected", "optionId": "x"}, "answers": []}), None),
            (json!({"outcome": {"outcome": "bogus"}}), None),
            (json!({"outcome": {"outcome": "selected"}}), None),
            (json!({"outcome": {"outcome": "selected", "optionId": 5}}), None),
            (json!({"outcome": {"outcome": "selected", "optionId": ""}}), None),
            (json!({"outcome": "cancelled"}), None),
            (json!({"outcome": "selected", "optionId": "proceed_once"}), None),
            (json!({}), None),
        ] {
            assert_eq!(read(body.clone()), expected, "{body}");
        }
    }
}
