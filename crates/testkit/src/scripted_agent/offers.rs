//! What the scripted agent lets its client choose: one of two models.

use serde_json::{Value, json};

/// ACP's `models`, as the peer shapes it.
pub(super) fn models() -> Value {
    let models = ["small", "large"].map(|id| json!({"modelId": id, "name": id, "description": null}));
    json!({"currentModelId": "small", "availableModels": models})
}

/// The same choice as ACP's `configOptions`.
pub(super) fn config_options(model: &str) -> Value {
    let options = ["small", "large"].map(|id| json!({"value": id, "name": id}));
    json!([{
        "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": model, "options": options,
    }])
}

/// One of the models, or the peer's error.
pub(super) fn take_model(model: &Value) -> Result<&str, Value> {
    let model = model.as_str().unwrap_or_default();
    if ["small", "large"].contains(&model) {
        return Ok(model);
    }
    let details = format!("Model '{model}' not found for authType 'openai'");
    Err(json!({"code": -32603, "message": "Internal error", "data": {"details": details}}))
}
