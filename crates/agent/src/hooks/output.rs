//! What did a hook say? Source: runtime specification §10.2.
//!
//! Sans-IO: an exit code and two texts in, one [`HookOutput`] out.
//!
//! JSON is honoured whatever the exit code. What is no JSON counts by the code: 0 is a note for the user, 1 a warning,
//! anything else a refusal with the text as its reason. A code of 2 or more without a decision refuses too.

use serde_json::{Map, Value};

use crate::user_program::{End, Ran};

/// What a hook decided about what is at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allow,
    Ask,
    Deny,
}

/// What one hook said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HookOutput {
    pub(super) decision: Option<Decision>,
    pub(super) reason: Option<String>,
    /// Everything ends here.
    pub(super) stop: bool,
    pub(super) stop_reason: Option<String>,
    /// For the user.
    pub(super) message: Option<String>,
    /// What went wrong with the hook itself. It changes nothing but is told.
    pub(super) warning: Option<String>,
    /// What only some events understand.
    pub(super) specific: Map<String, Value>,
}

impl HookOutput {
    /// Reads what a hook printed and how it ended.
    pub(super) fn read(ran: &Ran) -> Self {
        let code = match &ran.end {
            End::Exited(code) => *code,
            other => return Self { warning: other.failure(), ..Self::default() },
        };
        let (stdout, stderr) = (ran.stdout.trim(), ran.stderr.trim());
        let refuses = !matches!(code, 0 | 1);
        let said = if stdout.is_empty() { stderr } else { stdout };
        if let Some(object) = object(said) {
            let mut output = Self::of_object(&object);
            if refuses && output.decision.is_none() {
                output.decision = Some(Decision::Deny);
                output.reason = output.reason.or_else(|| non_empty(stderr)).or_else(|| ran.end.failure());
            }
            return output;
        }
        if refuses {
            let reason = non_empty(stderr).or_else(|| non_empty(stdout)).or_else(|| ran.end.failure());
            return Self { decision: Some(Decision::Deny), reason, ..Self::default() };
        }
        match (said, code) {
            ("", 0) => Self::default(),
            ("", _) => Self { warning: ran.end.failure(), ..Self::default() },
            (text, 0) => Self { decision: Some(Decision::Allow), message: Some(text.to_owned()), ..Self::default() },
            (text, _) => {
                Self { decision: Some(Decision::Allow), message: Some(format!("Warning: {text}")), ..Self::default() }
            }
        }
    }

    /// What was understood, in the words of the contract; for telemetry.
    pub(super) fn as_json(&self) -> String {
        let mut object = Map::new();
        let decision = self.decision.map(|decision| match decision {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        });
        let mut put = |key: &str, value: Option<&str>| {
            object.extend(value.map(|value| (key.to_owned(), Value::from(value))));
        };
        put("decision", decision);
        put("reason", self.reason.as_deref());
        put("stopReason", self.stop_reason.as_deref());
        put("systemMessage", self.message.as_deref());
        if self.stop {
            object.insert("continue".to_owned(), false.into());
        }
        if !self.specific.is_empty() {
            object.insert("hookSpecificOutput".to_owned(), Value::Object(self.specific.clone()));
        }
        Value::Object(object).to_string()
    }

