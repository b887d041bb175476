//! What a session works with, as clients see and change it: models, commands, usage.

use convoke_testkit::Script;
use serde_json::{Value, json};

use crate::rig::{Rig, in_memory};

fn offering(script: Script) -> impl FnOnce(&mut convoke_daemon::DaemonOptions) {
    move |options| options.agent = in_memory(script)
}

fn with_models() -> Script {
    Script { models: true, ..Script::default() }
}

async fn context(rig: &Rig, session: &str) -> Value {
    let answer = rig.client.get(&format!("/session/{session}/context")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn the_context_is_what_the_agent_told() {
    let rig = Rig::with(offering(with_models())).await;
    let member = rig.join("single").await;
    let seen = context(&rig, &member.session).await;
    assert_eq!((&seen["v"], &seen["sessionId"]), (&json!(1), &json!(member.session)));
    assert_eq!(seen["workspaceCwd"], json!(rig.workspace));
    assert_eq!(seen["recovery"], json!({"kind": "clean", "canContinue": false}));
    assert_eq!(seen["state"]["models"]["currentModelId"], "small");
    assert_eq!(seen["state"]["models"]["availableModels"][1]["modelId"], "large");
    assert_eq!(seen["state"]["modes"]["currentModeId"], "default");
    assert_eq!(seen.get("usage"), None);
    let mut stream = member.events().await;
    member.prompt("usage please").await;
    stream.until("turn_complete").await;
    assert_eq!(context(&rig, &member.session).await["usage"], json!({"used": 1200, "size": 200_000}));
    let changed = rig.client.post(&member.path("approval-mode"), &member.id, json!({"mode": "yolo"})).await;
    assert_eq!(changed.status, 200);
    assert_eq!(context(&rig, &member.session).await["state"]["modes"]["currentModeId"], "yolo");
    for part in ["load", "resume"] {
        let loaded = rig.client.post(&member.path(part), "", json!({})).await.json();
        assert_eq!(loaded["state"]["modes"]["currentModeId"], "yolo", "{part}");
        assert_eq!(loaded["state"]["models"]["currentModelId"], "small", "{part}");
    }
    assert_eq!(rig.client.get("/session/nope/context").await.json()["code"], "session_not_found");
    let features = rig.client.get("/capabilities").await.json()["features"].clone();
    for tag in ["session_context", "session_supported_commands", "session_set_model"] {
        assert!(features.as_array().unwrap().contains(&json!(tag)), "{tag}");
    }
}

#[tokio::test]
async fn commands_are_those_announced_last() {
    let rig = Rig::with(offering(with_models())).await;
    let member = rig.join("single").await;
    let seen = rig.client.get(&member.path("supported-commands")).await.json();
    let names: Vec<_> = seen["availableCommands"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(
        (&seen["v"], &seen["sessionId"], names.as_slice()),
        (&json!(1), &json!(member.session), [json!("init"), json!("review")].as_slice())
    );
    assert_eq!(seen["availableSkills"], json!(["tidy"]));
    let quiet = Rig::new().await;
    let member = quiet.join("single").await;
    let seen = quiet.client.get(&member.path("supported-commands")).await.json();
    assert_eq!((&seen["availableCommands"], &seen["availableSkills"]), (&json!([]), &json!([])));
    assert_eq!(quiet.client.get("/session/nope/supported-commands").await.status, 404);
}

#[tokio::test]
async fn a_model_is_switched_by_whichever_call_the_agent_takes() {
    for script in [with_models(), Script { config_options: true, ..Script::default() }] {
        let rig = Rig::with(offering(script)).await;
        let member = rig.join("single").await;
        let mut stream = member.events().await;
        let set = async |model: &str| {
            let answer = rig.client.post(&member.path("model"), &member.id, json!({"modelId": model})).await;
            (answer.status, answer.json())
        };
        assert_eq!(set("large").await.0, 200);
        let event = stream.until("model_switched").await;
        assert_eq!(event["data"], json!({"sessionId": member.session, "modelId": "large"}));
        assert_eq!(event["originatorClientId"], json!(member.id));
        let state = context(&rig, &member.session).await["state"].clone();
        let current = [state.pointer("/models/currentModelId"), state.pointer("/configOptions/0/currentValue")];
        assert_eq!(current.into_iter().flatten().collect::<Vec<_>>(), [&json!("large")]);
        // As recorded from the peer.
        let details = "Model 'nope' not found for authType 'openai'";
        let refused = json!({"error": "Internal error", "code": -32603, "data": {"details": details}});
        assert_eq!(set("nope").await, (500, refused));
        let event = stream.until("model_switch_failed").await;
        assert_eq!((&event["data"]["requestedModelId"], &event["data"]["error"]), (&json!("nope"), &json!(details)));
        assert_eq!(event["originatorClientId"], json!(member.id));
        let mut snapshot = member.client.events(&member.path("events?snapshot=1"), &[]).await;
        assert_eq!(snapshot.until("session_snapshot").await["data"]["currentModelId"], "large");
    }
}

#[tokio::test]
async fn a_wish_for_a_model_is_checked_before_the_agent_hears_it() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    for bad in [json!({}), json!({"modelId": " "}), json!({"modelId": 5}), json!({"modelId": "x".repeat(513)})] {
        let refused = rig.client.post(&member.path("model"), &member.id, bad).await;
        assert_eq!((refused.status, refused.json().get("code")), (400, None));
    }
    let model = json!({"modelId": "large"});
    let refused = rig.client.post(&member.path("model"), "mallory", model.clone()).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_client_id")));
    assert_eq!(rig.client.post("/session/nope/model", "", model.clone()).await.status, 404);
    // This agent offers no models.
    let refused = rig.client.post(&member.path("model"), &member.id, model).await;
    assert_eq!((refused.status, &refused.json()["code"]), (500, &json!(-32601)));
    stream.until("model_switch_failed").await;
}

#[tokio::test]
async fn a_session_may_start_with_a_model() {
    let rig = Rig::with(offering(with_models())).await;
    let create = async |model: &str| {
        let body = json!({"sessionScope": "thread", "modelServiceId": model});
        rig.client.post("/session", "", body).await.json()
    };
    let made = create("large").await;
    assert_eq!(made["modelApplied"], true);
    let session = made["sessionId"].as_str().unwrap();
    assert_eq!(context(&rig, session).await["state"]["models"]["currentModelId"], "large");
    // A session with another model is better than none; who follows it is told.
    let made = create("nope").await;
    assert_eq!(made["modelApplied"], false);
    let path = format!("/session/{}/events", made["sessionId"].as_str().unwrap());
    let mut stream = rig.client.events(&path, &[("Last-Event-ID", "0")]).await;
    assert_eq!(stream.until("model_switch_failed").await["data"]["requestedModelId"], "nope");
    let plain = rig.client.post("/session", "", json!({"sessionScope": "thread"})).await.json();
    assert_eq!(plain.get("modelApplied"), None);
}

#[tokio::test]
async fn an_agent_that_can_not_go_back_is_told_of_as_such() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let code = |answer: &crate::client::Response| answer.json()["code"].clone();
    let refused = rig.client.get(&member.path("rewind/snapshots")).await;
    assert_eq!((refused.status, code(&refused)), (400, json!("rewind_unsupported")));
    let refused = rig.client.post(&member.path("rewind"), &member.id, json!({"promptId": "x"})).await;
    assert_eq!((refused.status, code(&refused)), (400, json!("rewind_unsupported")));
    for (body, expected) in [
        (json!({}), "missing_prompt_id"),
        (json!({"promptId": ""}), "missing_prompt_id"),
        (json!({"promptId": "x", "rewindFiles": 1}), "invalid_rewind_files_flag"),
        (json!({"promptId": "x", "what": "all"}), "invalid_rewind_what"),
        (json!({"promptId": "x", "force": "yes"}), "invalid_force_flag"),
    ] {
        let refused = rig.client.post(&member.path("rewind"), &member.id, body).await;
        assert_eq!((refused.status, code(&refused)), (400, json!(expected)));
    }
    let stranger = rig.client.post(&member.path("rewind"), "mallory", json!({"promptId": "x"})).await;
    assert_eq!((stranger.status, code(&stranger)), (400, json!("invalid_client_id")));
    let nowhere = rig.client.get("/session/nope/rewind/snapshots").await;
    assert_eq!((nowhere.status, code(&nowhere)), (404, json!("session_not_found")));
}
