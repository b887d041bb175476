//! What of a tool's schema may a provider see?
//!
//! Servers write any JSON Schema; providers take less. References stay as they are, cyclic ones too: nothing here
//! follows them.

use serde_json::{Map, Value, json};

/// A larger schema would be most of a request by itself; the tool is then declared as taking any object.
const BYTES_MAX: usize = 64 * 1024;

/// Keywords that providers refuse or that mean nothing to a model.
const DROPPED: [&str; 2] = ["$schema", "additionalProperties"];
/// Keywords whose value maps names to schemas.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is data, not a schema.
const DATA: [&str; 5] = ["default", "enum", "const", "examples", "required"];

/// The schema as it is declared: an object schema, within bounds.
pub(crate) fn cleaned(schema: &Map<String, Value>) -> Value {
    let mut schema = clean_map(schema);
    schema.entry("type").or_insert_with(|| "object".into());
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    let schema = Value::Object(schema);
    if schema.to_string().len() > BYTES_MAX {
        return json!({"type": "object", "properties": {}});
    }
    schema
}

// As deep as the JSON parser lets a message be, which is bounded.
fn clean_map(schema: &Map<String, Value>) -> Map<String, Value> {
    let kept = schema.iter().filter(|(key, _)| !DROPPED.contains(&key.as_str()));
    kept.map(|(key, value)| {
        let value = match value {
            value if DATA.contains(&key.as_str()) => value.clone(),
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                Value::Object(named.iter().map(|(name, schema)| (name.clone(), clean(schema))).collect())
            }
            value => clean(value),
        };
        (key.clone(), value)
    })
    .collect()
}

fn clean(value: &Value) -> Value {
    match value {
        Value::Object(schema) => Value::Object(clean_map(schema)),
        Value::Array(items) => Value::Array(items.iter().map(clean).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: Value) -> Value {
        cleaned(value.as_object().unwrap())
    }

    #[test]
    fn keywords_go_and_properties_of_the_same_name_stay() {
        let schema = json!({
            "$schema": "x", "type": "object", "additionalProperties": false,
            "properties": {
                "additionalProperties": {"type": "string", "additionalProperties": true},
                "list": {"type": "array", "items": [{"type": "object", "additionalProperties": {"type": "string"}}]},
            },
            "default": {"$schema": "data"},
        });
        assert_eq!(
            of(schema),
            json!({
                "type": "object",
                "properties": {
                    "additionalProperties": {"type": "string"},
                    "list": {"type": "array", "items": [{"type": "object"}]},
                },
                "default": {"$schema": "data"},
            })
        );
    }

    #[test]
    fn a_cycle_stays_a_reference() {
        let schema = json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        });
        assert_eq!(of(schema.clone()), schema);
    }

    #[test]
    fn whatever_comes_is_a_bounded_object_schema() {
        assert_eq!(of(json!({})), json!({"type": "object", "properties": {}}));
        let huge = json!({"type": "object", "properties": {"a": {"description": "x".repeat(BYTES_MAX)}}});
        assert_eq!(of(huge), json!({"type": "object", "properties": {}}));
    }
}
