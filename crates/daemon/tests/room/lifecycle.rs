//! Prompts, members that come and go, the daemon's end.

use std::sync::Arc;

use convoke_daemon::{AgentSource, AgentStreams, ExitOutcome};
use convoke_testkit::{Script, run_scripted_agent};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::client::{Next, soon};
use crate::rig::{Rig, in_memory, process, request_id};

#[tokio::test]
async fn a_second_prompt_waits_its_turn() {
    let rig = Rig::new().await;
    let (alice, bob) = (rig.join("single").await, rig.join("single").await);
    let mut stream = alice.events().await;
    let first = alice.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    let second = bob.prompt("echo hello").await;
    assert_eq!(stream.until("pending_prompt_added").await["data"]["promptId"], json!(second));
    let pending = rig.client.get(&alice.path("pending-prompts")).await.json();
    let states: Vec<_> = pending["pendingPrompts"].as_array().unwrap().iter().map(|p| p["state"].clone()).collect();
    assert_eq!(states, ["running", "queued"]);
    alice.vote(&request, "proceed_once").await;
    assert_eq!(stream.until("turn_complete").await["data"]["promptId"], json!(first));
    assert_eq!(stream.until("pending_prompt_started").await["data"]["promptId"], json!(second));
    assert_eq!(stream.until("turn_complete").await["data"]["promptId"], json!(second));
    let turn = rig.client.get(&alice.path(&format!("turns/{second}"))).await.json();
    assert_eq!((&turn["state"], &turn["stopReason"]), (&json!("completed"), &json!("end_turn")));
    assert_eq!(rig.client.get(&alice.path("turns/current")).await.json()["state"], "idle");
    assert_eq!(rig.client.get(&alice.path("turns/nope")).await.json()["code"], "prompt_not_found");
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_end_its_turn() {
    let rig = Rig::new().await;
    let (alice, bob) = (rig.join("single").await, rig.join("single").await);
    let mut stream = bob.events().await;
    let mut gone = alice.events().await;
    alice.prompt("approval please").await;
    gone.until("permission_request").await;
    drop(gone);
    rig.client.post(&alice.path("detach"), &alice.id, json!({})).await;
    let request = request_id(&stream.until("permission_request").await);
    assert_eq!(bob.vote(&request, "proceed_once").await.0, 200);
    assert_eq!(stream.until("turn_complete").await["data"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn cancel_reaches_the_agent() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("hang").await;
    stream.until("session_update").await;
    let cancelled = rig.client.post(&member.path("cancel"), &member.id, json!({})).await;
    assert_eq!(cancelled.status, 204);
    stream.until("prompt_cancelled").await;
    assert_eq!(stream.until("turn_complete").await["data"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn closing_ends_the_stream_for_everyone() {
    let rig = Rig::new().await;
    let (alice, bob) = (rig.join("single").await, rig.join("single").await);
    let mut stream = bob.events().await;
    alice.prompt("approval please").await;
    stream.until("permission_request").await;
    let closed = rig.client.call("DELETE", &format!("/session/{}", alice.session), &alice.id, json!({})).await;
    assert_eq!(closed.status, 204);
    let (events, end) = stream.rest().await;
    let kinds: Vec<_> =
        events.iter().map(|event| event.kind.as_str()).filter(|kind| *kind != "session_update").collect();
    assert_eq!(end, Next::End);
    assert_eq!(kinds.first(), Some(&"permission_resolved"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"session_closed"), "{kinds:?}");
    assert_eq!(rig.client.get(&alice.path("status")).await.status, 404);
}

#[tokio::test]
async fn the_list_has_pages() {
    let rig = Rig::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(rig.join("thread").await.session);
    }
    let base = format!("/workspace/{}/sessions", rig.workspace.display().to_string().replace('/', "%2F"));
    let page = rig.client.get(&format!("{base}?size=2")).await.json();
    let seen = |page: &serde_json::Value| {
        let sessions = page["sessions"].as_array().unwrap();
        sessions.iter().map(|s| s["sessionId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut all = seen(&page);
    assert_eq!(all.len(), 2);
    let rest = rig.client.get(&format!("{base}?size=2&cursor={}", page["nextCursor"].as_str().unwrap())).await.json();
    assert_eq!(rest.get("nextCursor"), None);
    all.extend(seen(&rest));
    all.sort();
    ids.sort();
    assert_eq!(all, ids);
    let id = rig.client.get("/capabilities").await.json()["workspaces"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(seen(&rig.client.get(&format!("/workspace/{id}/sessions")).await.json()).len(), 3);
}

#[tokio::test]
async fn a_stopping_daemon_tells_everyone_and_refuses_at_once() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    stream.until("permission_request").await;
    rig.shutdown.cancel();
    let (events, end) = stream.rest().await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(end, Next::End);
    let resolved = kinds.iter().position(|kind| *kind == "permission_resolved");
    let died = kinds.iter().position(|kind| *kind == "session_died");
    assert!(resolved.is_some() && resolved < died, "{kinds:?}");
    assert_eq!(events.last().unwrap().frame["data"]["reason"], "daemon_shutdown");
    let address = rig.client.address;
    assert_eq!(rig.ended().await, ExitOutcome::Clean);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn an_agent_process_ends_with_the_daemon() {
    let rig = Rig::with(|options| options.agent = process(&[])).await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("hang").await;
    stream.until("session_update").await;
    rig.shutdown.cancel();
    assert_eq!(rig.ended().await, ExitOutcome::Clean);
}

#[tokio::test]
async fn an_agent_that_will_not_leave_is_killed_and_told_of() {
    let rig = Rig::with(|options| options.agent = process(&["--ignore-eof"])).await;
    rig.join("single").await;
    rig.shutdown.cancel();
    assert_eq!(rig.ended().await, ExitOutcome::Forced);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let rig = Rig::with(|options| {
        options.agent = in_memory(Script { ignore_eof: true, ..Script::default() });
    })
    .await;
    rig.join("single").await;
    rig.shutdown.cancel();
    rig.kill.cancel();
    assert_eq!(rig.ended().await, ExitOutcome::Forced);
}

/// Callers that give up on a slow start leave neither clients nor sessions behind.
#[tokio::test]
async fn callers_that_hang_up_during_a_start_are_detached() {
    let release = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&release);
    let agent = AgentSource::Streams(Arc::new(move || {
        let (input, agent_input) = tokio::io::duplex(64 * 1024);
        let (agent_output, output) = tokio::io::duplex(64 * 1024);
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            let _open = gate.acquire().await;
            run_scripted_agent(Script::default(), agent_input, agent_output).await
        });
        AgentStreams { output: Box::new(output), input: Box::new(input) }
    }));
    let rig = Rig::with(|options| options.agent = agent).await;
    let counts = async |key: &str| rig.client.get("/daemon/status").await.json()["runtime"]["sessions"][key].clone();
    let mut sockets = Vec::new();
    for _ in 0..5 {
        let mut socket = TcpStream::connect(rig.client.address).await.unwrap();
        let request = format!(
            "POST /session HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n\
             {{\"sessionScope\":\"thread\"}}",
            rig.client.address
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        sockets.push(socket);
    }
    soon(async { while counts("admissionInFlight").await != 5 {} }).await;
    drop(sockets);
    // The ends of five connections are seen before the answer to a later one.
    counts("active").await;
    release.add_permits(1);
    soon(async { while counts("admissionInFlight").await != 0 {} }).await;
    assert_eq!(counts("active").await, 0);
    assert_eq!(rig.join("single").await.status().await["clientCount"], 1);
}
