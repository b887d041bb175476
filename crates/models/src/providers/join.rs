//! Whole answers, where a protocol is read in pieces.

use serde_json::{Map, Value, json};

use crate::generator::GenerateResponse;

/// The pieces of one answer as one.
pub(super) fn join(pieces: Vec<GenerateResponse>) -> GenerateResponse {
    let mut parts = Vec::new();
    let mut whole = Map::new();
    let mut finish_reason = None;
    for piece in pieces {
        parts.extend(piece.parts().cloned().map(Value::Object));
        finish_reason = piece.finish_reason().map(str::to_owned).or(finish_reason);
        for key in ["usageMetadata", "modelVersion"] {
            if let Some(value) = piece.raw().get(key) {
                whole.insert(key.to_owned(), value.clone());
            }
        }
    }
    let mut candidate = json!({"content": {"role": "model", "parts": parts}});
    if let (Some(reason), Some(candidate)) = (finish_reason, candidate.as_object_mut()) {
        candidate.insert("finishReason".to_owned(), reason.into());
    }
    whole.insert("candidates".to_owned(), json!([candidate]));
    whole.into()
}
