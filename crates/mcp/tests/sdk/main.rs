//! Servers made with the official Rust SDK, which wrote our client's half of the wire as well: over stdio and over HTTP, in
//! the newest protocol and in the first. This executable is both the test and, as `sdk serve AGE`, the server.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test, though with a main of its own")]

mod server;

use std::process::ExitCode;
use std::time::Duration;

use convoke_mcp::{CallError, McpOptions, McpServers, ServerConfig, ServerState};
use convoke_stdx::guard::Spawner;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use server::{Age, SdkServer};

/// For a loaded machine.
const LONG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let [serve, age] = args.as_slice()
        && serve == "serve"
    {
        runtime.block_on(server::over_stdio(SdkServer::new(Age::parse(age).unwrap())));
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    runtime.block_on(async {
        for age in [Age::Newest, Age::First] {
            let this = std::env::current_exe().unwrap();
            let child = json!({"command": this, "args": ["serve", age.name()], "timeout": 20_000});
            all_of_it(&child, age, "stdio").await;
            a_crash_is_no_end(&child, age).await;
            let site = server::over_http(SdkServer::new(age)).await;
            all_of_it(&json!({"type": "http", "url": site.url, "timeout": 20_000}), age, "http").await;
            all_of_it(&json!({"url": site.url, "timeout": 20_000}), age, "an address alone").await;
        }
    });
    ExitCode::SUCCESS
}

async fn connected(entry: &Value) -> McpServers {
    let options = McpOptions {
        spawner: Spawner::unguarded(),
        secret_variables: Vec::new(),
        roots: vec![std::env::temp_dir()],
        client: ("test".to_owned(), "0".to_owned()),
        tokens: None,
    };
    let servers = McpServers::new(options, vec![ServerConfig::parse("sdk", entry).unwrap()]);
    servers.start();
    assert_eq!(servers.settled(LONG).await, []);
    servers
}

async fn say(servers: &McpServers, tool: &str, args: Value) -> Result<(String, bool, usize), CallError> {
    let name = format!("mcp_sdk_{tool}");
    let tool =
        servers.tools().into_iter().find(|tool| tool.name == name).unwrap_or_else(|| panic!("{name} is not there"));
    let args: Map<String, Value> = args.as_object().unwrap().clone();
    let answer = tokio::time::timeout(LONG, tool.call(args, &CancellationToken::new(), |_| {})).await.unwrap()?;
    Ok((answer.text, answer.is_error, answer.parts.len()))
}

async fn until(servers: &McpServers, what: impl Fn(&McpServers) -> bool) {
    let waiting = async {
        while !what(servers) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("what is waited for must come");
}

async fn all_of_it(entry: &Value, age: Age, way: &str) {
    let servers = connected(entry).await;
    let report = &servers.reports()[0];
    assert_eq!((report.state, report.protocol.as_str()), (ServerState::Ready, age.version()), "{way}: {report:?}");
    // A list of more than one page, and of more than anybody needs.
    assert_eq!((servers.tools().len(), report.tools_cut_at), (512, Some(512)), "{way}");
    assert_eq!(say(&servers, "echo", json!({"text": "hi"})).await.unwrap().0, "hi", "{way}");
    assert_eq!(say(&servers, "speaks", json!({})).await.unwrap().0, age.version(), "{way}");
    assert_eq!(say(&servers, "picture", json!({})).await.unwrap().2, 1, "{way}");
    let (text, is_error, _) = say(&servers, "refuse", json!({})).await.unwrap();
    assert_eq!((text.as_str(), is_error), ("no such row", true), "{way}");
    let tree = servers.tools().into_iter().find(|tool| tool.tool == "tree").unwrap();
    assert_eq!(tree.schema["$defs"]["node"]["properties"]["child"]["$ref"], "#/$defs/node", "{way}");
    let nested = json!({"tree": {"child": {"child": {}}}});
    assert_eq!(say(&servers, "tree", nested).await.unwrap().0, r#"{"child":{"child":{}}}"#, "{way}");
    assert_eq!(servers.read_resource("sdk", "note://one").await.unwrap().text, "written down", "{way}");

    // A call that hangs is cancelled, and the server hears of it.
    let hang = servers.tools().into_iter().find(|tool| tool.tool == "hang").unwrap();
    let cancel = CancellationToken::new();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let call = hang.call(Map::new(), &cancel, move |progress| heard.send(progress.progress).unwrap());
    let cancelling = async {
        let progress = tokio::time::timeout(LONG, hears.recv()).await.expect("it hangs in its own way");
        cancel.cancel();
        progress
    };
    let (answer, progress) = tokio::join!(call, cancelling);
    assert_eq!((answer.unwrap_err(), progress), (CallError::Cancelled, Some(1.0)), "{way}");
    let cancelled = async {
        while say(&servers, "cancelled", json!({})).await.unwrap().0 == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, cancelled).await.unwrap_or_else(|_| panic!("{way}: the server never heard of it"));

    // What is announced is read again.
    say(&servers, "shrink", json!({})).await.unwrap();
    until(&servers, |servers| servers.tools().len() < 512).await;
    assert_eq!(say(&servers, "echo", json!({"text": "still"})).await.unwrap().0, "still", "{way}");
    say(&servers, "grow", json!({})).await.unwrap();
    until(&servers, |servers| servers.tools().len() == 512).await;
    servers.close().await;
}

async fn a_crash_is_no_end(entry: &Value, age: Age) {
    let servers = connected(entry).await;
    let error = say(&servers, "crash", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Gone { .. }), "{}: {error}", age.name());
    // Until it is noticed, the old connection's tools are still listed; then there are none for a while.
    let back = async {
        loop {
            let echo = servers.tools().into_iter().find(|tool| tool.tool == "echo");
            let args = Map::from_iter([("text".to_owned(), json!("back"))]);
            if let Some(echo) = echo
                && let Ok(answer) = echo.call(args, &CancellationToken::new(), |_| {}).await
            {
                return answer.text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(tokio::time::timeout(LONG, back).await.expect("it must come back"), "back");
    servers.close().await;
}
