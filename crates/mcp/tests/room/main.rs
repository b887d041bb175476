//! Servers as they are: slow, wrong, crashing, endless, and wanting to know who calls. Each is a real child, or a real web
//! site, that writes its JSON by hand.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

mod login;
mod web;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke_mcp::{CallError, McpOptions, McpServers, McpTool, ServerConfig, ServerState};
use convoke_stdx::guard::Spawner;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// For a loaded machine.
const LONG: Duration = Duration::from_secs(60);

struct Room {
    dir: tempfile::TempDir,
    servers: McpServers,
}

fn args(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn config(name: &str, flags: &[&str], more: Value) -> ServerConfig {
    let mut entry = args(json!({"command": convoke_testkit::scripted_mcp_binary(), "args": flags}));
    entry.extend(args(more));
    ServerConfig::parse(name, &Value::Object(entry)).unwrap()
}

impl Room {
    fn new(configs: impl FnOnce(&Path) -> Vec<ServerConfig>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = McpOptions {
            spawner: Spawner::unguarded(),
            secret_variables: vec!["PATH".to_owned()],
            roots: vec![dir.path().canonicalize().unwrap()],
            client: ("test".to_owned(), "0".to_owned()),
            tokens: Some(dir.path().join("tokens.json")),
        };
        let servers = McpServers::new(options, configs(dir.path()));
        servers.start();
        Self { dir, servers }
    }

    async fn one(flags: &[&str]) -> Self {
        let room = Self::new(|_| vec![config("s", flags, json!({}))]);
        assert_eq!(room.servers.settled(LONG).await, []);
        room
    }

    fn tool(&self, name: &str) -> McpTool {
        let tools = self.servers.tools();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.clone()).collect();
        tools.into_iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("{name} is not in {names:?}"))
    }

    async fn say(&self, name: &str, arguments: Value) -> Result<String, CallError> {
        let answer = self.tool(name).call(args(arguments), &CancellationToken::new(), |_| {}).await;
        answer.map(|answer| answer.text)
    }

    /// Waits for `what`, with every change of a server as an occasion to look.
    async fn until(&self, what: impl Fn(&McpServers) -> bool) {
        let waiting = async {
            while !what(&self.servers) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, waiting).await.expect("what is waited for must come");
    }
}

