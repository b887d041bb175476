//! What exactly was asked? One digest that names an action, which the daemon, a client and an auditor compute alike.
//!
//! It is taken over canonical JSON: RFC 8785 (members sorted by the UTF-16 units of their names, no white space, the
//! shortest strings and numbers of ECMAScript), with one difference: an integer keeps all its digits beyond 2^53, where
//! RFC 8785 would round, since two actions must not share a digest because their numbers are close.

use std::fmt::Write as _;

use convoke_protocol::SessionId;
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};

/// `sha256:` and the lower-case hex digest of the canonical JSON of `{"options":…,"sessionId":…,"toolCall":…}`, each
/// as the agent sent it and as it stands in `permission_request`.
#[must_use]
pub fn action_digest(session: &SessionId, tool_call: &Value, options: &[Value]) -> String {
    digest_and_size(session, tool_call, options).0
}

/// The digest, and the bytes of what it is over.
pub(crate) fn digest_and_size(session: &SessionId, tool_call: &Value, options: &[Value]) -> (String, usize) {
    let mut text = String::from("{\"options\":");
    write_list(&mut text, options);
    text.push_str(",\"sessionId\":");
    write_string(&mut text, session.as_str());
    text.push_str(",\"toolCall\":");
    write_value(&mut text, tool_call);
    text.push('}');
    let mut digest = String::from("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a string can't fail.
        let _ = write!(digest, "{byte:02x}");
    }
    (digest, text.len())
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => write_number(text, number),
        Value::String(string) => write_string(text, string),
        Value::Array(list) => write_list(text, list),
        Value::Object(fields) => write_object(text, fields),
    }
}

fn write_list(text: &mut String, list: &[Value]) {
    text.push('[');
    for (position, value) in list.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        write_value(text, value);
    }
    text.push(']');
}

fn write_object(text: &mut String, fields: &Map<String, Value>) {
    let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
    fields.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    text.push('{');
    for (position, (name, value)) in fields.into_iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        write_string(text, name);
        text.push(':');
        write_value(text, value);
    }
    text.push('}');
}

/// ECMAScript's `QuoteJSONString`. A Rust string has no lone surrogates, the one case that would need more.
fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            c if c < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

fn write_number(text: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if number.is_f64() => write_float(text, float),
        // Integers; `Display` writes their digits.
        _ => {
            let _ = write!(text, "{number}");
        }
    }
}

/// ECMAScript's `Number::toString` (ECMA-262 §6.1.6.1.20): Rust finds the same shortest digits, the layout differs.
fn write_float(text: &mut String, float: f64) {
    if float == 0.0 {
        // Also for −0.
        return text.push('0');
    }
    let scientific = format!("{:e}", float.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific.as_str(), "0"));
    let digits = mantissa.replace('.', "");
    // The value is 0.DIGITS × 10^point.
    let point = exponent.parse::<i32>().unwrap_or_default() + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or_default());
    if float < 0.0 {
        text.push('-');
    }
    if (count..=21).contains(&point) {
        text.push_str(&digits);
        text.push_str(&zeros(point - count));
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
        let _ = write!(text, "{whole}.{fraction}");
    } else if (-5..=0).contains(&point) {
        let _ = write!(text, "0.{}{digits}", zeros(-point));
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let _ = write!(text, "{first}{dot}{rest}e{:+}", point - 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical(value: &Value) -> String {
        let mut text = String::new();
        write_value(&mut text, value);
        text
    }

    /// RFC 8785, §3.2.2 to §3.2.4 and appendix B.
    #[test]
    fn the_examples_of_the_rfc_are_met() {
        let value = json!({
            "numbers": [333_333_333.333_333_3, 1E30, 4.50, 2e-3, 0.000_000_000_000_000_000_000_000_001],
            "string": "\u{20ac}$\u{f}\nA'B\"\\\\\"/",
            "literals": [null, true, false],
        });
        let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical(&value), expected);
        let sorted = json!({ "€": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "😀": 5, "\u{80}": 6, "ö": 7 });
        assert_eq!(canonical(&sorted), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}");
        for (bits, expected) in [
            (0x8000_0000_0000_0000_u64, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0001, "9007199254740994"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
        ] {
            assert_eq!(canonical(&json!(f64::from_bits(bits))), expected, "{bits:x}");
        }
    }

    #[test]
    fn integers_keep_their_digits() {
        assert_eq!(
            canonical(&json!([9_007_199_254_740_993_u64, -7, u64::MAX])),
            "[9007199254740993,-7,18446744073709551615]"
        );
    }

    /// The digest itself: `printf '{"options":[{"optionId":"a"}],"sessionId":"s","toolCall":{"a":1,"b":2}}' | sha256sum`.
    #[test]
    fn the_digest_names_the_action_and_not_its_spelling() {
        let digest = |session: &str, call: Value| action_digest(&session.into(), &call, &[json!({ "optionId": "a" })]);
        let expected = "sha256:cd895a2734baaa1e7df75dacd211c54b762f38ef234d4b2dfdc72ae0191f5817";
        assert_eq!(digest("s", json!({ "b": 2, "a": 1 })), expected);
        assert_eq!(digest("s", json!({ "a": 1, "b": 2.0 })), expected);
        assert_ne!(digest("t", json!({ "b": 2, "a": 1 })), expected);
        assert_ne!(digest("s", json!({ "b": 2, "a": "1" })), expected);
    }
}
