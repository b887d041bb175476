//! What do several hooks say together? Source: runtime specification §10.4.
//!
//! Sans-IO. One refusal refuses, one stop stops, whatever the others say and in whichever order they say it: reasons are
//! joined, and of fields that can't be joined the last one counts.

use serde_json::{Map, Value};

use super::output::{Decision, HookOutput};

/// A note of a hook for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HookMessage {
    pub(super) hook: String,
    pub(super) text: String,
    /// Whether something is wrong with the hook itself.
    pub(super) warning: bool,
}

/// Which tools may be called, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ToolMode {
    Auto,
    Any,
    None,
}

/// What the hooks of one event want.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub(super) deny: Option<String>,
    pub(super) ask: Option<String>,
    pub(super) stop: Option<String>,
    pub(super) messages: Vec<HookMessage>,
    context: Option<String>,
    pub(super) tool_input: Option<Value>,
    pub(super) tail_call: Option<(String, Value)>,
    pub(super) clear_context: bool,
    pub(super) llm_request: Option<Map<String, Value>>,
    pub(super) llm_response: Option<Value>,
    tool_mode: Option<ToolMode>,
    tool_names: Vec<String>,
}

/// Appends `more` on a line of its own.
fn join(into: &mut Option<String>, more: &str) {
    match into {
        Some(text) => {
            text.push('\n');
            text.push_str(more);
        }
        None => *into = Some(more.to_owned()),
    }
}

impl Verdict {
    /// Adds what `hook` said.
    pub(super) fn add(&mut self, hook: &str, output: HookOutput) {
        let HookOutput { decision, reason, stop, stop_reason, message, warning, specific } = output;
        let default = || format!("no reason given by hook {hook}");
        match decision {
            Some(Decision::Deny) => {
                let why = reason.clone().or_else(|| stop_reason.clone());
                join(&mut self.deny, &why.unwrap_or_else(default));
            }
            Some(Decision::Ask) => join(&mut self.ask, &reason.clone().unwrap_or_else(default)),
            Some(Decision::Allow) | None => {}
        }
        if stop {
            join(&mut self.stop, &stop_reason.or(reason).unwrap_or_else(default));
        }
        let note = |text, warning| HookMessage { hook: hook.to_owned(), text, warning };
        self.messages.extend(message.map(|text| note(text, false)));
        self.messages.extend(warning.map(|text| note(text, true)));
        self.specific(specific);
    }

