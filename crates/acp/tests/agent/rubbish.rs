//! What no honest client sends: an answer for each, and the session lives on.

use convoke_protocol::ApprovalMode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{Raw, raw};

/// The session that everything is thrown at.
async fn begin(pipe_bytes: usize) -> Raw {
    let (_runtime, mut client) = raw(pipe_bytes);
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    client.read().await;
    let meta = json!({"convoke.sessionId": "s1"});
    client.call(2, "session/new", json!({"cwd": "/work", "mcpServers": [], "_meta": meta})).await;
    assert_eq!(client.read().await["result"]["sessionId"], "s1");
    client
}

/// It still works, whatever came before.
async fn works(client: &mut Raw) {
    let prompt = json!([{"type": "text", "text": "end completed"}]);
    client.call(99, "session/prompt", json!({"sessionId": "s1", "prompt": prompt})).await;
    loop {
        let message = client.read().await;
        if message["id"] == 99 {
            return assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
        }
    }
}

#[tokio::test]
async fn every_method_answers_every_rubbish() {
    let mut client = begin(1 << 16).await;
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let rubbish = [
        Value::Null,
        json!(5),
        json!("x"),
        json!([]),
        json!([{"sessionId": "s1"}]),
        json!({}),
        json!({"sessionId": 5}),
        json!({"sessionId": null, "prompt": {}, "cwd": 7, "cursor": [], "configId": {}, "modeId": []}),
        json!({"sessionId": "s1", "prompt": [{"type": "text"}], "configId": "\u{0}", "modeId": "", "cwd": ""}),
        json!({"sessionId": {"sessionId": "s1"}, "deep": deep}),
        json!({"sessionId": "x".repeat(20_000)}),
    ];
    let methods = [
        "authenticate",
        "session/new",
        "session/load",
        "session/resume",
        "session/list",
        "session/delete",
        "session/close",
        "session/prompt",
        "session/set_mode",
        "session/set_config_option",
        "session/fork",
        "_convoke/session/steer",
        "_convoke/session/rewind",
        "_convoke/session/rewind_points",
        "_convoke/session/branch",
        "_unknown/method",
        "",
    ];
    let mut id = 100;
    for method in methods {
        for params in &rubbish {
            // That would be no rubbish.
            let needs_no_more = ["session/close", "_convoke/session/rewind_points", "_convoke/session/branch"];
            if needs_no_more.contains(&method) && params["sessionId"] == "s1" {
                continue;
            }
            id += 1;
            client.call(id, method, params.clone()).await;
            let answer = client.read().await;
            // Parameters that JSON-RPC does not have make it no request, and what is none has no id.
            let is_none = !(params.is_object() || params.is_array() || params.is_null());
            let expected = if is_none { Value::Null } else { json!(id) };
            assert_eq!(answer["id"], expected, "{method} {params}");
            let code = answer["error"]["code"].as_i64().unwrap_or_default();
            assert!([-32600, -32601, -32602, -32002].contains(&code), "{method} {params}: {answer}");
        }
    }
    // Nobody waits for an answer to these, and none comes.
    for params in rubbish {
        client.tell("session/cancel", params.clone()).await;
        client.tell("$/cancel_request", params).await;
    }
    works(&mut client).await;
}

#[tokio::test]
async fn values_that_are_not_on_offer_change_nothing() {
    let mut client = begin(1 << 16).await;
    let option = |id: Value, value: Value| json!({"sessionId": "s1", "configId": id, "value": value});
    let long = "x".repeat(100_000);
    for (params, code) in [
        (option(json!("colour"), json!("low")), "unknown_option"),
        (option(json!(""), json!("")), "unknown_option"),
        (option(json!(long), json!("low")), "unknown_option"),
        (json!({"sessionId": "s1", "configId": "colour", "type": "boolean", "value": true}), "unknown_option"),
    ] {
        client.call(3, "session/set_config_option", params).await;
        let error = client.read().await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32602), &json!(code)), "{error}");
    }
    for mode in ["", "root", "DEFAULT ", &long] {
        client.call(4, "session/set_mode", json!({"sessionId": "s1", "modeId": mode})).await;
        let error = client.read().await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32602), &json!("mode_unavailable")), "{error}");
        assert!(error["data"]["allowed"].as_array().unwrap().contains(&json!(ApprovalMode::Default.acp())));
    }
    works(&mut client).await;
}

#[tokio::test]
async fn bytes_that_are_no_message_are_survived() {
    let mut client = begin(1 << 16).await;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut pieces: Vec<u8> = Vec::new();
    for _ in 0..500 {
        // xorshift: the same bytes on every machine.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let words: [&[u8]; 8] =
            [b"{", b"}", b"\n", b"\"id\":1", b"\xff\x00", b"\"method\":\"session/new\",", b"[1,", b"null"];
        pieces.extend_from_slice(words[usize::try_from(seed % 8).unwrap()]);
    }
    pieces.push(b'\n');
    let Raw { lines, mut input, serving } = client;
    input.write_all(&pieces).await.unwrap();
    client = Raw { lines, input, serving };
    let prompt = json!([{"type": "text", "text": "end completed"}]);
    client.call(99, "session/prompt", json!({"sessionId": "s1", "prompt": prompt})).await;
    loop {
        let answer = client.read().await;
        if answer["id"] == 99 {
            break assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        }
        let code = answer["error"]["code"].as_i64().unwrap_or_default();
        assert!([-32700, -32600].contains(&code), "{answer}");
    }
}

#[tokio::test]
async fn a_prompt_that_no_model_takes_is_refused_with_its_size() {
    let mut client = begin(1 << 20).await;
    let text = "x".repeat(8 * 1024 * 1024 + 1);
    let params = json!({"sessionId": "s1", "prompt": [{"type": "text", "text": text}]});
    client.call(3, "session/prompt", params).await;
    let error = client.read().await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32602), &json!("prompt_too_large")));
    assert_eq!((&error["data"]["bytes"], &error["data"]["maxBytes"]), (&json!(8_388_609), &json!(8_388_608)));
    works(&mut client).await;
}

#[tokio::test]
async fn a_message_that_is_too_long_is_refused_and_the_next_one_is_read() {
    let mut client = begin(1 << 20).await;
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..65 {
        client.input.write_all(&piece).await.unwrap();
    }
    client.input.write_all(b"\n").await.unwrap();
    let refused = client.read().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)), "{refused}");
    works(&mut client).await;
}
