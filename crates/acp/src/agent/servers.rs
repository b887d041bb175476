//! The MCP servers that a client brings to a session, in the words of settings.

use agent_client_protocol::v1::schema;
use convoke_protocol::SessionServer;
use serde_json::{Map, Value};

/// Servers that one session may bring: each is a process or a connection.
const SERVERS_MAX: usize = 64;

/// What the client named, in its order.
pub(super) fn brought(servers: &[schema::McpServer]) -> Vec<SessionServer> {
    if servers.len() > SERVERS_MAX {
        tracing::warn!(count = servers.len(), "a client brings too many MCP servers; the last ones are left out");
    }
    servers.iter().take(SERVERS_MAX).filter_map(|server| read(&serde_json::to_value(server).ok()?)).collect()
}

fn read(server: &Value) -> Option<SessionServer> {
    let mut config = Map::new();
    for key in ["type", "command", "args", "url"] {
        if let Some(value) = server.get(key) {
            config.insert(key.to_owned(), value.clone());
        }
    }
    for key in ["env", "headers"] {
        if let Some(Value::Array(pairs)) = server.get(key) {
            let pair = |pair: &Value| Some((pair.get("name")?.as_str()?.to_owned(), pair.get("value")?.clone()));
            config.insert(key.to_owned(), Value::Object(pairs.iter().filter_map(pair).collect()));
        }
    }
    Some(SessionServer { name: server.get("name")?.as_str()?.to_owned(), config: Value::Object(config) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_transport_reads_as_in_settings() {
        let servers: Vec<schema::McpServer> = serde_json::from_value(json!([
            {"name": "a", "command": "/bin/a", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
            {"type": "http", "name": "b", "url": "https://b/mcp", "headers": [{"name": "X", "value": "y"}]},
            {"type": "sse", "name": "c", "url": "https://c/sse", "headers": []},
        ]))
        .unwrap();
        let read = brought(&servers);
        assert_eq!(read.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(read[0].config, json!({"command": "/bin/a", "args": ["-x"], "env": {"K": "v"}}));
        assert_eq!(read[1].config, json!({"type": "http", "url": "https://b/mcp", "headers": {"X": "y"}}));
        assert_eq!(read[2].config, json!({"type": "sse", "url": "https://c/sse", "headers": {}}));
    }
}
