//! Servers behind an address, in the way of today and in that of old.

use convoke_testkit::McpScript;
use convoke_testkit::mcp_site::{McpSite, SiteOptions};

use super::*;

fn remote(entry: Value) -> ServerConfig {
    ServerConfig::parse("s", &entry).unwrap()
}

async fn site(script: McpScript) -> McpSite {
    McpSite::start(SiteOptions { script, ..SiteOptions::default() }).await.unwrap()
}

async fn ready(room: &Room) {
    assert_eq!(room.servers.settled(LONG).await, []);
    let report = &room.servers.reports()[0];
    assert_eq!(report.state, ServerState::Ready, "{report:?}");
}

/// Every way to reach a site, by what its configuration says.
fn ways(site: &McpSite) -> [(&'static str, Value); 3] {
    [
        ("http", json!({"type": "http", "url": site.url()})),
        ("sse", json!({"type": "sse", "url": site.sse_url()})),
        ("either", json!({"url": site.sse_url()})),
    ]
}

#[tokio::test]
async fn all_that_a_server_has_is_there_over_http_and_over_the_older_way() {
    let site = site(McpScript::default()).await;
    for (way, entry) in ways(&site) {
        let room = Room::new(|_| vec![remote(entry)]);
        ready(&room).await;
        // All pages, with the one whose schema goes round in a circle.
        assert!(room.servers.tools().len() >= 11, "{way}");
        assert_eq!(room.tool("mcp_s_tree").schema["$defs"]["node"]["properties"]["child"]["$ref"], "#/$defs/node");
        assert_eq!(room.say("mcp_s_echo", json!({"text": way})).await.unwrap(), way);
        assert_eq!(room.say("mcp_s_steps", json!({})).await.unwrap(), "three steps");
        assert_eq!(
            room.servers.prompt("s", "greet", args(json!({"who": "Ada"}))).await.unwrap().text,
            "Say hello to Ada."
        );
        assert_eq!(room.servers.read_resource("s", "note://one").await.unwrap().text, "the text of note://one");
        let large = "x".repeat(3 * 1024 * 1024);
        assert_eq!(room.say("mcp_s_echo", json!({"text": large})).await.unwrap().len(), large.len(), "{way}");
        room.servers.close().await;
    }
    assert!(site.requests().iter().all(|request| request.authorization.is_none()));
}

#[tokio::test]
async fn a_list_that_changed_is_read_again() {
    for way in 0..2 {
        let site = site(McpScript::default()).await;
        let room = Room::new(|_| vec![remote(ways(&site)[way].1.clone())]);
        ready(&room).await;
        // The announcement comes on a stream that is opened beside the first request.
        if way == 0 {
            let listening = || site.requests().iter().any(|request| request.method == "GET" && request.path == "/mcp");
            room.until(|_| listening()).await;
        }
        room.say("mcp_s_grow", json!({})).await.unwrap();
        room.until(|servers| servers.tools().iter().any(|tool| tool.name == "mcp_s_grown")).await;
        room.servers.close().await;
    }
}

#[tokio::test]
async fn endless_lists_end_here_too() {
    let site = site(McpScript { endless: true, ..McpScript::default() }).await;
    let room = Room::new(|_| vec![remote(ways(&site)[0].1.clone())]);
    ready(&room).await;
    assert_eq!((room.servers.tools().len(), room.servers.reports()[0].tools_cut_at), (512, Some(512)));
    room.servers.close().await;
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_its_patience_or_when_it_is_cancelled() {
    let site = site(McpScript::default()).await;
    for (way, entry) in ways(&site).into_iter().take(2) {
        let mut entry = args(entry);
        entry.insert("timeout".to_owned(), json!(1500));
        let room = Room::new(|_| vec![remote(Value::Object(entry))]);
        ready(&room).await;
        let error = room.say("mcp_s_hang", json!({})).await.unwrap_err();
        assert!(matches!(error, CallError::Timeout { .. }), "{way}: {error}");
        let cancel = CancellationToken::new();
        cancel.cancel();
        let cancelled = room.tool("mcp_s_hang").call(Map::new(), &cancel, |_| {}).await;
        assert_eq!(cancelled.unwrap_err(), CallError::Cancelled, "{way}");
        assert_eq!(room.say("mcp_s_echo", json!({"text": "hi"})).await.unwrap(), "hi", "{way}");
        room.servers.close().await;
    }
}

#[tokio::test]
async fn a_server_that_crashed_or_forgot_us_is_there_again() {
    let site = site(McpScript::default()).await;
    for (way, entry) in ways(&site).into_iter().take(2) {
        let room = Room::new(|_| vec![remote(entry)]);
        ready(&room).await;
        let error = room.say("mcp_s_crash", json!({})).await.unwrap_err();
        assert!(!matches!(error, CallError::Timeout { .. }), "{way}: {error}");
        let back = async {
            while room.servers.tools().is_empty() || room.say("mcp_s_echo", json!({"text": "back"})).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, back).await.unwrap_or_else(|_| panic!("{way}: it must come back"));
        room.servers.close().await;
    }
    // Over HTTP a session that is gone is begun again for the call that noticed it.
    let room = Room::new(|_| vec![remote(ways(&site)[0].1.clone())]);
    ready(&room).await;
    site.restart();
    assert_eq!(room.say("mcp_s_echo", json!({"text": "still"})).await.unwrap(), "still");
    room.servers.close().await;
}
