//! Does `GET /metrics` tell what happened?

use crate::rig::{Rig, request_id};

/// The value of a series, as it is written.
fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

#[tokio::test]
async fn a_round_trip_is_counted() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut events = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&events.until("permission_request").await);
    let pending = rig.client.get("/metrics").await;
    assert_eq!(pending.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let text = pending.text();
    assert_eq!(value(&text, "convoke_permission_requests_pending"), Some("1"), "{text}");
    assert_eq!(value(&text, "convoke_prompts_running"), Some("1"));
    assert_eq!(value(&text, "convoke_event_streams"), Some("1"));

    let option = {
        let status = member.status().await;
        status["pendingInteractions"][0]["options"][0]["optionId"].as_str().unwrap().to_owned()
    };
    assert_eq!(member.vote(&request, &option).await.0, 200);
    assert_eq!(member.vote(&request, &option).await.0, 404);
    events.until("turn_complete").await;
    let text = rig.client.get("/metrics").await.text();
    for (series, expected) in [
        ("convoke_sessions", "1"),
        ("convoke_clients", "1"),
        ("convoke_agent_up", "1"),
        ("convoke_permission_requests_pending", "0"),
        ("convoke_permission_requests_total{policy=\"first-responder\"}", "1"),
        ("convoke_permission_votes_total{outcome=\"resolved\"}", "1"),
        ("convoke_permission_votes_total{outcome=\"already_resolved\"}", "1"),
        ("convoke_permission_resolutions_total{resolution=\"option\"}", "1"),
        ("convoke_permission_decision_seconds_count", "1"),
        ("convoke_turns_total", "1"),
        ("convoke_agent_starts_total", "1"),
        ("convoke_http_requests_total{route=\"POST /session\",status=\"200\"}", "1"),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in\n{text}");
    }
    assert!(value(&text, "convoke_frames_sent_total").is_some_and(|count| count != "0"), "{text}");
    let resident = value(&text, "convoke_resident_memory_bytes").and_then(|bytes| bytes.parse::<u64>().ok());
    assert!(resident.is_some_and(|bytes| bytes > 1024 * 1024), "{resident:?}");
}