    fn specific(&mut self, mut specific: Map<String, Value>) {
        if let Some(text) = specific.get("additionalContext").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            join(&mut self.context, text);
        }
        if let Some(input) = specific.remove("tool_input").filter(Value::is_object) {
            self.tool_input = Some(input);
        }
        if let Some(call) = specific.get("tailToolCallRequest")
            && let Some(name) = call.get("name").and_then(Value::as_str)
        {
            let args = call.get("args").filter(|args| args.is_object()).cloned();
            self.tail_call = Some((name.to_owned(), args.unwrap_or_else(|| Value::Object(Map::new()))));
        }
        self.clear_context |= specific.get("clearContext") == Some(&Value::Bool(true));
        if let Some(Value::Object(request)) = specific.remove("llm_request") {
            self.llm_request.get_or_insert_default().extend(request);
        }
        if let Some(response) = specific.remove("llm_response").filter(Value::is_object) {
            self.llm_response = Some(response);
        }
        if let Some(config) = specific.get("toolConfig") {
            let mode = match config.get("mode").and_then(Value::as_str) {
                Some("NONE") => Some(ToolMode::None),
                Some("ANY") => Some(ToolMode::Any),
                Some("AUTO") => Some(ToolMode::Auto),
                _ => None,
            };
            self.tool_mode = self.tool_mode.max(mode);
            let names = config.get("allowedFunctionNames").and_then(Value::as_array).into_iter().flatten();
            self.tool_names.extend(names.filter_map(Value::as_str).map(ToOwned::to_owned));
            self.tool_names.sort();
            self.tool_names.dedup();
        }
    }

    /// Text for the model, marked as what it is. It can't close its own mark.
    pub(super) fn context(&self) -> Option<String> {
        let escaped = self.context.as_ref()?.replace('<', "&lt;").replace('>', "&gt;");
        Some(format!("<hook_context>{escaped}</hook_context>"))
    }

    /// The only tools that may be called; `None` for no restriction.
    pub(super) fn allowed_tools(&self) -> Option<Vec<String>> {
        match self.tool_mode {
            Some(ToolMode::None) => Some(Vec::new()),
            _ if self.tool_names.is_empty() => None,
            _ => Some(self.tool_names.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn output(value: Value) -> HookOutput {
        use crate::user_program::{End, Ran};
        let duration = std::time::Duration::ZERO;
        HookOutput::read(&Ran { end: End::Exited(0), stdout: value.to_string(), stderr: String::new(), duration })
    }

    fn verdict(outputs: &[Value]) -> Verdict {
        let mut verdict = Verdict::default();
        for (index, value) in outputs.iter().enumerate() {
            verdict.add(&index.to_string(), output(value.clone()));
        }
        verdict
    }

    #[test]
    fn reasons_and_contexts_are_joined_and_the_last_input_counts() {
        let specific = |inner: Value| json!({"hookSpecificOutput": inner});
        let all = verdict(&[
            json!({"decision": "deny", "reason": "a"}),
            json!({"decision": "allow", "reason": "x"}),
            json!({"decision": "block", "reason": "b", "continue": false, "stopReason": "c"}),
            json!({"decision": "ask", "reason": "d"}),
            json!({"continue": false}),
            specific(json!({"additionalContext": "<one>", "tool_input": {"n": 1}, "clearContext": true})),
            specific(json!({"additionalContext": "</hook_context>", "tool_input": {"n": 2}})),
        ]);
        assert_eq!(all.deny.as_deref(), Some("a\nb"));
        assert_eq!(all.ask.as_deref(), Some("d"));
        assert_eq!(all.stop.as_deref(), Some("c\nno reason given by hook 4"));
        let context = "<hook_context>&lt;one&gt;\n&lt;/hook_context&gt;</hook_context>";
        assert_eq!(all.context().as_deref(), Some(context));
        assert_eq!((all.tool_input, all.clear_context), (Some(json!({"n": 2})), true));
    }

    #[test]
    fn the_strictest_tool_mode_wins_over_the_union_of_names() {
        let config = |mode: &str, names: &[&str]| json!({"hookSpecificOutput": {"toolConfig": {"mode": mode, "allowedFunctionNames": names}}});
        let allowed = |outputs: &[Value]| verdict(outputs).allowed_tools();
        assert_eq!(allowed(&[]), None);
        assert_eq!(allowed(&[config("AUTO", &[])]), None);
        assert_eq!(
            allowed(&[config("ANY", &["b", "a"]), config("AUTO", &["c", "a"])]),
            Some(vec!["a".into(), "b".into(), "c".into()])
        );
        assert_eq!(allowed(&[config("NONE", &[]), config("ANY", &["b"])]), Some(vec![]));
    }

    fn any_output() -> impl Strategy<Value = Value> {
        let decision = prop_oneof![
            Just(Value::Null),
            Just(json!("allow")),
            Just(json!("approve")),
            Just(json!("ask")),
            Just(json!("deny")),
            Just(json!("block")),
            Just(json!(7)),
        ];
        let mode = prop_oneof![Just("AUTO"), Just("ANY"), Just("NONE")];
        (decision, any::<bool>(), "[a-z<>]{0,6}", mode).prop_map(|(decision, go_on, reason, mode)| {
            json!({
                "decision": decision, "continue": go_on, "reason": reason,
                "hookSpecificOutput": {"additionalContext": reason, "toolConfig": {"mode": mode}},
            })
        })
    }

    proptest! {
        /// Whoever speaks last, and however many agree otherwise: what one hook forbids stays forbidden.
        #[test]
        #[test]
        fn no_order_loses_a_refusal(outputs in prop::collection::vec(any_output(), 0..8), turn in 0_usize..8) {
            let denies = |o: &Value| matches!(o["decision"].as_str(), Some("deny" | "block"));
            let mut turned = outputs.clone();
            turned.rotate_left(turn.min(outputs.len()));
            let mut reversed = outputs.clone();
            reversed.reverse();
            for order in [&outputs, &turned, &reversed] {
                let all = verdict(order);
                prop_assert_eq!(all.deny.is_some(), outputs.iter().any(denies));
                prop_assert_eq!(all.ask.is_some(), outputs.iter().any(|o| o["decision"] == "ask"));
                prop_assert_eq!(all.stop.is_some(), outputs.iter().any(|o| o["continue"] == false));
                let none = outputs.iter().any(|o| o["hookSpecificOutput"]["toolConfig"]["mode"] == "NONE");
                prop_assert_eq!(all.allowed_tools() == Some(vec![]), none);
                // No context can pretend to be something else.
                let context = all.context().unwrap_or_default();
                prop_assert_eq!(context.matches('<').count(), if context.is_empty() { 0 } else { 2 });
                for output in order.iter().filter(|o| denies(o)) {
                    let reason = output["reason"].as_str().unwrap_or_default();
                    prop_assert!(all.deny.as_deref().unwrap_or_default().contains(reason));
                }
            }
        }
    }
}
