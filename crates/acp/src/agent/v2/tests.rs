//! What does each kind of message become, and what does each order of them lead to?

use std::hash::RandomState;

use agent_client_protocol::v2::schema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::bridge::{Bridge, Output};

/// A bridge between a client and an agent end that are both played by the test.
struct Wire {
    bridge: Bridge,
    out: Output,
}

fn wire() -> Wire {
    Wire { bridge: Bridge::new(RandomState::new()), out: Output::default() }
}

/// Introduced, and with a session `s`.
fn open() -> Wire {
    let mut wire = wire();
    wire.ask(0, "initialize", json!({"protocolVersion": 2, "info": {"name": "c", "version": "1"}}));
    wire.answer(json!({"protocolVersion": 1, "agentInfo": {"name": "a", "version": "1"}}));
    wire.open("s");
    wire
}

impl Wire {
    fn line(&mut self, line: &str) {
        self.bridge.client(line.as_bytes(), &mut self.out);
        self.bridge.check_invariants();
    }

    fn ask(&mut self, id: i64, method: &str, params: Value) {
        self.line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    fn agent(&mut self, message: Value) {
        self.bridge.agent(message, &mut self.out);
        self.bridge.check_invariants();
    }

    fn asked(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.out.to_agent)
    }

    fn told(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.out.to_client)
    }

    /// The only message that went to the agent end.
    fn only_asked(&mut self) -> Value {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked[0].clone()
    }

    fn only_told(&mut self) -> Value {
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:?}");
        told[0].clone()
    }

    /// The agent end answers the only request that it got; what the client is told.
    fn answer(&mut self, result: Value) -> Vec<Value> {
        let id = self.only_asked()["id"].clone();
        self.answer_to(&id, result)
    }

    fn answer_to(&mut self, id: &Value, result: Value) -> Vec<Value> {
        self.agent(json!({"jsonrpc": "2.0", "id": id, "result": result}));
        self.told()
    }

    fn fail_to(&mut self, id: &Value, code: i64) -> Vec<Value> {
        self.agent(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}));
        self.told()
    }

    fn open(&mut self, session: &str) {
        self.ask(1, "session/new", json!({"cwd": "/w"}));
        self.answer(json!({"sessionId": session}));
    }

    /// Sends a prompt.
    fn prompt(&mut self, id: i64, session: &str) {
        self.ask(id, "session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]}));
    }

    /// What the client is told of this update of the agent end.
    fn update(&mut self, update: Value) -> Option<Value> {
        let params = json!({"sessionId": "s", "update": update});
        self.agent(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
        let told = self.told();
        assert!(told.len() <= 1, "{told:?}");
        told.into_iter().next().map(|message| {
            let typed: schema::UpdateSessionNotification = serde_json::from_value(message["params"].clone()).unwrap();
            assert!(!matches!(typed.update, schema::SessionUpdate::Other(_)), "{message}");
            message["params"]["update"].clone()
        })
    }

    fn question(&mut self, id: i64) {
        let call = json!({"toolCallId": "t", "title": "write a", "kind": "edit", "status": "pending",
            "_meta": {"toolName": "write_file"}, "content": [
            {"type": "diff", "path": "/w/a", "oldText": null, "newText": "x\n"}]});
        let options = json!([{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]);
        let params = json!({"sessionId": "s", "toolCall": call, "options": options});
        self.agent(json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}));
    }
}

/// The state that a message tells of.
fn state_of(message: &Value) -> Option<String> {
    let update = &message["params"]["update"];
    let state = update["state"].as_str().filter(|_| update["sessionUpdate"] == "state_update")?;
    serde_json::from_value::<schema::UpdateSessionNotification>(message["params"].clone()).unwrap();
    Some([state, update["stopReason"].as_str().unwrap_or_default()].join(" ").trim_end().to_owned())
}

fn states(messages: &[Value]) -> Vec<String> {
    messages.iter().filter_map(state_of).collect()
}

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn code(message: &Value) -> i64 {
    message["error"]["code"].as_i64().unwrap_or_default()
}

