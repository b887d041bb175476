//! Do the daemon's answers have the shapes that `GET /openapi.json` promises?

use serde_json::{Value, json};

use crate::client::{Extra, Response};
use crate::rig::{Rig, request_id};

/// The document, and a check of answers against it.
struct Promise(Value);

impl Promise {
    /// The answer has a status that the operation names, and the shape that goes with it.
    fn holds(&self, method: &str, path: &str, answer: &Response) {
        let operation = &self.0["paths"][path][method];
        let response = &operation["responses"][answer.status.to_string()];
        assert!(response.is_object(), "{method} {path} promises no {}: {}", answer.status, answer.text());
        let schema = &response["content"]["application/json"]["schema"];
        if schema.is_null() {
            assert!(answer.body.is_empty(), "{method} {path}: {}", answer.text());
        } else {
            self.fits(schema, &answer.json());
        }
    }

    fn fits(&self, schema: &Value, value: &Value) {
        let whole = json!({"allOf": [schema], "components": self.0["components"]});
        let validator = jsonschema::validator_for(&whole).expect("a schema");
        let errors: Vec<String> =
            validator.iter_errors(value).map(|error| format!("{} at {}", error, error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:?} in {value}");
    }
}

#[tokio::test]
async fn answers_fit_the_document() {
    let rig = Rig::new().await;
    let promise = Promise(rig.client.get("/openapi.json").await.json());
    assert_eq!(promise.0["openapi"], "3.1.0");
    for path in ["/health", "/health?deep=1", "/capabilities", "/daemon/status", "/daemon/status?detail=full", "/audit"]
    {
        let answer = rig.client.get(path).await;
        promise.holds("get", path.split('?').next().unwrap(), &answer);
    }
    promise.holds("get", "/daemon/status", &rig.client.get("/daemon/status?detail=x").await);

    let created = rig.client.post("/session", "", json!({"sessionScope": "single"})).await;
    promise.holds("post", "/session", &created);
    promise.holds("post", "/session", &rig.client.post("/session", "", json!({"sessionScope": "x"})).await);
    let member = rig.join("single").await;
    let mut events = member.events_after("0").await;
    for (path, body) in [("load", json!({})), ("resume", json!({}))] {
        let answer = rig.client.post(&member.path(path), "", body).await;
        promise.holds("post", &format!("/session/{{id}}/{path}"), &answer);
    }
    let prompt = json!({"prompt": [{"type": "text", "text": "approval please"}]});
    let accepted = rig.client.post(&member.path("prompt"), &member.id, prompt).await;
    promise.holds("post", "/session/{id}/prompt", &accepted);
    let refused = rig.client.post(&member.path("prompt"), &member.id, json!({})).await;
    promise.holds("post", "/session/{id}/prompt", &refused);
    let asked = events.until("permission_request").await;
    promise.fits(&json!({"$ref": "#/components/schemas/Event"}), &asked);

    for path in ["status", "context", "supported-commands", "pending-prompts"] {
        promise.holds("get", &format!("/session/{{id}}/{path}"), &rig.client.get(&member.path(path)).await);
        let gone = rig.client.get(&format!("/session/nope/{path}")).await;
        promise.holds("get", &format!("/session/{{id}}/{path}"), &gone);
    }
    for turn in ["current", accepted.json()["promptId"].as_str().unwrap(), "nope"] {
        let answer = rig.client.get(&member.path(&format!("turns/{turn}"))).await;
        promise.holds("get", "/session/{id}/turns/{promptId}", &answer);
    }
    let sessions = format!("/workspace/{}/sessions", rig.workspace.display().to_string().replace('/', "%2F"));
    promise.holds("get", "/workspace/{id}/sessions", &rig.client.get(&sessions).await);

    let vote = |option: &str| json!({"outcome": {"outcome": "selected", "optionId": option}});
    let path = member.path(&format!("permission/{}", request_id(&asked)));
    for (body, client) in [
        (json!({}), member.id.as_str()),
        (vote("nope"), &member.id),
        (vote("proceed_once"), "client_stranger"),
        (vote("proceed_once"), &member.id),
        (vote("proceed_once"), &member.id),
    ] {
        let answer = rig.client.post(&path, client, body).await;
        promise.holds("post", "/session/{id}/permission/{requestId}", &answer);
    }
    let legacy = rig.client.post("/permission/nope", "", vote("proceed_once")).await;
    promise.holds("post", "/permission/{requestId}", &legacy);
    let complete = events.until("turn_complete").await;
    promise.fits(&json!({"$ref": "#/components/schemas/Event"}), &complete);

    for (route, body) in [
        ("heartbeat", json!({})),
        ("approval-mode", json!({"mode": "auto-edit"})),
        ("approval-mode", json!({"mode": "x"})),
        ("model", json!({"modelId": "no-such-model"})),
        ("cancel", json!({})),
        ("detach", json!({})),
    ] {
        let answer = rig.client.post(&member.path(route), &member.id, body).await;
        promise.holds("post", &format!("/session/{{id}}/{route}"), &answer);
    }
    let named = rig.client.call("PATCH", &member.path("metadata"), "", json!({"displayName": "a name"})).await;
    promise.holds("patch", "/session/{id}/metadata", &named);
    for _ in 0..2 {
        let closed = rig.client.send("DELETE", &format!("/session/{}", member.session), Extra::default()).await;
        promise.holds("delete", "/session/{id}", &closed);
    }
}
