//! `/acp` as a WebSocket: the handshake, its first message, its end.

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::acp_client::{Messages, Socket, clients, initialize, prompt, request};
use crate::rig::Rig;

#[tokio::test]
async fn a_turn() {
    let rig = Rig::new().await;
    let mut socket = Socket::open(&rig.client).await;
    let session = socket.session(&rig.workspace).await;
    socket.send(prompt(1, &session, "echo hello there")).await;
    let mut texts = Vec::new();
    loop {
        let message = socket.message().await.unwrap();
        if message["id"] == 1 {
            assert_eq!(message["result"]["stopReason"], "end_turn");
            break;
        }
        texts.extend(message["params"]["update"]["content"]["text"].as_str().map(str::to_owned));
    }
    // Its own prompt, the agent's echo of it, and what it cost.
    assert_eq!(texts, ["echo hello there", "echo hello there", ""]);
    socket.close().await;
}

#[tokio::test]
async fn who_is_let_in() {
    let rig = Rig::with(|options| options.token = convoke_daemon::TokenOption::Given("tok123".into())).await;
    let dial = async |headers: &[(&str, &str)]| Socket::dial(&rig.client, headers).await;
    let protocol = "sec-websocket-protocol";
    for (headers, expected) in [
        (&[][..], Some(401)),
        (&[("authorization", "Bearer nope")], Some(401)),
        (&[(protocol, "tok123")], Some(401)),
        (&[("authorization", "Bearer tok123"), ("host", "evil.example")], Some(403)),
        (&[("authorization", "Bearer tok123"), ("origin", "http://evil.example")], Some(403)),
        (&[("authorization", "Bearer tok123"), ("sec-websocket-version", "8")], Some(400)),
        (&[("authorization", "Bearer tok123")], None),
    ] {
        assert_eq!(dial(headers).await.err(), expected, "{headers:?}");
    }
    let socket = dial(&[(protocol, "qwen-ws, qwen-bearer.dG9rMTIz")]).await.unwrap();
    assert_eq!(socket.handshake.headers().get(protocol).map(|value| value.as_bytes()), Some(&b"qwen-ws"[..]));
    let query = rig.client.get("/acp?token=tok123").await;
    assert_eq!(query.status, 401);
}

#[tokio::test]
async fn the_first_message_is_initialize() {
    let rig = Rig::new().await;
    for first in [request(1, "session/new", json!({})), json!({"jsonrpc": "2.0", "method": "x"}), json!([1])] {
        let mut socket = Socket::dial(&rig.client, &[]).await.unwrap();
        socket.send(first.clone()).await;
        let refused = socket.message().await.unwrap();
        assert_eq!(refused["error"]["code"], -32600, "{first}");
        assert_eq!(socket.message().await, None);
        assert_eq!(socket.closed, Some(1002), "{first}");
    }
    let mut socket = Socket::dial(&rig.client, &[]).await.unwrap();
    socket.send(initialize()).await;
    let welcome = socket.reply(0).await;
    let id = socket.handshake.headers().get("acp-connection-id").unwrap().to_str().unwrap();
    assert_eq!(welcome["result"]["agentCapabilities"]["_meta"]["qwen"]["connectionId"], id);
}

#[tokio::test]
async fn rubbish_is_answered_and_survived() {
    let rig = Rig::new().await;
    let mut socket = Socket::open(&rig.client).await;
    for (frame, code) in [
        (Message::text("{not json"), -32700),
        (Message::text("[]"), -32600),
        (Message::text("5"), -32600),
        (Message::binary(vec![1, 2, 3]), -32600),
    ] {
        futures::SinkExt::send(&mut socket.socket, frame).await.unwrap();
        assert_eq!(socket.message().await.unwrap()["error"]["code"], code);
    }
    socket.session(&rig.workspace).await;
}

#[tokio::test]
async fn a_message_over_the_limit_ends_it() {
    let rig = Rig::with(|options| options.limits.body_bytes = 4096).await;
    let mut socket = Socket::open(&rig.client).await;
    socket.send(request(1, "session/list", json!({"pad": "x".repeat(5000)}))).await;
    assert_eq!(socket.message().await, None);
    Socket::open(&rig.client).await;
}