#[test]
fn an_introduction_and_its_answer() {
    let mut wire = wire();
    let able = json!({"elicitation": {"form": {}}, "auth": {"terminal": {}}, "fs": {"readTextFile": true}});
    let info = json!({"name": "c", "version": "1", "title": "C"});
    let hello = json!({"protocolVersion": 2, "info": info, "capabilities": able, "_meta": {"a": 1}});
    wire.ask(7, "initialize", hello);
    let asked = wire.asked();
    let able = json!({
        "elicitation": {"form": {}}, "session": {"notices": {}, "configOptions": {"boolean": {}}}
    });
    assert_eq!(
        asked[0]["params"],
        json!({"protocolVersion": 1, "clientInfo": info, "clientCapabilities": able, "_meta": {"a": 1}})
    );
    let said = json!({
        "protocolVersion": 1,
        "agentInfo": {"name": "a", "version": "2", "title": "A"},
        "authMethods": [{"id": "key", "name": "Key", "description": "A key"}],
        "agentCapabilities": {
            "loadSession": true,
            "mcpCapabilities": {"http": true, "sse": true},
            "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
            "sessionCapabilities": {"list": {}, "delete": {}, "close": {}, "additionalDirectories": {}},
            "auth": {"logout": {}},
            "_meta": {"convoke.methods": ["_x"]},
        },
    });
    let told = wire.answer_to(&asked[0]["id"], said);
    let session = json!({
        "prompt": {"image": {}, "embeddedContext": {}}, "mcp": {"stdio": {}, "http": {}}, "delete": {},
        "additionalDirectories": {},
    });
    let result = json!({
        "protocolVersion": 2,
        "info": {"name": "a", "version": "2", "title": "A"},
        "capabilities": {"session": session, "auth": {}, "_meta": {"convoke.methods": ["_x"]}},
        "authMethods": [{"type": "agent", "methodId": "key", "name": "Key", "description": "A key"}],
    });
    assert_eq!(told, [json!({"jsonrpc": "2.0", "id": 7, "result": result})]);
    let read: schema::InitializeResponse = typed(&result);
    assert_eq!(serde_json::to_value(read).unwrap(), result);
    wire.ask(8, "initialize", json!({"protocolVersion": 2, "info": info}));
    assert_eq!(code(&wire.only_told()), -32600, "once is enough");
}

#[test]
fn a_newer_client_is_taken_as_it_is_and_a_nameless_one_is_not() {
    let mut wire = wire();
    wire.ask(1, "initialize", json!({"protocolVersion": 2}));
    assert_eq!(code(&wire.only_told()), -32602);
    assert!(!wire.bridge.has_begun());
    wire.ask(2, "session/new", json!({"cwd": "/w"}));
    assert_eq!(code(&wire.only_told()), -32600);
    wire.ask(3, "initialize", json!({"protocolVersion": 3, "info": 5, "capabilities": []}));
    assert_eq!(wire.only_asked()["params"]["protocolVersion"], 1);
    assert!(wire.bridge.has_begun());
}

#[test]
fn logins_have_other_names() {
    let mut wire = open();
    wire.ask(2, "auth/login", json!({"methodId": "key", "_meta": {"api-key": "x"}}));
    let asked = wire.only_asked();
    assert_eq!(asked["method"], "authenticate");
    assert_eq!(asked["params"], json!({"methodId": "key", "_meta": {"api-key": "x"}}));
    wire.line(&json!({"jsonrpc": "2.0", "id": "b", "method": "auth/logout"}).to_string());
    assert_eq!(wire.only_asked()["method"], "logout");
    wire.ask(4, "auth/login", json!({}));
    assert_eq!(code(&wire.only_told()), -32602);
}

