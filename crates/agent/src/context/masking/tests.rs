use super::*;
use crate::context::{Meter, NoHistoryListener};
use convoke_adk::{FunctionCall, FunctionResponse, Part, Role, Session};
use proptest::prelude::*;
use serde_json::json;

fn masker(folder: &std::path::Path, protection: u64, least: u64) -> Masker {
    let history = History { session_id: "s".into(), meter: Meter::default(), listener: Arc::new(NoHistoryListener) };
    let options =
        MaskingOptions { protection_tokens: protection, min_prunable_tokens: least, protect_latest_turn: true };
    Masker::new(history, folder.to_owned(), options)
}

fn response(id: &str, tool: &str, output: impl Into<Value>) -> Part {
    let call = FunctionCall { id: Some(id.into()), name: tool.into(), args: json!({}) };
    Part::response(&FunctionResponse::output(&call, output))
}

fn answered(id: &str, invocation: &str, parts: Vec<Part>) -> Event {
    Event {
        id: id.into(),
        invocation_id: invocation.into(),
        content: Some(Arc::new(Content { role: Role::User, parts })),
        ..Event::default()
    }
}

fn live(events: Vec<Event>) -> LiveSession {
    LiveSession::new(Session { events, ..Session::default() })
}

fn bodies(session: &LiveSession) -> Vec<String> {
    session.with(|session| {
        let contents = session.events.iter().filter_map(|event| event.content.clone());
        contents.flat_map(|content| content.function_responses()).map(|r| r.response["output"].to_string()).collect()
    })
}

fn numbered(lines: usize) -> String {
    (1..=lines).map(|n| format!("line number {n}\n")).collect()
}

#[tokio::test]
async fn old_output_goes_to_a_file_and_can_be_found() {
    let dir = tempfile::tempdir().unwrap();
    let masker = masker(&dir.path().join("session-s"), 100, 100);
    let whole = numbered(400);
    let session = live(vec![
        answered("1", "old", vec![response("c1", "run_shell_command", whole.as_str())]),
        answered("2", "old", vec![response("c2", "ask_user", whole.as_str())]),
        answered("3", "old", vec![response("c3", "grep_search", "x".repeat(500))]),
        answered("4", "now", vec![response("c4", "run_shell_command", whole.as_str())]),
    ]);
    let outcome = masker.mask(&session, Some("now")).await;
    assert_eq!(outcome.masked, 1);
    assert!(outcome.tokens_after < outcome.tokens_before);
    let all = bodies(&session);
    let path = dir.path().join("session-s/run_shell_command_c1.txt");
    assert!(all[0].contains(&format!("Full output available at: {}", path.display())), "{}", all[0]);
    assert!(all[0].contains("(400 lines, 6292 bytes, sha256 "), "{}", all[0]);
    assert!(all[0].contains("... [380 lines omitted] ..."), "{}", all[0]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    // Exempt, protected by its age, and of this very invocation.
    assert!(all[1..].iter().all(|body| !body.contains("masked")), "{all:?}");
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    // Again: nothing is left to do, and nothing is counted.
    let counted = masker.history.meter.counted();
    assert_eq!(masker.mask(&session, Some("now")).await, MaskingOutcome::default());
    assert_eq!(masker.history.meter.counted(), counted + 1, "the masked part alone");
    assert_eq!(masker.mask(&session, Some("now")).await, MaskingOutcome::default());
    assert_eq!(masker.history.meter.counted(), counted + 1);
}

#[tokio::test]
async fn nothing_is_written_below_the_gate() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("outputs");
    let session = live(vec![answered("1", "old", vec![response("c", "t", numbered(400))])]);
    assert_eq!(masker(&folder, 100, 10_000).mask(&session, None).await, MaskingOutcome::default());
    assert!(!folder.exists());
}

#[tokio::test]
async fn output_that_can_not_be_kept_stays() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("file");
    std::fs::write(&folder, "").unwrap();
    let session = live(vec![answered("1", "old", vec![response("c", "t", numbered(400))])]);
    let before = bodies(&session);
    assert_eq!(masker(&folder, 100, 100).mask(&session, None).await.masked, 0);
    assert_eq!(bodies(&session), before);
}

