//! Several agents in one daemon, by name.

use std::collections::BTreeMap;

use convoke_daemon::NamedAgents;
use convoke_testkit::Script;
use serde_json::json;

use crate::rig::{Rig, in_memory, process};

async fn rig() -> Rig {
    Rig::with(|options| {
        let rich = in_memory(Script { models: true, ..Script::default() });
        let broken = process(&["--exit-at-start=5"]);
        let others = BTreeMap::from([("rich".to_owned(), rich), ("broken".to_owned(), broken)]);
        options.agents = NamedAgents { default_name: "plain".to_owned(), others };
    })
    .await
}

#[tokio::test]
async fn a_session_runs_on_the_agent_it_asks_for() {
    let rig = rig().await;
    let capabilities = rig.client.get("/capabilities").await.json();
    assert_eq!(capabilities["agents"], json!(["broken", "plain", "rich"]));
    assert_eq!(capabilities["defaultAgent"], "plain");
    let create = async |agent: &str| {
        let body = json!({"sessionScope": "thread", "agent": agent});
        rig.client.post("/session", "", body).await.json()
    };
    for (agent, model) in [("plain", None), ("rich", Some(&json!("small")))] {
        let made = create(agent).await;
        assert_eq!(made["agent"], agent);
        let path = format!("/session/{}/context", made["sessionId"].as_str().unwrap());
        let context = rig.client.get(&path).await.json();
        assert_eq!(context["state"].pointer("/models/currentModelId"), model);
    }
    // One that does not start costs only those who asked for it.
    assert_eq!(create("broken").await["code"], "acp_channel_unavailable");
    let shared = rig.join("single").await;
    let joined = rig.client.post("/session", "", json!({"agent": "rich"})).await.json();
    assert_eq!((&joined["sessionId"], &joined["agent"]), (&json!(shared.session), &json!("plain")));
}

#[tokio::test]
async fn a_name_that_is_none_is_refused_with_those_that_are() {
    let rig = rig().await;
    for bad in [json!("nope"), json!(""), json!(5)] {
        let refused = rig.client.post("/session", "", json!({"agent": bad})).await;
        let body = refused.json();
        assert_eq!((refused.status, &body["code"]), (400, &json!("unknown_agent")));
        assert_eq!(body["allowed"], json!(["broken", "plain", "rich"]));
    }
    assert_eq!(rig.client.post("/session", "", json!({"agent": null})).await.status, 200);
}