#[test]
fn a_new_session_with_servers_and_settings() {
    let mut wire = open();
    let servers = json!([
        {"type": "stdio", "name": "a", "command": "/bin/a"},
        {"type": "http", "name": "b", "url": "https://b", "headers": null},
    ]);
    let params = json!({"cwd": "/w", "mcpServers": servers, "additionalDirectories": null, "_meta": {"x": 1}});
    wire.ask(2, "session/new", params);
    let asked = wire.asked();
    let servers = json!([
        {"name": "a", "command": "/bin/a", "args": [], "env": []},
        {"type": "http", "name": "b", "url": "https://b", "headers": []},
    ]);
    assert_eq!(asked[0]["params"], json!({"cwd": "/w", "mcpServers": servers, "_meta": {"x": 1}}));
    let choice = json!([{"value": "low", "name": "Low"}]);
    let option = |id: &str| {
        json!({id: "level", "name": "Level", "description": "How", "category": "thought_level", "type": "select",
            "currentValue": "low", "options": choice})
    };
    let modes = json!({"availableModes": [], "currentModeId": "plan"});
    let made = json!({"sessionId": "t", "modes": modes, "configOptions": [option("id")], "_meta": {"m": 1}});
    let told = wire.answer_to(&asked[0]["id"], made);
    let result = json!({"sessionId": "t", "configOptions": [option("configId")], "_meta": {"m": 1}});
    assert_eq!(told, [json!({"jsonrpc": "2.0", "id": 2, "result": result})]);
    let read: schema::NewSessionResponse = typed(&result);
    assert_eq!(read.config_options.len(), 1);

    for servers in [json!([{"type": "sse", "name": "c", "url": "u"}]), json!([{"name": "c"}]), json!([5]), json!({})] {
        wire.ask(3, "session/new", json!({"cwd": "/w", "mcpServers": servers}));
        assert_eq!(code(&wire.only_told()), -32602, "{servers}");
    }
    let told = |wire: &mut Wire, value: Value| {
        wire.ask(4, "session/set_config_option", value);
        wire.told()
    };
    let set = json!({"sessionId": "t", "configId": "level", "type": "id", "value": "low"});
    assert_eq!(told(&mut wire, set), Vec::<Value>::new());
    let asked = wire.only_asked();
    assert_eq!(asked["params"], json!({"sessionId": "t", "configId": "level", "value": "low"}));
    let told_back = wire.answer_to(&asked["id"], json!({"configOptions": [option("id")]}));
    assert_eq!(told_back[0]["result"], json!({"configOptions": [option("configId")]}));
    for value in [json!({"value": "low"}), json!({"type": "id", "value": 5}), json!({"type": "odd", "value": "low"})] {
        let mut set = json!({"sessionId": "t", "configId": "level"});
        set.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        assert_eq!(code(&told(&mut wire, set)[0]), -32602);
    }
}

#[test]
fn a_session_is_resumed_with_its_past_or_without() {
    let mut wire = open();
    for (from, method) in [(json!(null), "session/resume"), (json!({"type": "start"}), "session/load")] {
        wire.ask(2, "session/resume", json!({"sessionId": "old", "cwd": "/w", "replayFrom": from}));
        let asked = wire.only_asked();
        assert_eq!(asked["method"], method);
        assert_eq!(asked["params"], json!({"sessionId": "old", "cwd": "/w", "mcpServers": []}));
        let told = wire.answer_to(&asked["id"], json!({"modes": {}, "configOptions": []}));
        assert_eq!(state_of(&told[0]).unwrap(), "idle", "the state comes before the answer");
        assert_eq!(told[1]["result"], json!({"configOptions": []}));
        typed::<schema::ResumeSessionResponse>(&told[1]["result"]);
    }
    wire.ask(3, "session/resume", json!({"sessionId": "old", "cwd": "/w", "replayFrom": {"type": "message"}}));
    assert_eq!(code(&wire.only_told()), -32602);
    for (method, params) in [("session/list", json!({})), ("session/resume", json!({"sessionId": "x", "cwd": "/w"}))] {
        wire.ask(4, method, params);
        let id = wire.only_asked()["id"].clone();
        let told = wire.fail_to(&id, -32601);
        if method == "session/list" {
            assert_eq!(told[0]["result"], json!({"sessions": []}), "nothing is recorded");
        } else {
            assert_eq!((code(&told[0]), &told[0]["error"]["data"]["sessionId"]), (-32002, &json!("x")));
        }
    }
    let params = json!({"cwd": "/w", "cursor": "c"});
    wire.ask(5, "session/list", params.clone());
    assert_eq!(wire.only_asked()["params"], params);
}

