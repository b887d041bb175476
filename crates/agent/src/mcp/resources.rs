//! What servers have to read: `list_mcp_resources` and `read_mcp_resource`.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_mcp::{McpServers, untrusted};
use convoke_tools::{DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ToolFailure, ToolOutput};
use serde_json::{Value, json};

/// The longest list that a model is given in one answer.
const LISTED_MAX: usize = 500;

/// Both tools.
pub(super) fn tools(servers: &Arc<McpServers>) -> [Arc<dyn DeclarativeTool>; 2] {
    [Arc::new(List(servers.clone())), Arc::new(Read(servers.clone()))]
}

fn text<'a>(args: &'a Value, name: &str) -> Result<Option<&'a str>, ToolFailure> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ToolFailure::new(ErrorType::InvalidToolParams, format!("\"{name}\" must be a text."))),
    }
}

/// `list_mcp_resources`.
struct List(Arc<McpServers>);

impl DeclarativeTool for List {
    fn name(&self) -> &'static str {
        "list_mcp_resources"
    }

    fn display_name(&self) -> &'static str {
        "ListMcpResources"
    }

    fn kind(&self) -> Kind {
        Kind::Search
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: self.name().to_owned(),
            description:
                "Lists the resources that the connected MCP servers offer, such as documents and records. Read \
                          one with read_mcp_resource."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "serverName": {"type": "string", "description": "Only the resources of this server."},
                },
            }),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        Ok(Arc::new(Listing { servers: self.0.clone(), server: text(args, "serverName")?.map(ToOwned::to_owned) }))
    }
}

struct Listing {
    servers: Arc<McpServers>,
    server: Option<String>,
}

#[async_trait]
impl Invocation for Listing {
    fn description(&self) -> String {
        match &self.server {
            Some(server) => format!("resources of {server}"),
            None => "resources of all MCP servers".to_owned(),
        }
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let resources = self.servers.resources(self.server.as_deref());
        if resources.is_empty() {
            return Ok(ToolOutput::text("No MCP resources found."));
        }
        let mut list = String::new();
        for listed in resources.iter().take(LISTED_MAX) {
            // Writing to a string can't fail.
            let _ = write!(list, "{}:{} {}", listed.server, listed.resource.uri, listed.resource.name);
            if let Some(mime) = &listed.resource.mime_type {
                let _ = write!(list, " [{mime}]");
            }
            if let Some(description) = &listed.resource.description {
                let _ = write!(list, " - {description}");
            }
            list.push('\n');
        }
        if resources.len() > LISTED_MAX {
            let _ = writeln!(list, "... and {} more; ask for one server.", resources.len() - LISTED_MAX);
        }
        Ok(ToolOutput { text: untrusted(list.trim_end()), ..ToolOutput::text(list) })
    }
}

/// `read_mcp_resource`.
struct Read(Arc<McpServers>);

impl DeclarativeTool for Read {
    fn name(&self) -> &'static str {
        "read_mcp_resource"
    }

    fn display_name(&self) -> &'static str {
        "ReadMcpResource"
    }

    fn kind(&self) -> Kind {
        Kind::Read
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: self.name().to_owned(),
            description: "Reads one resource of a connected MCP server.".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "uri": {
                        "type": "string",
                        "description": "The resource as list_mcp_resources shows it, SERVER:URI, or its URI alone.",
                    },
                },
                "required": ["uri"],
            }),
        }
    }

    fn truncates_output(&self) -> bool {
        true
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let uri = text(args, "uri")?.filter(|uri| !uri.is_empty());
        let uri = uri.ok_or_else(|| ToolFailure::new(ErrorType::InvalidToolParams, "\"uri\" is missing."))?;
        Ok(Arc::new(Reading { servers: self.0.clone(), uri: uri.to_owned() }))
    }
}

struct Reading {
    servers: Arc<McpServers>,
    uri: String,
}

#[async_trait]
impl Invocation for Reading {
    fn description(&self) -> String {
        self.uri.clone()
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let Some((server, uri)) = self.servers.find_resource(&self.uri) else {
            let message = format!("There is no MCP resource \"{}\".", self.uri);
            return Err(ToolFailure::new(ErrorType::McpResourceNotFound, message));
        };
        let read = tokio::select! {
            read = self.servers.read_resource(&server, &uri) => read,
            () = cx.cancel.cancelled() => return Err(ToolFailure::cancelled("Reading the resource was cancelled.")),
        };
        let answer = read.map_err(|error| ToolFailure::new(ErrorType::McpToolError, error.to_string()))?;
        super::tool::result(answer)
    }
}
