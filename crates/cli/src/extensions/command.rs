//! `convoke extensions`: install, list, update, uninstall.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use convoke_protocol::ExitCode;

use super::{Extension, installed, store};
use crate::args::ExtensionsCommand;
use crate::failure::{Exit, complain, print};
use crate::home::Home;
use crate::startup::Startup;

/// Runs one of the commands.
pub(crate) fn run(command: &ExtensionsCommand) -> Exit {
    let done = Startup::read(None, false).and_then(|startup| match command {
        ExtensionsCommand::List => {
            list(&startup);
            Ok(())
        }
        ExtensionsCommand::Install { source, consent } => install(&startup, source, *consent),
        ExtensionsCommand::Update { name, all } => update(&startup, name.as_deref(), *all),
        ExtensionsCommand::Uninstall { name } => uninstall(&startup, name),
    });
    match done {
        Ok(()) => Exit::ok(),
        Err(exit) => exit,
    }
}

fn fail(why: impl std::fmt::Display) -> Exit {
    Exit::because(ExitCode::Failure, why)
}

fn home(startup: &Startup) -> Result<&Home, Exit> {
    startup.home.as_ref().ok_or_else(|| fail("find the home folder: neither CONVOKE_HOME nor HOME is set"))
}

/// `--list-extensions` says the same.
pub(crate) fn list(startup: &Startup) {
    let (extensions, warnings) = installed(startup);
    for warning in warnings {
        complain(&format!("warning: {warning}"));
    }
    if extensions.is_empty() {
        print("No extensions installed.");
    }
    for Extension { name, version, folder, context_files, mcp_servers, .. } in extensions {
        print(&format!("{name} ({version})\n  Path: {}", folder.display()));
        for file in context_files {
            print(&format!("  Context: {}", file.display()));
        }
        for server in mcp_servers.keys() {
            print(&format!("  MCP server: {server}"));
        }
    }
}

fn install(startup: &Startup, source: &str, consent: bool) -> Result<(), Exit> {
    let path = PathBuf::from(source);
    if !path.is_dir() {
        let why = "it is not a folder; extensions are installed from folders of this machine";
        return Err(fail(format!("install \"{source}\": {why}")));
    }
    let path = path.canonicalize().map_err(|error| fail(format!("install \"{source}\": {error}")))?;
    let extension = Extension::read(&path).map_err(fail)?;
    if installed(startup).0.iter().any(|other| other.name == extension.name) {
        let why = format!("install \"{}\": it is installed already; uninstall or update it", extension.name);
        return Err(fail(why));
    }
    print(&format!("Installing extension \"{}\" ({}).", extension.name, extension.version));
    tell_what_it_brings(&extension);
    if !consent && !agreed() {
        return Err(fail(format!("install \"{}\": cancelled", extension.name)));
    }
    put(startup, &path, &extension)?;
    print(&format!("Extension \"{}\" installed successfully and enabled.", extension.name));
    Ok(())
}

fn put(startup: &Startup, source: &Path, extension: &Extension) -> Result<(), Exit> {
    let put = store::install(home(startup)?, source, extension);
    put.map(drop).map_err(|error| fail(format!("install \"{}\": {error}", extension.name)))
}

/// What consent is asked for.
fn tell_what_it_brings(extension: &Extension) {
    print("Extensions may bring programs that run on this machine, and words that the agent follows.");
    for (name, server) in &extension.mcp_servers {
        let command = server.get("command").or_else(|| server.get("url")).or_else(|| server.get("httpUrl"));
        let command = command.and_then(serde_json::Value::as_str).unwrap_or("?");
        print(&format!("  MCP server {name}: {command}"));
    }
    for hook in extension.hook_commands() {
        print(&format!("  hook: {hook}"));
    }
    for part in ["skills", "agents", "commands"] {
        if extension.part(part).is_dir() {
            print(&format!("  {part}"));
        }
    }
    if !extension.exclude_tools.is_empty() {
        print(&format!("  Without the tools: {}", extension.exclude_tools.join(", ")));
    }
    print("Do you want to continue? [y/N]:");
}

/// A line that says yes. Nothing on stdin is no.
fn agreed() -> bool {
    let mut line = String::new();
    // Longer answers are none.
    let read = std::io::Read::take(std::io::stdin().lock(), 64).read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn update(startup: &Startup, name: Option<&str>, all: bool) -> Result<(), Exit> {
    let extensions = installed(startup).0;
    let chosen: Vec<&Extension> =
        extensions.iter().filter(|extension| all || name == Some(extension.name.as_str())).collect();
    if let (Some(name), true) = (name, chosen.is_empty()) {
        return Err(fail(format!("update \"{name}\": it is not installed")));
    }
    for extension in chosen {
        let name = &extension.name;
        let Some(source) = store::origin(extension) else {
            return Err(fail(format!("update \"{name}\": where it came from is not known")));
        };
        let newer = Extension::read(&source).map_err(fail)?;
        if newer.name != *name {
            return Err(fail(format!("update \"{name}\": its source is now \"{}\"", newer.name)));
        }
        if newer.version == extension.version {
            print(&format!("Extension \"{name}\" is already up to date."));
            continue;
        }
        // What was agreed to was what the installed one runs.
        if newer.programs() != extension.programs() {
            print(&format!("Version {} of \"{name}\" runs other programs than the installed one.", newer.version));
            tell_what_it_brings(&newer);
            if !agreed() {
                return Err(fail(format!("update \"{name}\": cancelled")));
            }
        }
        put(startup, &source, &newer)?;
        print(&format!("Extension \"{name}\" successfully updated: {} → {}.", extension.version, newer.version));
    }
    Ok(())
}

fn uninstall(startup: &Startup, name: &str) -> Result<(), Exit> {
    let extension = installed(startup).0.into_iter().find(|extension| extension.name == name);
    let Some(extension) = extension else { return Err(fail(format!("uninstall \"{name}\": it is not installed"))) };
    if !extension.folder.starts_with(home(startup)?.folder()) {
        let why = "it belongs to Gemini CLI, whose folder is only read";
        return Err(fail(format!("uninstall \"{name}\": {why}")));
    }
    std::fs::remove_dir_all(&extension.folder).map_err(|error| fail(format!("uninstall \"{name}\": {error}")))?;
    print(&format!("Extension \"{name}\" successfully uninstalled."));
    Ok(())
}