#[test]
fn a_prompt_is_answered_when_it_is_in_and_ends_with_a_state() {
    let mut wire = open();
    wire.prompt(2, "s");
    let told = wire.told();
    let message = told[0]["result"]["messageId"].clone();
    assert_eq!(told[0]["id"], 2);
    let said = &told[1]["params"]["update"];
    assert_eq!((&said["sessionUpdate"], &said["messageId"]), (&json!("user_message"), &message));
    assert_eq!(said["content"], json!([{"type": "text", "text": "hi"}]));
    typed::<schema::UpdateSessionNotification>(&told[1]["params"]);
    assert_eq!(states(&told), ["running"]);
    let asked = wire.only_asked();
    assert_eq!((&asked["method"], &asked["params"]["sessionId"]), (&json!("session/prompt"), &json!("s")));
    let told = wire.answer_to(&asked["id"], json!({"stopReason": "end_turn", "_meta": {"q": 1}}));
    assert_eq!(states(&told), ["idle end_turn"]);
    assert_eq!(told[0]["params"]["update"]["_meta"], json!({"q": 1}));
    // Its id is free again, and no id is given twice.
    wire.prompt(2, "s");
    assert_ne!(wire.told()[0]["result"]["messageId"], message);
    let id = wire.only_asked()["id"].clone();
    let told = wire.fail_to(&id, 429);
    assert_eq!(states(&told), ["idle error"]);
    let error = json!({"code": 429, "message": "no"});
    assert_eq!(told[0]["params"]["update"]["error"], error);
    let read: schema::StateUpdate = typed(&told[0]["params"]["update"]);
    let schema::StateUpdate::Idle(idle) = read else { panic!("{read:?}") };
    assert!(matches!(idle.stop_reason, Some(schema::StopReason::Error(error)) if error.error.is_some()));
}

#[test]
fn what_the_agent_end_would_refuse_is_refused_at_once() {
    let mut wire = open();
    let text = json!({"type": "text", "text": "x"});
    let big = json!({"type": "text", "text": "x".repeat(9 * 1024 * 1024)});
    for (session, prompt, expected) in [
        ("nobody", json!([text]), -32002),
        ("s", json!([]), -32602),
        ("s", json!("x"), -32602),
        ("s", json!([text, {"type": "hologram"}]), -32602),
        ("s", json!([{"type": "text"}]), -32602),
        ("s", json!([big]), -32602),
        ("s", json!(null), -32602),
    ] {
        wire.ask(2, "session/prompt", json!({"sessionId": session, "prompt": prompt}));
        let told = wire.only_told();
        assert_eq!(code(&told), expected, "{told}");
    }
    assert_eq!(wire.asked(), Vec::<Value>::new());
    wire.ask(2, "session/prompt", json!({"sessionId": "nobody", "prompt": [text]}));
    assert_eq!(wire.only_told()["error"]["data"]["sessionId"], "nobody");
}

#[test]
fn prompts_behind_a_turn_are_held_in_their_order() {
    let mut wire = open();
    wire.prompt(2, "s");
    let first = wire.only_asked()["id"].clone();
    wire.told();
    wire.prompt(3, "s");
    wire.prompt(4, "s");
    wire.prompt(5, "s");
    assert_eq!((wire.asked(), wire.told()), (vec![], vec![]), "held is not answered");
    wire.tell("$/cancel_request", json!({"requestId": 4}));
    let told = wire.only_told();
    assert_eq!((&told["id"], code(&told)), (&json!(4), -32800));
    wire.tell("$/cancel_request", json!({"requestId": 2}));
    assert_eq!((wire.asked(), wire.told()), (vec![], vec![]), "what is in can't be taken back");
    let told = wire.answer_to(&first, json!({"stopReason": "end_turn"}));
    assert_eq!(states(&told), ["idle end_turn", "running"]);
    assert_eq!(told[1]["id"], 3);
    let second = wire.only_asked()["id"].clone();
    wire.tell("session/cancel", json!({"sessionId": "s"}));
    let told = wire.only_told();
    assert_eq!((&told["id"], code(&told)), (&json!(5), -32800), "held prompts are cancelled with the turn");
    assert_eq!(wire.only_asked()["method"], "session/cancel");
    // Behind the cancellation it is meant.
    wire.prompt(6, "s");
    let told = wire.answer_to(&second, json!({"stopReason": "cancelled"}));
    assert_eq!(states(&told), ["idle cancelled", "running"]);
    assert_eq!(told[1]["id"], 6);
}

#[test]
fn more_prompts_than_anybody_types_are_refused() {
    let mut wire = open();
    for id in 0..70 {
        wire.prompt(id, "s");
    }
    let refused = wire.told().iter().filter(|message| code(message) == -32600).count();
    assert_eq!(refused, 70 - 1 - 64);
    let large = json!([{"type": "image", "mimeType": "image/png", "data": "A".repeat(30 * 1024 * 1024)}]);
    wire.tell("session/cancel", json!({"sessionId": "s"}));
    wire.told();
    for (id, is_refused) in [(100, false), (101, false), (102, true)] {
        wire.ask(id, "session/prompt", json!({"sessionId": "s", "prompt": large}));
        assert_eq!(wire.told().len(), usize::from(is_refused), "prompt {id}");
    }
}

