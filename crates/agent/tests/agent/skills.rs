//! Skills in a whole session: activated by the model, which then may read what lies beside them.

use std::sync::Arc;

use convoke_agent::NoLifecycleHooks;
use convoke_tools::Mode;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::rig::*;

#[tokio::test]
async fn a_skill_is_activated_and_its_resources_can_be_read_from_then_on() {
    let skills = tempfile::tempdir().unwrap();
    let folder = skills.path().canonicalize().unwrap().join("release");
    std::fs::create_dir(&folder).unwrap();
    let skill = "---\nname: release\ndescription: how a release is made\n---\nRead steps.txt first.\n";
    std::fs::write(folder.join("SKILL.md"), skill).unwrap();
    std::fs::write(folder.join("steps.txt"), "tag, then push\n").unwrap();
    let read = || vec![piece(vec![call("read_file", json!({"file_path": folder.join("steps.txt")}))]), stop()];
    let activate = vec![piece(vec![call("activate_skill", json!({"name": "release"}))]), stop()];
    let answers = vec![read(), activate, read(), vec![text("done"), stop()]];
    let (mut options, requests) = options(answers, Arc::new(NoLifecycleHooks));
    options.policy.mode = Mode::Yolo;
    options.tools.skill_folders = vec![skills.path().to_owned()];
    let rig = Rig::with_options((options, requests)).await;
    let events = rig.run("release it").await;
    let told: Vec<String> = events.iter().map(|event| told(event.as_ref())).filter(|told| !told.is_empty()).collect();
    let calls: Vec<String> = sketch(&events).into_iter().filter(|line| line.starts_with("tool_response")).collect();
    let expected = ["tool_response read_file error", "tool_response activate_skill", "tool_response read_file"];
    assert_eq!(calls, expected, "{told:?}");
    assert!(told[1].contains("Read steps.txt first.") && told[1].contains("steps.txt"), "{}", told[1]);
    assert!(told[2].contains("tag, then push"), "{}", told[2]);
    // The model hears of a skill before it is activated, and of its instructions only then.
    let first = rig.requests.lock().unwrap()[0].clone();
    let declared = first.tools.get("activate_skill").unwrap();
    assert!(declared.description.contains("how a release is made"), "{}", declared.description);
    assert!(!declared.description.contains("Read steps.txt"));
}
