//! Do arguments have the shape that their tool declared? Answered with the name of the first one that does not.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{ErrorType, ToolFailure};

/// Checks `args` against `schema` and reads them.
///
/// `schema` is an object schema of the kind that the built-in tools declare: `properties`, `required`, `type`,
/// `items`, `enum`, `minimum`. Arguments that it does not know are let through, as models like to add some.
pub(crate) fn read<T: DeserializeOwned>(schema: &Value, args: &Value) -> Result<T, ToolFailure> {
    let invalid = |message: String| ToolFailure::new(ErrorType::InvalidToolParams, message);
    // No arguments at all is how some models write an empty object.
    let empty = Value::Object(serde_json::Map::new());
    let args = if args.is_null() { &empty } else { args };
    check(schema, args)?;
    T::deserialize(args).map_err(|error| invalid(format!("params can't be read: {error}")))
}

/// Checks `args` against `schema`, as for the built-in tools; for tools that are made elsewhere.
///
/// Errors: [`ErrorType::InvalidToolParams`], with the name of the first argument that is wrong.
pub fn check(schema: &Value, args: &Value) -> Result<(), ToolFailure> {
    match problem(schema, args, "params") {
        Some(problem) => Err(ToolFailure::new(ErrorType::InvalidToolParams, problem)),
        None => Ok(()),
    }
}

fn problem(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let expected = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if !has_type(expected, value) {
        return Some(format!("{at} must be {expected}, not {}", type_of(value)));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        return Some(format!("{at} must be one of {}", Value::Array(allowed.clone())));
    }
    if let Some(minimum) = schema.get("minimum").and_then(Value::as_f64)
        && value.as_f64().is_some_and(|number| number < minimum)
    {
        return Some(format!("{at} must be at least {minimum}"));
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none_or(Value::is_null) {
            return Some(format!("{at} must have required property '{name}'"));
        }
    }
    let items = value.as_array().into_iter().flatten().enumerate();
    let of_items = schema
        .get("items")
        .into_iter()
        .flat_map(|items_schema| items.clone().map(move |(index, item)| (items_schema, item, format!("{at}/{index}"))));
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let of_properties = properties.filter_map(|(name, schema)| {
        let inner = value.get(name).filter(|inner| !inner.is_null())?;
        Some((schema, inner, format!("{at}/{name}")))
    });
    of_items.chain(of_properties).find_map(|(schema, value, at)| problem(schema, value, &at))
}

fn has_type(expected: &str, value: &Value) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_i64().is_some() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Reads a whole number that a model may have written as `3.0`.
pub(crate) fn lenient_u64<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    use serde::Deserialize;
    use serde::de::Error;
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    // 2^53: beyond it a float does not tell neighbours apart, and no argument of ours goes there.
    if number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked right above")]
        return Ok(Some(number as u64));
    }
    Err(D::Error::custom("expected a whole number that is not negative"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_message_names_the_parameter() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "line": {"type": "integer", "minimum": 1},
                "names": {"type": "array", "items": {"type": "string"}},
                "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}},
                "how": {"type": "string", "enum": ["a", "b"]},
            },
            "required": ["path"],
        });
        for (args, expected) in [
            (json!({}), "params must have required property 'path'"),
            (Value::Null, "params must have required property 'path'"),
            (json!({"path": null}), "params must have required property 'path'"),
            (json!([]), "params must be object, not array"),
            (json!({"path": 1}), "params/path must be string, not number"),
            (json!({"path": "", "line": 0}), "params/line must be at least 1"),
            (json!({"path": "", "line": 1.5}), "params/line must be integer, not number"),
            (json!({"path": "", "names": ["a", 1]}), "params/names/1 must be string, not number"),
            (json!({"path": "", "deep": {"on": "yes"}}), "params/deep/on must be boolean, not string"),
            (json!({"path": "", "how": "c"}), "params/how must be one of [\"a\",\"b\"]"),
        ] {
            let failure = read::<Value>(&schema, &args).unwrap_err();
            assert_eq!((failure.message(), failure.error_type()), (expected, Some(ErrorType::InvalidToolParams)));
        }
        assert!(read::<Value>(&schema, &json!({"path": "", "line": 3.0, "deep": null, "new": 1})).is_ok());
    }
}