#[test]
fn a_question_has_a_subject_and_the_session_waits_for_its_answer() {
    let mut wire = open();
    wire.prompt(2, "s");
    let turn = wire.only_asked()["id"].clone();
    wire.told();
    wire.question(70);
    wire.question(71);
    let told = wire.told();
    assert_eq!(states(&told), ["requires_action"], "once for both");
    let params = &told[0]["params"];
    assert_eq!((&told[0]["id"], &params["title"]), (&json!(70), &json!("write a")));
    let read: schema::RequestPermissionRequest = typed(params);
    let Some(schema::RequestPermissionSubject::ToolCall(subject)) = read.subject else { panic!("{params}") };
    assert_eq!(subject.tool_call.tool_call_id.0.as_ref(), "t");
    assert_eq!(params["subject"]["toolCall"]["name"], "write_file");
    assert_eq!(read.options.len(), 1);
    let answer = json!({"jsonrpc": "2.0", "id": 70, "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}});
    wire.line(&answer.to_string());
    assert_eq!(wire.only_asked(), answer);
    assert_eq!(wire.told(), Vec::<Value>::new(), "the other is open");
    wire.agent(json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 71}}));
    let told = wire.told();
    assert_eq!((&told[0]["method"], states(&told)), (&json!("$/cancel_request"), vec!["running".to_owned()]));
    wire.question(72);
    wire.told();
    let told = wire.answer_to(&turn, json!({"stopReason": "cancelled"}));
    assert_eq!(states(&told), ["idle cancelled"]);
    wire.line(&json!({"jsonrpc": "2.0", "id": 72, "result": {}}).to_string());
    assert_eq!(wire.told(), Vec::<Value>::new(), "too late to change a state");
}

#[test]
fn a_form_stays_as_it_is() {
    let mut wire = open();
    let form = json!({"type": "object", "properties": {"answer": {"type": "string", "title": "A"}}});
    let params = json!({"mode": "form", "sessionId": "s", "toolCallId": "t", "message": "?", "requestedSchema": form});
    let request = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": params});
    wire.agent(request.clone());
    assert_eq!(wire.only_told(), request);
    let read: schema::CreateElicitationRequest = typed(&params);
    assert!(matches!(read.mode, schema::ElicitationMode::Form(_)));
}

#[test]
fn closing_ends_what_is_held_and_what_is_not_open_is_closed() {
    let mut wire = open();
    wire.prompt(2, "s");
    let turn = wire.only_asked()["id"].clone();
    wire.prompt(3, "s");
    wire.told();
    wire.ask(4, "session/close", json!({"sessionId": "s"}));
    let told = wire.only_told();
    assert_eq!((&told["id"], code(&told)), (&json!(3), -32800));
    let close = wire.only_asked()["id"].clone();
    wire.prompt(5, "s");
    assert_eq!(code(&wire.only_told()), -32002);
    assert_eq!(states(&wire.answer_to(&turn, json!({"stopReason": "cancelled"}))), ["idle cancelled"]);
    assert_eq!(wire.answer_to(&close, json!({}))[0]["result"], json!({}));
    wire.ask(6, "session/close", json!({"sessionId": "s"}));
    let close = wire.only_asked()["id"].clone();
    assert_eq!(wire.fail_to(&close, -32002)[0]["result"], json!({}));
    wire.prompt(7, "s");
    assert_eq!(code(&wire.only_told()), -32002);
}

#[test]
fn a_session_that_broke_is_gone_with_what_it_held() {
    let mut wire = open();
    wire.prompt(2, "s");
    let turn = wire.only_asked()["id"].clone();
    wire.prompt(3, "s");
    wire.told();
    let told = wire.fail_to(&turn, -32002);
    assert_eq!(states(&told), ["idle error"]);
    assert_eq!((&told[1]["id"], code(&told[1])), (&json!(3), -32002));
}

