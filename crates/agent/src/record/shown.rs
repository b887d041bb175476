//! What a person saw of a tool call: kept as far as the result does not say it already, and shown again.

use std::borrow::Cow;

use convoke_adk::Part;
use convoke_protocol::{AgentEventBody, ContentPart, DisplayContent, ToolDisplay, ToolKind};
use convoke_stdx::iso8601;
use convoke_tools::{CallRecord, CallResult};
use serde_json::{Value, json};

use super::line::CallLine;
use crate::tool_events;

/// Bytes of a display beside the result. More is cut to where it changes, or left out: a record grows with what was
/// said, not with the size of the files that were touched.
const DISPLAY_BYTES_MAX: usize = 16 << 10;
/// Lines around a change that is cut out.
const CONTEXT_LINES: usize = 3;

/// The line of a call that ended.
pub(super) fn call_line(record: &CallRecord, result: &CallResult, now_ms: u64) -> CallLine {
    let mut parts = vec![Part::response(&result.response)];
    parts.extend(result.parts.iter().cloned());
    let display = tool_events::display(record);
    CallLine {
        id: result.response.id.clone().unwrap_or_else(|| record.call_id.clone()),
        name: result.response.name.clone(),
        // What the model wrote stands with its answer.
        args: record.original.is_some().then(|| record.call.args.clone()),
        status: Some(record.status.as_str().to_owned()),
        timestamp: Some(iso8601(now_ms)),
        display_name: display.name,
        description: display.description,
        result_display: tool_events::result_display(&result.display)
            .and_then(|display| compact(display, told(&parts).as_deref().unwrap_or_default())),
        result_summary: result.summary.clone(),
        tool_kind: serde_json::to_value(tool_events::kind(record.kind)).ok(),
        locations: (!record.locations.is_empty())
            .then(|| serde_json::to_value(tool_events::locations(&record.locations)).ok())
            .flatten(),
        output_file: result.output_file.clone(),
        result: Some(Cow::Owned(parts)),
    }
}

/// What the model was told.
fn told(parts: &[Part]) -> Option<String> {
    let response = parts.iter().find_map(Part::function_response)?;
    let text = response.error_message().or_else(|| response.response.get("output")?.as_str());
    text.map(ToOwned::to_owned)
}

/// A display that is the result itself, or has its text from there.
const SAME: &str = "same";

/// The tool whose calls are the agent's plan.
const TODOS: &str = "write_todos";

fn compact(display: DisplayContent, told: &str) -> Option<Value> {
    let is_told = |text: &str| told.contains(text.trim_end());
    match display {
        DisplayContent::Text { text } if is_told(&text) || text.len() > DISPLAY_BYTES_MAX => {
            Some(json!({"type": SAME}))
        }
        DisplayContent::Terminal { pid, exit_code, ansi } if is_told(&ansi) || ansi.len() > DISPLAY_BYTES_MAX => {
            Some(json!({"type": "terminal", "pid": pid, "exitCode": exit_code}))
        }
        DisplayContent::Diff { path, before_text, after_text } => {
            let before = before_text.as_deref().unwrap_or_default();
            let (before, after) = if before.len() + after_text.len() > DISPLAY_BYTES_MAX {
                changed(before, &after_text)
            } else {
                (before, after_text.as_str())
            };
            let fits = before.len() + after.len() <= DISPLAY_BYTES_MAX;
            let before = before_text.is_some().then_some(before);
            fits.then(|| json!({"type": "diff", "path": path, "beforeText": before, "afterText": after}))
        }
        DisplayContent::Json { .. } | DisplayContent::Text { .. } | DisplayContent::Terminal { .. } => {
            let value = serde_json::to_value(display).ok()?;
            (value.to_string().len() <= 2 * DISPLAY_BYTES_MAX).then_some(value)
        }
    }
}

/// The lines that differ, with some around them.
fn changed<'a>(before: &'a str, after: &'a str) -> (&'a str, &'a str) {
    let (old, new) = (offsets(before), offsets(after));
    let line = |text: &'a str, at: &[usize], index: usize| text.get(*at.get(index)?..*at.get(index + 1)?);
    let (old_count, new_count) = (old.len() - 1, new.len() - 1);
    let least = old_count.min(new_count);
    let head = (0..least).take_while(|i| line(before, &old, *i) == line(after, &new, *i)).count();
    let same_tail = |i: &usize| line(before, &old, old_count - 1 - i) == line(after, &new, new_count - 1 - i);
    let tail = (0..least - head).take_while(same_tail).count();
    let (from, drop) = (head.saturating_sub(CONTEXT_LINES), tail.saturating_sub(CONTEXT_LINES));
    let window = |text: &'a str, at: &[usize], count: usize| {
        let start = at.get(from).copied().unwrap_or_default();
        let end = at.get(count - drop).copied().unwrap_or(text.len());
        text.get(start..end).unwrap_or(text)
    };
    (window(before, &old, old_count), window(after, &new, new_count))
}

