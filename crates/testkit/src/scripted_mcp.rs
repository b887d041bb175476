//! An MCP server that writes its JSON by hand, so that it can be wrong in every way that a server can be.
//!
//! Protocol 2025-06-18 over stdin and stdout, one message a line, one at a time.

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

/// What the server does beside answering.
#[derive(Clone, Debug, Default)]
pub struct McpScript {
    /// Appends every message that comes to this file.
    pub log: Option<PathBuf>,
    /// Writes lines that are no messages before each answer.
    pub garbage: bool,
    /// Answers nothing at all.
    pub silent: bool,
    /// Says something on stderr and exits.
    pub exit: bool,
    /// Answers `tools/list` with pages of ten without end.
    pub endless: bool,
    /// Holds the handshake back until this file exists.
    pub wait_for: Option<PathBuf>,
    /// Offers no tools, prompts or resources.
    pub empty: bool,
}

impl McpScript {
    /// Reads `--log FILE`, `--garbage`, `--silent`, `--exit`, `--endless`, `--wait-for FILE`, `--empty`.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Option<Self> {
        let (mut script, mut args) = (Self::default(), args.into_iter());
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--log" => script.log = Some(args.next()?.into()),
                "--wait-for" => script.wait_for = Some(args.next()?.into()),
                "--garbage" => script.garbage = true,
                "--silent" => script.silent = true,
                "--exit" => script.exit = true,
                "--endless" => script.endless = true,
                "--empty" => script.empty = true,
                _ => return None,
            }
        }
        Some(script)
    }
}

/// The binary of [`run_scripted_mcp`], beside the running test.
#[must_use]
pub fn scripted_mcp_binary() -> PathBuf {
    crate::binary::binary_beside_tests("scripted-mcp-server")
}

/// Serves until `input` ends or a tool says so.
pub fn run_scripted_mcp(script: McpScript, input: impl BufRead, output: impl Write) -> std::io::Result<()> {
    let mut server = Server { script, output, grown: false };
    for line in input.lines() {
        let line = line?;
        if let Some(path) = &server.script.log {
            writeln!(OpenOptions::new().create(true).append(true).open(path)?, "{line}")?;
        }
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if server.script.silent {
            continue;
        }
        if !server.take(&message)? {
            break;
        }
    }
    Ok(())
}

pub(crate) struct Server<W> {
    pub(crate) script: McpScript,
    pub(crate) output: W,
    pub(crate) grown: bool,
}

impl<W: Write> Server<W> {
    fn send(&mut self, message: &Value) -> std::io::Result<()> {
        if self.script.garbage {
            self.output.write_all(b"loading plugins...\n{\"jsonrpc\": \n\xff\xfe\n\n[1, 2]\n\"text\"\n")?;
        }
        writeln!(self.output, "{message}")?;
        self.output.flush()
    }

    /// Whether to go on.
    pub(crate) fn take(&mut self, message: &Value) -> std::io::Result<bool> {
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        let Some(id) = message.get("id").filter(|_| !method.is_empty()) else { return Ok(true) };
        let result = match method {
            "initialize" => {
                while self.script.wait_for.as_ref().is_some_and(|path| !path.exists()) {
                    std::thread::yield_now();
                }
                self.hello(params)
            }
            "ping" => json!({}),
            "tools/list" => self.tools(params),
            "tools/call" => match self.call(params)? {
                Some(result) => result,
                None if params["name"] == "crash" => return Ok(false),
                None => return Ok(true),
            },
            "prompts/list" => json!({"prompts": [{
                "name": "greet", "description": "Greets somebody.",
                "arguments": [{"name": "who", "description": "Whom to greet.", "required": true}],
            }]}),
            "prompts/get" => {
                let who = params["arguments"]["who"].as_str().unwrap_or("nobody");
                let text = format!("Say hello to {who}.");
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
            }
            "resources/list" => {
                json!({"resources": [{"uri": "note://one", "name": "one", "mimeType": "text/plain"}]})
            }
            "resources/read" => {
                let uri = params["uri"].as_str().unwrap_or_default();
                json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": format!("the text of {uri}")}]})
            }
            _ => {
                let error = json!({"code": -32601, "message": format!("Method not found: {method}")});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}))?;
                return Ok(true);
            }
        };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
        if method == "tools/call" && params["name"] == "grow" {
            self.grown = true;
            self.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))?;
        }
        Ok(true)
    }

    fn hello(&self, params: &Value) -> Value {
        let capabilities = match self.script.empty {
            true => json!({}),
            false => json!({"tools": {"listChanged": true}, "prompts": {}, "resources": {}}),
        };
        let version = params["protocolVersion"].as_str().filter(|asked| *asked < "2025-06-18").unwrap_or("2025-06-18");
        json!({
            "protocolVersion": version, "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1"},
            "instructions": "Use echo to hear yourself.",
        })
    }

    fn tools(&self, params: &Value) -> Value {
        if self.script.endless {
            let page: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
            let tool = |n: usize| json!({"name": format!("tool_{}", page * 10 + n), "inputSchema": {"type": "object"}});
            return json!({"tools": (0..10).map(tool).collect::<Vec<_>>(), "nextCursor": (page + 1).to_string()});
        }
        let named = |name: &str, description: &str| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let tree = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}},
        });
        let mut tools = vec![
            json!({
                "name": "echo", "title": "Echo", "description": "Says it again.", "inputSchema": text,
                "annotations": {"readOnlyHint": true},
            }),
            json!({"name": "tree", "description": "Takes a tree.", "inputSchema": tree}),
            named("variable", "A variable of the environment."),
            named("folder", "Where the server runs."),
            named("steps", "Works in steps and tells of them."),
            named("fail", "Fails."),
            named("media", "Gives a picture."),
            named("hang", "Never answers."),
            named("crash", "Ends the server."),
            named("grow", "Adds a tool."),
            named("with_under_scores", "Has a name with underscores."),
        ];
        if self.grown {
            tools.push(named("grown", "Was added."));
        }
        // Every page has two tools, so that a client that reads one page only is found out.
        let from: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let page: Vec<_> = tools.iter().skip(from).take(2).cloned().collect();
        match from + 2 < tools.len() {
            true => json!({"tools": page, "nextCursor": (from + 2).to_string()}),
            false => json!({"tools": page}),
        }
    }

    /// The result; `None` for a tool that gives none.
    fn call(&mut self, params: &Value) -> std::io::Result<Option<Value>> {
        let args = &params["arguments"];
        let said = |text: String| Some(json!({"content": [{"type": "text", "text": text}]}));
        Ok(match params["name"].as_str().unwrap_or_default() {
            "echo" | "with_under_scores" => said(args["text"].as_str().unwrap_or("nothing").to_owned()),
            "tree" => said(args["tree"].to_string()),
            "variable" => {
                said(std::env::var(args["name"].as_str().unwrap_or_default()).unwrap_or_else(|_| "unset".into()))
            }
            "folder" => said(std::env::current_dir()?.display().to_string()),
            "steps" => {
                let token = &params["_meta"]["progressToken"];
                for step in 1..=3 {
                    let params = json!({"progressToken": token, "progress": step, "total": 3, "message": format!("step {step}")});
                    self.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))?;
                }
                said("three steps".to_owned())
            }
            "fail" => Some(json!({"content": [{"type": "text", "text": "it failed"}], "isError": true})),
            "media" => Some(json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]})),
            "grow" => said("grown".to_owned()),
            "grown" => said("was added".to_owned()),
            _ => None,
        })
    }
}
