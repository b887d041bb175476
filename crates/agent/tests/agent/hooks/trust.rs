//! Commands that came with a folder: who lets them run?

use convoke_agent::HookSource;
use convoke_protocol::{PermissionContent, PermissionOutcome};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::rig::*;
use crate::rig::*;

fn of_project() -> Setup {
    let mut setup = Setup::new(vec![vec![text("a"), stop()], vec![text("b"), stop()]]);
    setup.source = HookSource::Project;
    setup
}

#[tokio::test]
async fn a_project_s_commands_are_asked_about_once() {
    for (option, runs, remembered) in [("proceed_always", true, 1), ("proceed_once", true, 0), ("cancel", false, 0)] {
        let mut hooked = of_project().start(json!({"BeforeAgent": one(command("echo > ran"))})).await;
        let events = hooked.rig.send("go").await.unwrap();
        let (request, answer) = hooked.rig.questions.recv().await.unwrap();
        assert_eq!(request.content, [PermissionContent::Text("BeforeAgent: echo > ran".into())]);
        assert!(!hooked.dir().join("ran").exists());
        answer.send(PermissionOutcome::Selected { option_id: option.into() }).unwrap();
        let events: Vec<_> = events.collect().await;
        assert_eq!(hooked.dir().join("ran").exists(), runs, "{option}");
        assert_eq!(messages(&events).len(), usize::from(!runs));
        assert_eq!(hooked.trust.0.lock().unwrap().len(), remembered);
        // Not before each prompt.
        assert_eq!(sketch(&hooked.rig.run("on").await).last().unwrap(), "agent_end Completed");
        assert!(hooked.rig.questions.try_recv().is_err());
    }
}

#[tokio::test]
async fn nobody_to_ask_means_no_unless_it_is_known() {
    let hooks = json!({"BeforeAgent": one(command("echo > ran"))});
    let mut setup = of_project();
    setup.interactive = false;
    let hooked = setup.start(hooks.clone()).await;
    let said = messages(&hooked.rig.run("go").await);
    assert!(said[0].contains("echo > ran") && said[0].contains("convoke hooks trust"), "{said:?}");
    assert!(!hooked.dir().join("ran").exists());

    let mut setup = of_project();
    setup.interactive = false;
    let layers = [convoke_agent::HookLayer { source: HookSource::Project, hooks: hooks.clone(), config: json!(null) }];
    let digest = convoke_agent::HookSettings::read(&layers).hooks[0].digest();
    setup.trust.0.lock().unwrap().push(digest);
    let hooked = setup.start(hooks).await;
    assert_eq!(messages(&hooked.rig.run("go").await), [""; 0]);
    assert!(hooked.dir().join("ran").exists());
}
