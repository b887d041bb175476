//! The events around a model call.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::rig::*;
use crate::rig::*;

fn specific(inner: Value) -> Value {
    json!({"hookSpecificOutput": inner})
}

#[tokio::test]
async fn before_model_rewrites_answers_and_blocks() {
    // In Python: shouts.
    let program = r#"
import json, sys
request = json.load(sys.stdin)["llm_request"]
request["messages"][-1]["content"] = request["messages"][-1]["content"].upper()
print(json.dumps({"hookSpecificOutput": {"llm_request": {"messages": request["messages"], "config": {"temperature": 0.25}}}}))
"#;
    let hooked = Setup::new(vec![vec![text("a"), stop()], vec![text("b"), stop()]])
        .start(json!({"BeforeModel": one(python(program))}))
        .await;
    hooked.rig.run("go").await;
    assert!(hooked.asked(0).ends_with("GO\n"));
    assert_eq!(hooked.rig.requests.lock().unwrap()[0].config.temperature, Some(0.25));
    hooked.rig.run("on").await;
    assert!(hooked.asked(1).contains("go") && !hooked.asked(1).contains("GO"), "the history stays as it was said");

    let own = json!({"llm_response": {"candidates": [{"content": {"role": "model", "parts": ["From the cache."]}}]}});
    let hooked = Setup::new(Vec::new()).start(json!({"BeforeModel": one(notes(specific(own.clone())))})).await;
    let all = sketch(&hooked.rig.run("go").await);
    assert!(all.contains(&"message From the cache.".to_owned()), "{all:?}");
    assert!(hooked.rig.requests.lock().unwrap().is_empty());
    assert_eq!(hooked.noted()[0]["llm_request"]["model"], "scripted-1");

    let mut output = specific(own);
    output["decision"] = "block".into();
    output["reason"] = "budget".into();
    for (output, expected) in [
        (
            output,
            vec!["message From the cache.", "error Agent execution blocked: budget fatal=false", "agent_end Completed"],
        ),
        (
            json!({"decision": "deny", "reason": "budget"}),
            vec!["error Agent execution blocked: budget fatal=false", "agent_end Completed"],
        ),
        (json!({"continue": false, "stopReason": "x"}), vec!["custom hook_message", "agent_end Completed"]),
    ] {
        let hooked = Setup::new(Vec::new()).start(json!({"BeforeModel": one(notes(output))})).await;
        let all = sketch(&hooked.rig.run("go").await);
        assert!(all.ends_with(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()), "{all:?}");
        assert!(hooked.rig.requests.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn after_model_sees_each_piece_and_may_change_or_end_it() {
    let program = r#"
import json, sys
told = json.load(sys.stdin)
open("noted", "a").write(json.dumps(told) + "\n")
text = told["llm_response"].get("text")
if text:
    parts = [text.replace("secret", "******")]
    print(json.dumps({"hookSpecificOutput": {"llm_response": {"candidates": [{"content": {"parts": parts}}]}}}))
"#;
    let answer = vec![
        piece(vec![convoke_adk::Part::text("the secret"), call("read_file", json!({"file_path": "a.txt"}))]),
        stop(),
    ];
    let hooked =
        Setup::new(vec![answer, vec![text("ok"), stop()]]).start(json!({"AfterModel": one(python(program))})).await;
    let all = sketch(&hooked.rig.run("go").await);
    assert!(all.contains(&"message the ******".to_owned()), "{all:?}");
    assert!(all.contains(&"tool_response read_file".to_owned()), "the call was not lost: {all:?}");
    let noted = hooked.noted();
    assert_eq!(noted.len(), 4);
    assert_eq!(noted[0]["llm_response"]["text"], "the secret");
    assert_eq!(noted[0]["llm_request"]["messages"].as_array().unwrap().len(), 1);
    assert_eq!(noted[1]["llm_response"]["candidates"][0]["finishReason"], "STOP");

    let answer =
        || vec![text("one "), piece(vec![call("read_file", json!({"file_path": "a.txt"}))]), text("two"), stop()];
    let deny = json!({"decision": "deny", "reason": "enough"});
    let hooked = Setup::new(vec![answer()]).start(json!({"AfterModel": one(notes(deny))})).await;
    let all = sketch(&hooked.rig.run("go").await);
    assert_eq!(all[2..], ["usage 10", "error Agent execution blocked: enough fatal=false", "agent_end Completed"]);
    assert_eq!(hooked.noted().len(), 1, "what comes after the end is not looked at");
}

#[tokio::test]
async fn tools_are_selected_by_all_hooks_together() {
    let config = |mode: &str, names: &[&str]| {
        notes(specific(json!({"toolConfig": {"mode": mode, "allowedFunctionNames": names}})))
    };
    let allowed = async |hooks: Value| {
        let hooked =
            Setup::new(vec![vec![text("a"), stop()]]).start(json!({"BeforeToolSelection": [{"hooks": hooks}]})).await;
        hooked.rig.run("go").await;
        let requests = hooked.rig.requests.lock().unwrap();
        requests[0].allowed_tools.clone()
    };
    let two = json!([config("ANY", &["replace", "no_such_tool"]), config("AUTO", &["glob"])]);
    assert_eq!(allowed(two).await, Some(vec!["glob".to_owned(), "replace".to_owned()]));
    assert_eq!(allowed(json!([config("NONE", &[]), config("ANY", &["glob"])])).await, Some(vec![]));
    assert_eq!(allowed(json!([config("AUTO", &[])])).await, None);
}
