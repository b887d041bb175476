//! Whatever a client sends as a vote: it is refused, or it is exactly one of the two forms.

use std::path::Path;

use super::*;

fn target(bytes: &[u8]) {
    let Ok(Value::Object(fields)) = serde_json::from_slice(bytes) else { return };
    let outcome = fields.get("outcome").and_then(|outcome| outcome.get("outcome")).and_then(Value::as_str);
    match choice(&fields) {
        Ok(VoteChoice::Cancelled) => assert_eq!(outcome, Some("cancelled")),
        Ok(VoteChoice::Selected { option_id, extras }) => {
            assert_eq!(outcome, Some("selected"));
            assert!(!option_id.is_empty(), "an option without a name");
            assert_eq!(fields["outcome"]["optionId"], Value::String(option_id));
            let known = ["answers", "expectedPlanExecutionMode"];
            for (name, value) in extras.iter().filter_map(Value::as_object).flatten() {
                assert!(known.contains(&name.as_str()), "{name} was passed on");
                assert_eq!(Some(value), fields.get(name));
            }
        }
        Err(_) => {}
    }
}

#[test]
fn votes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/vote");
    let words =
        ["\"outcome\":", "\"selected\"", "\"cancelled\"", "\"optionId\":", "\"\"", "{}", "null", "\"answers\":", ","];
    convoke_testkit::fuzz(&corpus, &words, target);
}