    fn of_object(object: &Map<String, Value>) -> Self {
        let text = |key: &str| object.get(key).and_then(Value::as_str).and_then(non_empty);
        let mut specific = object.get("hookSpecificOutput").and_then(Value::as_object).cloned().unwrap_or_default();
        // Words of other agents for the same things.
        if let Some(input) = specific.remove("updatedInput") {
            specific.entry("tool_input").or_insert(input);
        }
        let theirs = |key: &str| specific.get(key).and_then(Value::as_str);
        let decision = text("decision").or_else(|| theirs("permissionDecision").map(ToOwned::to_owned));
        let suppressed = object.get("suppressOutput") == Some(&Value::Bool(true));
        Self {
            decision: decision.and_then(|word| match word.as_str() {
                "block" | "deny" => Some(Decision::Deny),
                "ask" => Some(Decision::Ask),
                "allow" | "approve" => Some(Decision::Allow),
                _ => None,
            }),
            reason: text("reason").or_else(|| theirs("permissionDecisionReason").and_then(non_empty)),
            stop: object.get("continue") == Some(&Value::Bool(false)),
            stop_reason: text("stopReason"),
            message: text("systemMessage").filter(|_| !suppressed),
            warning: None,
            specific,
        }
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The object that `text` is, or that a text in it is.
fn object(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text).ok()? {
        Value::Object(object) => Some(object),
        Value::String(inner) => match serde_json::from_str(&inner).ok()? {
            Value::Object(object) => Some(object),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn read(code: i32, stdout: &str, stderr: &str) -> HookOutput {
        let end = End::Exited(code);
        HookOutput::read(&Ran { end, stdout: stdout.into(), stderr: stderr.into(), duration: Duration::ZERO })
    }

    #[test]
    fn text_counts_by_the_exit_code() {
        let sketch = |code, stdout, stderr| {
            let HookOutput { decision, reason, message, warning, .. } = read(code, stdout, stderr);
            (decision, reason.or(message).or(warning).unwrap_or_default())
        };
        let owned = |decision, text: &str| (decision, text.to_owned());
        let (allow, deny) = (Some(Decision::Allow), Some(Decision::Deny));
        assert_eq!(sketch(0, "", ""), owned(None, ""));
        assert_eq!(sketch(0, "hello\n", "noise"), owned(allow, "hello"));
        assert_eq!(sketch(0, "", "noise"), owned(allow, "noise"));
        assert_eq!(sketch(1, "", "odd"), owned(allow, "Warning: odd"));
        assert_eq!(sketch(1, "", ""), owned(None, "it exited with code 1"));
        assert_eq!(sketch(2, "out", "err"), owned(deny, "err"));
        assert_eq!(sketch(3, "out", ""), owned(deny, "out"));
        assert_eq!(sketch(2, "", ""), owned(deny, "it exited with code 2"));
        // Half an object is text.
        assert_eq!(sketch(0, r#"{"decision": "de"#, ""), owned(allow, r#"{"decision": "de"#));
        assert_eq!(sketch(2, r#"{"decision": "al"#, ""), owned(deny, r#"{"decision": "al"#));
    }

    #[test]
    fn json_counts_whatever_the_exit_code() {
        let deny = read(0, r#"{"decision":"block","reason":"no","systemMessage":"look"}"#, "");
        assert_eq!((deny.decision, deny.reason.as_deref()), (Some(Decision::Deny), Some("no")));
        assert_eq!(deny.message.as_deref(), Some("look"));
        assert_eq!(read(2, r#"{"decision":"allow"}"#, "x").decision, Some(Decision::Allow));
        // Nothing was decided, and the code refuses.
        let silent = read(2, r#"{"systemMessage":"look"}"#, "because");
        assert_eq!((silent.decision, silent.reason.as_deref()), (Some(Decision::Deny), Some("because")));
        // From stderr, and encoded twice.
        assert_eq!(read(0, " ", r#"{"decision":"deny"}"#).decision, Some(Decision::Deny));
        assert_eq!(read(0, r#""{\"decision\":\"ask\"}""#, "").decision, Some(Decision::Ask));
        let stop = read(0, r#"{"continue":false,"stopReason":"enough","decision":5,"hookSpecificOutput":7}"#, "");
        assert_eq!((stop.stop, stop.stop_reason.as_deref(), stop.decision), (true, Some("enough"), None));
        assert_eq!(read(0, r#"{"systemMessage":"x","suppressOutput":true}"#, "").message, None);
    }

    #[test]
    fn words_of_other_agents_are_understood() {
        let said = r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"r","updatedInput":{"a":1}}}"#;
        let output = read(0, said, "");
        assert_eq!((output.decision, output.reason.as_deref()), (Some(Decision::Deny), Some("r")));
        assert_eq!(output.specific["tool_input"], serde_json::json!({"a": 1}));
    }

    #[test]
    fn a_hook_that_was_ended_decides_nothing() {
        for end in [End::TimedOut(Duration::from_millis(5)), End::Flooded, End::Signal(9), End::Failed("x".into())] {
            let ran =
                Ran { end, stdout: r#"{"decision":"deny"}"#.into(), stderr: String::new(), duration: Duration::ZERO };
            let output = HookOutput::read(&ran);
            assert_eq!(output.decision, None);
            assert!(output.warning.is_some());
        }
    }
}
