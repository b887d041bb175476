//! Do the servers answer? They are started as for a session, asked for their lists, and ended.

use std::time::{Duration, Instant};

use convoke_mcp::{McpOptions, McpServers, ServerConfig, ServerReport, ServerState};
use convoke_protocol::ExitCode;
use serde_json::{Value, json};

use super::fail;
use crate::args::AgentArgs;
use crate::failure::{Exit, complain, print};
use crate::startup::Startup;
use crate::{agent_host, credentials, extensions, mcp, sandbox};

/// The servers that a session in this folder would have, and the names of those that settings leave out.
pub(super) fn configured(startup: &Startup) -> (Vec<ServerConfig>, Vec<String>) {
    let (extensions, warnings) = extensions::chosen(startup, &[]);
    let (settings, odd) = mcp::settings(&AgentArgs::default(), startup, &extensions);
    for warning in warnings.into_iter().chain(odd) {
        complain(&format!("warning: {warning}"));
    }
    let (used, left_out): (Vec<_>, Vec<_>) =
        settings.servers.into_iter().partition(|server| settings.selection.admits(&server.name));
    (used, left_out.into_iter().map(|server| server.name).collect())
}

/// Why nothing can be done with a server of this name.
pub(super) fn unknown(what: &str, name: &str, left_out: &[String]) -> Exit {
    let why = if left_out.iter().any(|left_out| left_out == name) {
        "it is left out by mcp.allowed or mcp.excluded"
    } else {
        "there is no such MCP server; convoke mcp list says which there are"
    };
    fail(ExitCode::Input, format!("{what} {name}: {why}"))
}

fn servers(startup: &Startup, configs: Vec<ServerConfig>) -> McpServers {
    let mut secret_variables = credentials::secret_variables(&startup.settings);
    secret_variables.extend(sandbox::redacted(&startup.settings, &startup.environment));
    let options = McpOptions {
        spawner: agent_host::spawner(),
        secret_variables,
        roots: vec![startup.workspace.clone()],
        client: ("convoke".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        tokens: startup.home.as_ref().map(mcp::tokens_file),
    };
    McpServers::new(options, configs)
}

/// How a server stands, in a word or two.
fn state(report: &ServerReport) -> &'static str {
    match report.state {
        ServerState::Ready => "ready",
        _ if report.needs_login => "needs login",
        ServerState::Idle | ServerState::Connecting => "no answer yet",
        ServerState::Waiting { .. } | ServerState::Failed | ServerState::Closed => "failed",
    }
}

fn as_json(report: &ServerReport) -> Value {
    json!({
        "name": report.name, "how": report.how, "description": report.description,
        "state": state(report), "reason": report.reason, "server": report.server, "protocol": report.protocol,
        "tools": report.tools, "toolsCutAt": report.tools_cut_at, "prompts": report.prompts, "resources": report.resources,
    })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn as_line(report: &ServerReport) -> String {
    let more = match (&report.state, &report.reason) {
        (ServerState::Ready, _) => [(report.tools, "tool"), (report.prompts, "prompt"), (report.resources, "resource")]
            .map(|(count, what)| counted(count, what))
            .join(", "),
        (_, Some(reason)) => reason.replace('\n', " "),
        (_, None) => String::new(),
    };
    format!("{:<20} {:<14} {} - {more}", report.name, state(report), report.how)
}

/// Tells of every server. One that does not answer is an answer too.
pub(super) fn list(startup: &Startup, as_object: bool, wait: u64) -> Result<(), Exit> {
    let (configs, left_out) = configured(startup);
    let reports = agent_host::runtime()?.block_on(async {
        let servers = servers(startup, configs);
        servers.start();
        servers.settled(Duration::from_secs(wait)).await;
        let reports = servers.reports();
        servers.close().await;
        reports
    });
    if as_object {
        let listed: Vec<Value> = reports.iter().map(as_json).collect();
        print(&json!({"servers": listed, "leftOut": left_out}).to_string());
        return Ok(());
    }
    if reports.is_empty() && left_out.is_empty() {
        print("no MCP servers are configured");
    }
    reports.iter().for_each(|report| print(&as_line(report)));
    left_out.iter().for_each(|name| print(&format!("{name:<20} left out by settings")));
    Ok(())
}

/// Tells of one server what it offers, or why it does not.
pub(super) fn test(startup: &Startup, name: &str, as_object: bool, wait: u64) -> Result<(), Exit> {
    let (configs, left_out) = configured(startup);
    let Some(config) = configs.into_iter().find(|config| config.name == name) else {
        return Err(unknown("test", name, &left_out));
    };
    agent_host::runtime()?.block_on(async {
        let servers = servers(startup, vec![config]);
        let began = Instant::now();
        servers.start();
        servers.settled(Duration::from_secs(wait)).await;
        let took = began.elapsed();
        let told = servers.reports().first().map(|report| tell(&servers, report, took, as_object));
        servers.close().await;
        told.unwrap_or(Ok(()))
    })
}

fn tell(servers: &McpServers, report: &ServerReport, took: Duration, as_object: bool) -> Result<(), Exit> {
    let (tools, prompts, resources) = (servers.tools(), servers.prompts(), servers.resources(None));
    let ready = report.state == ServerState::Ready;
    if as_object {
        let mut object = as_json(report);
        object["milliseconds"] = json!(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        object["tools"] = tools
            .iter()
            .map(|tool| json!({"name": tool.name, "tool": tool.tool, "description": tool.description, "schema": tool.schema}))
            .collect();
        object["prompts"] = prompts.iter().map(|listed| Value::from(listed.prompt.name.as_str())).collect();
        object["resources"] = resources.iter().map(|listed| Value::from(listed.resource.uri.as_str())).collect();
        print(&object.to_string());
    }
    if !ready {
        let reason = report.reason.as_deref().unwrap_or("it did not answer in time");
        let code = if report.needs_login { ExitCode::Auth } else { ExitCode::Failure };
        return Err(fail(code, format!("connect to {}: {reason}", report.name)));
    }
    if as_object {
        return Ok(());
    }
    print(&format!("{} - {}, ready in {:.2} s", report.name, report.how, took.as_secs_f64()));
    print(&format!("{}, protocol {}", report.server, report.protocol));
    let more = report.tools_cut_at.map(|max| format!(" (it has more than {max}; the rest is left out)"));
    print(&format!("{}{}:", counted(tools.len(), "tool"), more.unwrap_or_default()));
    for tool in &tools {
        let first = tool.description.lines().next().unwrap_or_default();
        print(&format!("  {} - {}", tool.name, convoke_stdx::cut::head(first, 200)));
    }
    print(&format!("{}:", counted(prompts.len(), "prompt")));
    prompts.iter().for_each(|listed| print(&format!("  {}", listed.prompt.name)));
    print(&format!("{}:", counted(resources.len(), "resource")));
    resources.iter().for_each(|listed| print(&format!("  {}", listed.resource.uri)));
    Ok(())
}