/// Where each line begins, and where the last one ends.
fn offsets(text: &str) -> Vec<usize> {
    let mut at = vec![0];
    at.extend(text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    }));
    at
}

/// The events of a call that a person is shown again.
pub(super) fn again(call: &CallLine, written: Option<&Value>) -> [AgentEventBody; 2] {
    let parts = call.result.as_deref().unwrap_or_default();
    let told = told(parts);
    let display = ToolDisplay {
        name: call.display_name.clone(),
        description: call.description.clone(),
        ..ToolDisplay::default()
    };
    let kind = call.tool_kind.clone().and_then(|kind| serde_json::from_value(kind).ok()).unwrap_or(ToolKind::Other);
    let locations = call.locations.clone().and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default();
    let request = AgentEventBody::ToolRequest {
        request_id: call.id.as_str().into(),
        name: call.name.clone(),
        args: call.args.as_ref().or(written).cloned().unwrap_or_default(),
        display: Some(display.clone()),
        kind,
        locations,
    };
    let status = call.status.as_deref().unwrap_or("success");
    let result = call.result_display.as_ref().and_then(|value| shown(value, told.as_deref().unwrap_or_default()));
    let mut data = serde_json::Map::from_iter([("status".to_owned(), Value::from(status))]);
    data.extend(call.output_file.as_ref().map(|file| ("outputFile".to_owned(), Value::from(file.as_str()))));
    // The model's own list is what it called the tool with.
    let todos = call.args.as_ref().or(written).and_then(|args| args.get("todos")).filter(|_| call.name == TODOS);
    data.extend(todos.map(|todos| ("todos".to_owned(), todos.clone())));
    let response = AgentEventBody::ToolResponse {
        request_id: call.id.as_str().into(),
        name: call.name.clone(),
        display: Some(ToolDisplay { result, result_summary: call.result_summary.clone(), ..display }),
        content: told.map(|text| vec![ContentPart::text(text)]),
        data: Some(Value::Object(data)),
        is_error: status != "success",
    };
    [request, response]
}

fn shown(value: &Value, told: &str) -> Option<DisplayContent> {
    let text_of = |key: &str| value.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    if let Some(text) = value.as_str() {
        return Some(DisplayContent::Text { text: text.to_owned() });
    }
    match value.get("type").and_then(Value::as_str) {
        Some(SAME) => Some(DisplayContent::Text { text: told.to_owned() }),
        Some("terminal") => Some(DisplayContent::Terminal {
            pid: value.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()),
            exit_code: value.get("exitCode").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok()),
            ansi: text_of("ansi").unwrap_or_else(|| told.to_owned()),
        }),
        // Gemini CLI's diffs have no type.
        None => Some(DisplayContent::Diff {
            path: text_of("filePath").or_else(|| text_of("fileName"))?,
            before_text: text_of("originalContent"),
            after_text: text_of("newContent")?,
        }),
        Some(_) => serde_json::from_value(value.clone()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_diff_is_cut_to_what_changes() {
        let before: String = (0..4000).map(|i| format!("line {i}\n")).collect();
        let after = before.replace("line 2000\n", "LINE\nmore\n");
        let display = DisplayContent::Diff { path: "/a".into(), before_text: Some(before), after_text: after.clone() };
        let kept = compact(display, "").unwrap();
        assert_eq!(kept["beforeText"].as_str().unwrap().lines().count(), 7);
        assert_eq!(kept["afterText"], "line 1997\nline 1998\nline 1999\nLINE\nmore\nline 2001\nline 2002\nline 2003\n");
        let new = DisplayContent::Diff { path: "/a".into(), before_text: None, after_text: after };
        assert_eq!(compact(new, ""), None);
    }

    #[test]
    fn what_the_result_says_is_not_kept_twice() {
        let terminal = |ansi: &str| DisplayContent::Terminal { pid: None, exit_code: Some(1), ansi: ansi.into() };
        let kept = compact(terminal("out\n"), "Output: out\nExit Code: 1").unwrap();
        assert_eq!(kept, json!({"type": "terminal", "pid": null, "exitCode": 1}));
        assert_eq!(shown(&kept, "told"), Some(terminal("told")));
        let kept = compact(terminal("other"), "Output: out").unwrap();
        assert_eq!(shown(&kept, ""), Some(terminal("other")));
    }

    #[test]
    fn cutting_survives_any_two_texts() {
        for (before, after) in [("", ""), ("a", ""), ("", "a\n"), ("a\nb", "a\nb"), ("a\na\na\n", "a\n"), ("x\n", "y")]
        {
            let (old, new) = changed(before, after);
            assert!(before.contains(old) && after.contains(new), "{before:?} {after:?}");
        }
    }
}
