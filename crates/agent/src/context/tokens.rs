//! How many tokens is this, roughly, without asking anybody?
//!
//! Source: runtime specification §7, "Token estimator": an ASCII character is a quarter of a token, any other one and a
//! half; text beyond 100 000 characters and everything that is sent as JSON is a quarter of its length. Lengths are in
//! UTF-16 units, as the peer counts them, so that both mask at the same place.

use convoke_adk::{Content, Part};
use serde_json::Value;

/// Text up to here is looked at character by character.
const FINE_UNITS_MAX: u64 = 100_000;
const IMAGE_TOKENS: u64 = 3_000;
const PDF_TOKENS: u64 = 25_800;
/// How deep parts may nest in a response and still count.
const DEPTH_MAX: u32 = 3;

/// The estimate for one part.
pub(super) fn part_tokens(part: &Part) -> u64 {
    quarters(part.raw(), 0) / 4
}

/// The estimate for all parts of a content.
pub(super) fn content_tokens(content: &Content) -> u64 {
    content.parts.iter().map(|part| quarters(part.raw(), 0)).sum::<u64>() / 4
}

/// The estimate for plain text.
pub(super) fn text_tokens(text: &str) -> u64 {
    text_quarters(text) / 4
}

/// Quarters of tokens, so that everything is a whole number.
fn quarters(part: &serde_json::Map<String, Value>, depth: u32) -> u64 {
    if depth > DEPTH_MAX {
        return 0;
    }
    if let Some(Value::String(text)) = part.get("text") {
        return text_quarters(text);
    }
    if let Some(Value::Object(response)) = part.get("functionResponse") {
        let name = response.get("name").and_then(Value::as_str).map_or(0, units);
        let body = match response.get("response") {
            Some(Value::String(text)) => units(text),
            Some(value) => json_units(value),
            None => 0,
        };
        let nested = response.get("parts").and_then(Value::as_array).into_iter().flatten();
        return name + body + nested.filter_map(Value::as_object).map(|p| quarters(p, depth + 1)).sum::<u64>();
    }
    let media = part.get("inlineData").or_else(|| part.get("fileData"));
    match media.and_then(|media| media.get("mimeType")).and_then(Value::as_str) {
        Some(mime) if mime.starts_with("image/") => IMAGE_TOKENS * 4,
        Some("application/pdf") => PDF_TOKENS * 4,
        Some(_) | None => object_units(part),
    }
}

fn text_quarters(text: &str) -> u64 {
    let units = units(text);
    if units > FINE_UNITS_MAX {
        return units;
    }
    let ascii = count(text, |byte| byte.is_ascii());
    let others = count(text, is_first) - ascii;
    ascii + others * 6
}

/// Whether a byte begins a character.
fn is_first(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// UTF-16 units: one per character, two where UTF-8 needs four bytes.
fn units(text: &str) -> u64 {
    count(text, is_first) + count(text, |byte| byte >= 0xF0)
}

/// Counts bytes, in pieces that fit a byte's counter so that the compiler can do many at once.
fn count(text: &str, wanted: impl Fn(u8) -> bool) -> u64 {
    let in_piece = |piece: &[u8]| u64::from(piece.iter().fold(0_u8, |sum, &byte| sum + u8::from(wanted(byte))));
    text.as_bytes().chunks(255).map(in_piece).sum()
}

fn object_units(map: &serde_json::Map<String, Value>) -> u64 {
    let fields: u64 = map.iter().map(|(key, value)| string_units(key) + 1 + json_units(value)).sum();
    2 + fields + (map.len() as u64).saturating_sub(1)
}

/// The length of the value as compact JSON.
fn json_units(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(number) => number.to_string().len() as u64,
        Value::String(text) => string_units(text),
        Value::Array(items) => 2 + items.iter().map(json_units).sum::<u64>() + (items.len() as u64).saturating_sub(1),
        Value::Object(map) => object_units(map),
    }
}

fn string_units(text: &str) -> u64 {
    let short = |byte: u8| matches!(byte, b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12);
    let long = |byte: u8| byte < 0x20 && !short(byte);
    2 + units(text) + count(text, short) + 5 * count(text, long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_adk::{FunctionCall, FunctionResponse};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_constants_hold() {
        assert_eq!(part_tokens(&Part::text("abcdefgh")), 2);
        assert_eq!(part_tokens(&Part::text("éé")), 3);
        assert_eq!(part_tokens(&Part::text("x".repeat(100_004))), 25_001);
        assert_eq!(part_tokens(&Part::text("é".repeat(100_004))), 25_001);
        assert_eq!(part_tokens(&Part::inline_data("image/png", "AAAA")), 3_000);
        assert_eq!(part_tokens(&Part::inline_data("application/pdf", "AAAA")), 25_800);
        let call = FunctionCall { id: Some("1".into()), name: "tool".into(), args: json!({}) };
        let response = Part::response(&FunctionResponse::output(&call, "x".repeat(400)));
        // `{"output":"…"}` is 13 characters around the text, the name 4.
        assert_eq!(part_tokens(&response), (400 + 13 + 4) / 4);
        assert_eq!(
            content_tokens(&Content { role: convoke_adk::Role::User, parts: vec![response.clone(), response] }),
            208
        );
    }

    #[test]
    fn nesting_ends_somewhere() {
        let mut part = json!({"text": "x".repeat(400)});
        for _ in 0..5 {
            part = json!({"functionResponse": {"name": "", "parts": [part]}});
        }
        let part: Part = serde_json::from_value(part).unwrap();
        assert_eq!(part_tokens(&part), 0);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
            "[\\x00-\\x7f]{0,300}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".*", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn lengths_are_those_of_the_serialised_value(value in any_json()) {
            let text = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(json_units(&value), text.encode_utf16().count() as u64);
        }
    }
}