#[tokio::test]
async fn tools_of_all_pages_are_there_and_answer() {
    let room = Room::one(&[]).await;
    assert_eq!(room.servers.tools().len(), 11);
    assert_eq!(room.say("mcp_s_echo", json!({"text": "hi"})).await.unwrap(), "hi");
    assert_eq!(room.say("mcp_s_with_under_scores", json!({"text": "x"})).await.unwrap(), "x");
    // A cycle in a schema is nobody's trouble, and what it describes goes through.
    let tree = room.tool("mcp_s_tree");
    assert_eq!(tree.schema["$defs"]["node"]["properties"]["child"]["$ref"], "#/$defs/node");
    assert_eq!(tree.schema.get("additionalProperties"), None);
    let nested = json!({"tree": {"child": {"child": {}}}});
    assert_eq!(room.say("mcp_s_tree", nested).await.unwrap(), r#"{"child":{"child":{}}}"#);
    assert_eq!(
        room.say("mcp_s_folder", json!({})).await.unwrap(),
        room.dir.path().canonicalize().unwrap().display().to_string()
    );
    assert_eq!(room.say("mcp_s_variable", json!({"name": "PATH"})).await.unwrap(), "unset");
    let failed = room.tool("mcp_s_fail").call(Map::new(), &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!((failed.is_error, failed.text.as_str()), (true, "it failed"));
    let media = room.tool("mcp_s_media").call(Map::new(), &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!(media.parts.len(), 1);
    let report = &room.servers.reports()[0];
    assert_eq!((report.server.as_str(), report.protocol.as_str()), ("scripted 1", "2025-06-18"));
    room.servers.close().await;
    assert_eq!(room.servers.reports()[0].state, ServerState::Closed);
}

#[tokio::test]
async fn prompts_and_resources_are_read() {
    let room = Room::one(&[]).await;
    let prompts = room.servers.prompts();
    assert_eq!((prompts[0].server.as_str(), prompts[0].prompt.name.as_str()), ("s", "greet"));
    assert!(prompts[0].prompt.arguments[0].required);
    let rendered = room.servers.prompt("s", "greet", args(json!({"who": "Ada"}))).await.unwrap();
    assert_eq!(rendered.text, "Say hello to Ada.");
    assert_eq!(room.servers.resources(None)[0].resource.uri, "note://one");
    let found = Some(("s".to_owned(), "note://one".to_owned()));
    assert_eq!(room.servers.find_resource("note://one"), found);
    assert_eq!(room.servers.find_resource("s:note://one"), found);
    assert_eq!(room.servers.find_resource("note://two"), None);
    assert_eq!(room.servers.read_resource("s", "note://one").await.unwrap().text, "the text of note://one");
    room.servers.close().await;
}

#[tokio::test]
async fn progress_arrives_and_a_list_that_changed_is_read_again() {
    let room = Room::one(&[]).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = seen.clone();
    let listen = move |progress: convoke_mcp::Progress| heard.lock().unwrap().push(progress.progress);
    let answer = room.tool("mcp_s_steps").call(Map::new(), &CancellationToken::new(), listen).await.unwrap();
    assert_eq!(answer.text, "three steps");
    // Progress is told side by side with the answer; what is told goes forward.
    let seen = seen.lock().unwrap().clone();
    assert!(seen.is_sorted() && seen.len() <= 3, "{seen:?}");
    room.say("mcp_s_grow", json!({})).await.unwrap();
    room.until(|servers| servers.tools().iter().any(|tool| tool.name == "mcp_s_grown")).await;
    assert_eq!(room.say("mcp_s_grown", json!({})).await.unwrap(), "was added");
    room.servers.close().await;
}

#[tokio::test]
async fn garbage_between_messages_is_passed_over() {
    let room = Room::one(&["--garbage"]).await;
    assert_eq!(room.say("mcp_s_echo", json!({"text": "hi"})).await.unwrap(), "hi");
    room.servers.close().await;
}

#[tokio::test]
async fn endless_lists_end() {
    let room = Room::one(&["--endless"]).await;
    assert_eq!(room.servers.tools().len(), 512);
    assert_eq!(room.servers.reports()[0].tools_cut_at, Some(512));
    room.servers.close().await;
}

#[tokio::test]
async fn a_call_that_hangs_is_cancelled_at_once_and_the_server_hears_of_it() {
    let room = Room::new(|dir| {
        let log = dir.join("log").display().to_string();
        vec![config("s", &["--log", &log], json!({}))]
    });
    room.servers.settled(LONG).await;
    let cancel = CancellationToken::new();
    let tool = room.tool("mcp_s_hang");
    let call = tool.call(Map::new(), &cancel, |_| {});
    let log = || std::fs::read_to_string(room.dir.path().join("log")).unwrap();
    let cancelling = async {
        room.until(|_| log().contains("\"hang\"")).await;
        cancel.cancel();
    };
    let (answer, ()) = tokio::join!(call, cancelling);
    assert_eq!(answer.unwrap_err(), CallError::Cancelled);
    room.until(|_| log().contains("notifications/cancelled")).await;
    // The server is not harmed.
    assert_eq!(room.say("mcp_s_echo", json!({"text": "hi"})).await.unwrap(), "hi");
    room.servers.close().await;
}

#[tokio::test]
async fn a_call_without_an_answer_ends_with_its_patience() {
    let room = Room::new(|_| vec![config("s", &[], json!({"timeout": 5000}))]);
    room.servers.settled(LONG).await;
    let error = room.say("mcp_s_hang", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "the MCP server \"s\" gave no answer within 5 seconds");
    room.servers.close().await;
}

#[tokio::test]
async fn a_crash_fails_the_call_at_once_and_the_server_comes_back() {
    let room = Room::one(&[]).await;
    let tool = room.tool("mcp_s_echo");
    let error = room.say("mcp_s_crash", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Gone { .. }), "{error}");
    room.until(|servers| matches!(servers.reports()[0].state, ServerState::Waiting { attempt: 1, of: 3 })).await;
    assert_eq!(room.servers.tools(), []);
    let meanwhile = tool.call(Map::new(), &CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(meanwhile.to_string().contains("being started again"), "{meanwhile}");
    room.until(|servers| servers.reports()[0].state == ServerState::Ready).await;
    // A tool from before the crash is the tool of after it.
    let answer = tool.call(args(json!({"text": "back"})), &CancellationToken::new(), |_| {}).await.unwrap();
    assert_eq!(answer.text, "back");
    room.servers.close().await;
}

#[tokio::test]
async fn what_can_not_start_says_why_and_holds_nobody_up() {
    let room = Room::new(|dir| {
        let gate = dir.join("gate").display().to_string();
        let nothing = ServerConfig::parse("nothing", &json!({"command": "/no/such/program"})).unwrap();
        let dead = ServerConfig::parse("dead", &json!({"type": "http", "url": "http://127.0.0.1:9/mcp"})).unwrap();
        vec![config("slow", &["--wait-for", &gate], json!({})), config("broken", &["--exit"], json!({})), nothing, dead]
    });
    room.until(|servers| {
        servers
            .reports()
            .iter()
            .all(|report| !matches!(report.state, ServerState::Idle | ServerState::Connecting) || report.name == "slow")
    })
    .await;
    let late = room.servers.settled(Duration::from_millis(1)).await;
    assert_eq!(late.iter().map(|late| late.server.as_str()).collect::<Vec<_>>(), ["slow"]);
    let reports = room.servers.reports();
    let reason = |at: usize| reports[at].reason.clone().unwrap();
    assert!(reason(1).contains("boom: no such database"), "{}", reason(1));
    assert_eq!((reports[1].state, reports[2].state), (ServerState::Failed, ServerState::Failed));
    assert!(matches!(reports[3].state, ServerState::Waiting { .. }), "{:?}", reports[3]);
    // The slow one is there as soon as it can be.
    std::fs::write(room.dir.path().join("gate"), "").unwrap();
    room.until(|servers| !servers.tools().is_empty()).await;
    room.servers.close().await;
}

#[tokio::test]
async fn servers_whose_names_run_together_keep_their_tools_apart() {
    let room = Room::new(|_| {
        let filter = json!({"includeTools": ["echo", "with_under_scores"]});
        vec![config("a", &[], filter.clone()), config("a_with", &[], json!({"excludeTools": ["crash", "hang"]}))]
    });
    room.servers.settled(LONG).await;
    let names: Vec<_> = room.servers.tools().into_iter().map(|tool| (tool.server, tool.name)).collect();
    assert_eq!(names.iter().filter(|(server, _)| server == "a").count(), 2);
    assert_eq!(names.iter().filter(|(server, _)| server == "a_with").count(), 9);
    let all: std::collections::HashSet<_> = names.iter().map(|(_, name)| name).collect();
    assert_eq!(all.len(), 11);
    room.servers.close().await;
}