#[tokio::test]
async fn parts_keep_what_is_beside_their_response() {
    let dir = tempfile::tempdir().unwrap();
    let part: Part = serde_json::from_value(json!({
        "functionResponse": {"id": "c", "name": "t", "response": {"output": numbered(400)}, "parts": [1], "x": 2},
        "thoughtSignature": "kept",
    }))
    .unwrap();
    let session = live(vec![answered("1", "old", vec![Part::text("beside"), part])]);
    let before = session.with(|s| s.events[0].content.clone().unwrap());
    assert_eq!(masker(dir.path(), 100, 100).mask(&session, None).await.masked, 1);
    let after = session.with(|s| s.events[0].content.clone().unwrap());
    assert!(before.function_responses()[0].response["output"].as_str().unwrap().starts_with("line number 1"));
    assert_eq!(after.parts[0], Part::text("beside"));
    let raw = after.parts[1].raw();
    assert_eq!((&raw["thoughtSignature"], &raw["functionResponse"]["x"]), (&json!("kept"), &json!(2)));
    assert_eq!(raw["functionResponse"]["id"], "c");
}

/// Where things happen to the session while files are written.
#[tokio::test]
async fn a_part_is_found_wherever_it_has_moved() {
    let dir = tempfile::tempdir().unwrap();
    let masker = masker(dir.path(), 10, 10);
    let twice = vec![response("c", "t", numbered(300)), response("c", "t", numbered(400))];
    let events = vec![answered("0", "old", vec![]), answered("1", "old", twice), answered("2", "old", vec![])];
    let selected = masker.select(&events, None, 10, 10);
    let changes = apply::changes(selected, dir.path()).made;
    let mut moved = vec![answered("7", "old", vec![]), answered("8", "old", vec![]), events[1].clone()];
    let applied: Vec<bool> = changes.iter().map(|change| apply::write_back(&mut moved, change)).collect();
    assert_eq!(applied, [true, true]);
    let responses = moved[2].content.as_ref().unwrap().function_responses();
    assert!(responses[0].response["output"].as_str().unwrap().contains("(300 lines"), "{responses:?}");
    assert!(responses[1].response["output"].as_str().unwrap().contains("(400 lines"), "{responses:?}");
    assert!(!apply::write_back(&mut moved, &changes[0]), "it is masked already");
    assert!(!apply::write_back(&mut [], &changes[0]), "it is gone");
}

fn any_history() -> impl Strategy<Value = Vec<Event>> {
    let tool = prop::sample::select(vec!["run_shell_command", "read_file", "ask_user", "mcp_x"]);
    // Ids come again, as with providers that count within an answer.
    let part = ("[abc]", tool, 0..400_usize).prop_map(|(id, tool, lines)| response(&id, tool, numbered(lines)));
    let parts = prop::collection::vec(part, 0..4);
    let event = (parts, prop::sample::select(vec!["old", "now"]));
    prop::collection::vec(event, 0..12).prop_map(|events| {
        let numbered = events.into_iter().enumerate();
        numbered.map(|(n, (parts, invocation))| answered(&format!("e{n}"), invocation, parts)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_history_is_masked_once_and_never_where_it_is_protected(events in any_history()) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let masker = masker(dir.path(), 2_000, 1_000);
        let session = live(events.clone());
        let outcome = runtime.block_on(masker.mask(&session, Some("now")));
        let after = session.with(|session| session.events.clone());
        prop_assert_eq!(after.len(), events.len());
        let mut masked = 0;
        for (before, after) in events.iter().zip(&after) {
            let (old, new) = (before.content.as_ref().unwrap(), after.content.as_ref().unwrap());
            prop_assert_eq!(old.parts.len(), new.parts.len());
            for (old, new) in old.function_responses().iter().zip(new.function_responses()) {
                prop_assert_eq!((&old.id, &old.name), (&new.id, &new.name));
                if old.response == new.response {
                    continue;
                }
                masked += 1;
                prop_assert!(before.invocation_id == "old" && old.name != "ask_user");
                // What the mask points to is what was there.
                let told = new.response["output"].as_str().unwrap();
                let path = told.lines().find_map(|line| line.strip_prefix("Output too large. Full output available at: "));
                let kept = std::fs::read_to_string(path.unwrap()).unwrap();
                prop_assert_eq!(Some(kept.as_str()), old.response["output"].as_str());
            }
        }
        prop_assert_eq!(masked, outcome.masked);
        prop_assert!(outcome.prunable_tokens == 0 || outcome.prunable_tokens >= 1_000);
        // Idempotent: what is left does not fill the gate again.
        let again = runtime.block_on(masker.mask(&session, Some("now")));
        prop_assert_eq!(again.masked, 0);
        prop_assert_eq!(session.with(|session| session.events.clone()), after);
    }
}