#[test]
fn what_happens_in_a_session() {
    let mut wire = open();
    let text = |text: &str| json!({"type": "text", "text": text});
    let chunk = json!({"sessionUpdate": "agent_message_chunk", "content": text("a"), "messageId": "m1", "_meta": {}});
    let usage = json!({"sessionUpdate": "agent_message_chunk", "content": text(""), "_meta": {"usage": {}}});
    assert_eq!(wire.update(usage.clone()), None, "it would be a message without words");
    assert_eq!(wire.update(chunk.clone()), Some(chunk));
    assert_eq!(wire.update(usage).unwrap()["messageId"], "m1");
    let hook = json!({"sessionUpdate": "agent_thought_chunk", "content": text("hook"), "_meta": {"hookMessage": {}}});
    let told = wire.update(hook).unwrap();
    assert_eq!(told["messageId"].as_str().unwrap().len(), 16);

    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x", "kind": "edit",
        "status": "pending", "content": [], "locations": [{"path": "/w/a", "line": 1}], "rawInput": {"a": 1},
        "_meta": {"toolName": "write_file"}});
    let mut expected = call.clone();
    expected["sessionUpdate"] = json!("tool_call_update");
    expected["name"] = json!("write_file");
    assert_eq!(wire.update(call), Some(expected));
    let result = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed", "content": [
        {"type": "diff", "path": "/w/a", "oldText": "x\n", "newText": "y\n"}, {"type": "content", "content": text("ok")}],
        "_meta": {"toolName": "write_file"}});
    let told = wire.update(result).unwrap();
    assert_eq!(told.get("name"), None);
    let patch = "diff --git /w/a /w/a\n--- /w/a\n+++ /w/a\n@@ -1,1 +1,1 @@\n-x\n+y\n";
    assert_eq!(
        told["content"],
        json!([
            {"type": "diff", "changes": [{"operation": "modify", "path": "/w/a", "fileType": "text"}],
             "patch": {"format": "git_patch", "text": patch}},
            {"type": "content", "content": text("ok")},
        ])
    );
    let read: schema::ToolCallUpdate = typed(&told);
    let content = read.content.value().unwrap();
    assert!(matches!(&content[0], schema::ToolCallContent::Diff(diff) if diff.changes.len() == 1), "{content:?}");

    let entries = json!([{"content": "do", "priority": "medium", "status": "pending"}]);
    let told = wire.update(json!({"sessionUpdate": "plan", "entries": entries})).unwrap();
    let plan = json!({"type": "items", "planId": "plan", "entries": entries});
    assert_eq!(told, json!({"sessionUpdate": "plan_update", "plan": plan}));

    let commands =
        json!([{"name": "a", "description": "A"}, {"name": "b", "description": "B", "input": {"hint": "h"}}]);
    let told =
        wire.update(json!({"sessionUpdate": "available_commands_update", "availableCommands": commands})).unwrap();
    assert_eq!(
        told["availableCommands"],
        json!([
            {"type": "command", "name": "a", "description": "A"},
            {"type": "command", "name": "b", "description": "B", "input": {"type": "text", "hint": "h"}},
        ])
    );
    assert_eq!(wire.update(json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"})), None);
    let option = json!({"id": "l", "name": "L", "type": "select", "currentValue": "a", "options": []});
    let told = wire.update(json!({"sessionUpdate": "config_option_update", "configOptions": [option]})).unwrap();
    assert_eq!(told["configOptions"][0]["configId"], "l");
    for same in [
        json!({"sessionUpdate": "session_info_update", "title": "T"}),
        json!({"sessionUpdate": "usage_update", "used": 1, "size": 2}),
        json!({"sessionUpdate": "notice", "severity": "warning", "title": "w", "_meta": {"notice": {}}}),
        json!({"sessionUpdate": "user_message_chunk", "content": text("q"), "messageId": "e"}),
    ] {
        assert_eq!(wire.update(same.clone()), Some(same));
    }
}

#[test]
fn what_can_not_be_read_is_answered_with_an_error() {
    let mut wire = open();
    for (line, id, expected) in [
        ("{", json!(null), -32700),
        ("[]", json!(null), -32600),
        ("5", json!(null), -32600),
        (r#"{"id": 5, "method": "session/list"}"#, json!(5), -32600),
        (r#"{"jsonrpc": "2.0", "id": 5}"#, json!(5), -32600),
        (r#"{"jsonrpc": "2.0"}"#, json!(null), -32600),
        (r#"{"jsonrpc": "2.0", "id": null, "method": "session/list"}"#, json!(null), -32600),
        (r#"{"jsonrpc": "2.0", "id": 1.5, "method": "session/list"}"#, json!(null), -32600),
        (r#"{"jsonrpc": "2.0", "id": {}, "method": "session/list"}"#, json!(null), -32600),
        (r#"{"jsonrpc": "2.0", "id": 5, "method": 7}"#, json!(5), -32600),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": "session/list", "params": []}"#, json!("x"), -32602),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": "session/close", "params": {}}"#, json!("x"), -32602),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": "session/close"}"#, json!("x"), -32602),
        (
            r#"{"jsonrpc": "2.0", "id": "x", "method": "session/delete", "params": {"sessionId": 5}}"#,
            json!("x"),
            -32602,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": "x", "method": "session/resume", "params": {"sessionId": "s"}}"#,
            json!("x"),
            -32602,
        ),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": "session/new", "params": {"cwd": 1}}"#, json!("x"), -32602),
    ] {
        wire.line(line);
        let told = wire.only_told();
        assert_eq!((&told["id"], code(&told)), (&id, expected), "{line}");
        typed::<schema::Error>(&told["error"]);
    }
    for method in
        ["session/load", "session/set_mode", "authenticate", "tool_call/cancel", "terminal/cancel", "session/fork"]
    {
        wire.ask(2, method, json!({"sessionId": "s"}));
        assert_eq!(code(&wire.only_told()), -32601, "{method}");
    }
    wire.tell("nothing/known", json!({}));
    wire.tell("session/cancel", json!({}));
    wire.tell("session/cancel", json!({"sessionId": "s"}));
    wire.tell("$/cancel_request", json!({"requestId": 99}));
    assert_eq!((wire.asked(), wire.told()), (vec![], vec![]), "nobody waits for an answer");
}

#[test]
fn methods_of_our_own_and_withdrawn_requests_pass() {
    let mut wire = open();
    wire.ask(2, "_convoke/session/steer", json!({"sessionId": "s", "text": "x"}));
    let asked = wire.only_asked();
    assert_eq!(asked["method"], "_convoke/session/steer");
    wire.tell("$/cancel_request", json!({"requestId": 2}));
    assert_eq!(wire.only_asked()["params"], json!({"requestId": asked["id"]}));
    assert_eq!(wire.fail_to(&asked["id"], -32002)[0]["error"]["data"], json!({"sessionId": "s"}));
    let early = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32600, "message": "early"}});
    wire.agent(early.clone());
    assert_eq!(wire.only_told(), early);
}

#[test]
fn requests_without_answers_are_bounded() {
    let mut wire = open();
    for id in 0..2100 {
        wire.ask(id, "session/list", json!({}));
    }
    assert_eq!(wire.asked().len(), 2048);
    assert_eq!(wire.told().iter().filter(|message| code(message) == -32600).count(), 2100 - 2048);
}

/// In whatever order things come: every prompt is answered once, and each session is idle in the end.
#[test]
fn random_walks_leave_nothing_behind() {
    for seed in 0..200_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut dice = |sides: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % sides
        };
        let mut wire = open();
        let (mut turns, mut answered, mut prompts, mut all) = (Vec::new(), 0, 0, Vec::new());
        for step in 0..80 {
            match dice(6) {
                0 | 1 => {
                    prompts += 1;
                    wire.prompt(1000 + step, "s");
                }
                2 => wire.tell("session/cancel", json!({"sessionId": "s"})),
                3 => wire.question(i64::try_from(dice(4)).unwrap()),
                4 => wire.line(&json!({"jsonrpc": "2.0", "id": dice(4), "result": {}}).to_string()),
                _ => {
                    if let Some(turn) = turns.pop() {
                        wire.agent(json!({"jsonrpc": "2.0", "id": turn, "result": {"stopReason": "end_turn"}}));
                    }
                }
            }
            let asked = wire.asked();
            turns.extend(
                asked.iter().filter(|asked| asked["method"] == "session/prompt").map(|asked| asked["id"].clone()),
            );
            assert!(turns.len() <= 1, "one turn at a time");
            all.extend(wire.told());
        }
        while let Some(turn) = turns.pop() {
            all.extend(wire.answer_to(&turn, json!({"stopReason": "end_turn"})));
            turns.extend(wire.asked().iter().map(|asked| asked["id"].clone()));
        }
        answered += all.iter().filter(|message| message["id"].as_i64().is_some_and(|id| id >= 1000)).count();
        assert_eq!(answered, prompts, "seed {seed}");
        let states = states(&all);
        assert!(states.last().is_none_or(|state| state.starts_with("idle")), "seed {seed}: {states:?}");
    }
}