/// §f.7: the closing of the WebSocket that prompted ends its turn, in this order.
#[tokio::test]
async fn closing_it_cancels_its_turn() {
    let rig = Rig::new().await;
    for politely in [true, false] {
        let mut socket = Socket::open(&rig.client).await;
        let session = socket.session(&rig.workspace).await;
        let joined = rig.client.post(&format!("/session/{session}/resume"), "", json!({})).await;
        assert_eq!(joined.status, 200);
        let mut watch = rig.client.events(&format!("/session/{session}/events"), &[]).await;
        socket.send(prompt(1, &session, "approval please")).await;
        watch.until("permission_request").await;
        if politely {
            socket.close().await;
        } else {
            drop(socket);
        }
        let mut kinds = Vec::new();
        loop {
            let crate::client::Next::Event(event) = watch.next().await else { panic!("{kinds:?}") };
            let last = event.kind == "turn_complete";
            if last {
                assert_eq!(event.frame["data"]["stopReason"], "cancelled");
            }
            kinds.push(event.kind);
            if last {
                break;
            }
        }
        kinds.retain(|kind| kind != "session_update" && kind != "turn_complete");
        assert_eq!(kinds, ["prompt_cancelled", "permission_resolved", "permission_already_resolved"]);
    }
}

/// One who only watches can leave without anybody noticing.
#[tokio::test]
async fn closing_another_one_cancels_nothing() {
    let rig = Rig::new().await;
    let owner = rig.join("thread").await;
    let mut watch = owner.events().await;
    let mut socket = Socket::open(&rig.client).await;
    socket.send(request(1, "session/resume", json!({"sessionId": owner.session, "cwd": rig.workspace}))).await;
    socket.reply(1).await;
    owner.prompt("approval please").await;
    socket.method("session/request_permission").await;
    let request = crate::rig::request_id(&watch.until("permission_request").await);
    socket.close().await;
    clients(&rig.client, &owner.session, 1).await;
    assert_eq!(owner.status().await["isWaitingForPermission"], true);
    assert_eq!(owner.vote(&request, "proceed_once").await.0, 200);
}

/// `session/load` tells what happened before it answers; a pending question is asked again.
#[tokio::test]
async fn loading_tells_the_past() {
    let rig = Rig::new().await;
    let owner = rig.join("thread").await;
    let mut watch = owner.events().await;
    owner.prompt("echo remember me").await;
    watch.until("turn_complete").await;
    owner.prompt("approval please").await;
    watch.until("permission_request").await;
    let mut socket = Socket::open(&rig.client).await;
    socket.send(request(1, "session/load", json!({"sessionId": owner.session, "cwd": rig.workspace}))).await;
    let mut texts = Vec::new();
    loop {
        let message = socket.message().await.unwrap();
        if message["id"] == 1 {
            assert!(message["result"].is_object(), "{message}");
            break;
        }
        assert_ne!(message["method"], "session/request_permission");
        texts.extend(message["params"]["update"]["content"]["text"].as_str().map(str::to_owned));
    }
    assert!(texts.contains(&"echo remember me".to_owned()), "{texts:?}");
    let question = socket.method("session/request_permission").await;
    socket.send(crate::acp_client::select(&question, "proceed_once")).await;
    watch.until("turn_complete").await;
}

#[tokio::test]
async fn cancel_never_overtakes_its_prompt() {
    let rig = Rig::new().await;
    let mut socket = Socket::open(&rig.client).await;
    let session = socket.session(&rig.workspace).await;
    for id in 0..20 {
        socket.send(prompt(id, &session, "hang")).await;
        socket.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})).await;
        let end = socket.reply(id).await;
        assert_eq!(end["result"]["stopReason"], "cancelled", "{end}");
        assert!(end["result"]["_meta"]["qwen.promptCancelled"]["cancelledAt"].is_u64(), "{end}");
    }
}

#[tokio::test]
async fn a_stopping_daemon_says_goodbye() {
    let rig = Rig::new().await;
    let mut socket = Socket::open(&rig.client).await;
    let session = socket.session(&rig.workspace).await;
    socket.send(prompt(1, &session, "hang")).await;
    socket.method("session/update").await;
    rig.shutdown.cancel();
    socket.notice("session_died").await;
    while socket.message().await.is_some() {}
    assert_eq!(socket.closed, Some(1001));
    rig.ended().await;
}

/// A client that does not read loses its socket; its session and the others live on.
#[tokio::test]
async fn a_slow_client_is_evicted() {
    let rig = Rig::new().await;
    let mut socket = Socket::open(&rig.client).await;
    let session = socket.session(&rig.workspace).await;
    let other = rig.join("thread").await;
    let joined = rig.client.post(&format!("/session/{session}/resume"), "", json!({})).await;
    assert_eq!(joined.status, 200);
    // Far more than the buffers of a socket, an outlet and a subscription hold together.
    socket.send(prompt(1, &session, "flood scenario n=4000 pad=8000")).await;
    clients(&rig.client, &session, 1).await;
    drop(socket);
    assert_eq!(other.status().await["clientCount"], 1);
}
