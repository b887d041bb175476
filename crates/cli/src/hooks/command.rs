//! `convoke hooks`: what would run, what may, and what can be taken over from elsewhere?

use std::fs;
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::Arc;

use convoke_agent::{HookDefinition, HookSettings, HookSource, HookTrust};
use convoke_protocol::ExitCode;
use convoke_stdx::write_atomic;
use serde_json::{Map, Value, json};

use super::migrate::migrate;
use crate::args::{HooksArgs, HooksCommand};
use crate::extensions;
use crate::failure::{Exit, complain, print};
use crate::startup::Startup;

/// Does what was asked for.
pub(crate) fn run(args: &HooksArgs) -> Exit {
    let startup = match Startup::read(None, args.skip_trust) {
        Ok(startup) => startup,
        Err(exit) => return exit,
    };
    startup.warn();
    let done = match &args.command {
        HooksCommand::List { json } => {
            list(&startup, *json);
            Ok(())
        }
        HooksCommand::Trust { yes } => trust(&startup, *yes),
        HooksCommand::Migrate { from, dry_run } => take_over(&startup.workspace, from, *dry_run),
    };
    match done {
        Ok(()) => Exit::ok(),
        Err(why) => Exit::because(ExitCode::Failure, why),
    }
}

/// What a hook's state is called.
fn state(hook: &HookDefinition, all: &[Arc<HookDefinition>], trust: &dyn HookTrust) -> &'static str {
    if !hook.enabled {
        "off"
    } else if hook.may_run(all, trust) {
        "runs"
    } else {
        "not agreed to"
    }
}

fn read(startup: &Startup) -> HookSettings {
    let (extensions, odd) = extensions::installed(startup);
    for warning in odd {
        complain(&format!("warning: {warning}"));
    }
    let settings = HookSettings::read(&super::layers(startup, &extensions));
    for warning in &settings.warnings {
        complain(&format!("warning: {warning}"));
    }
    settings
}

fn list(startup: &Startup, as_json: bool) {
    let HookSettings { hooks, .. } = read(startup);
    let trust = super::trust(startup);
    if as_json {
        let listed: Vec<Value> = hooks
            .iter()
            .map(|hook| {
                json!({
                    "event": hook.event.name(), "source": hook.source.to_string(), "name": hook.name,
                    "command": hook.command, "matcher": hook.matcher, "sequential": hook.sequential,
                    "description": hook.description,
                    "timeout": u64::try_from(hook.timeout.as_millis()).unwrap_or(u64::MAX),
                    "state": state(hook, &hooks, trust.as_ref()), "digest": hook.digest(),
                })
            })
            .collect();
        print(&json!({"hooks": listed}).to_string());
        return;
    }
    if hooks.is_empty() {
        print("no hooks are configured");
    }
    for hook in &hooks {
        let matcher = hook.matcher.as_deref().filter(|text| !text.is_empty()).unwrap_or("*");
        let state = state(hook, &hooks, trust.as_ref());
        let name = hook.name.as_ref().map(|name| format!(" {name}:")).unwrap_or_default();
        print(&format!(
            "{state:<13} {:<19} {matcher:<20} {:<8}{name} {}",
            hook.event.name(),
            hook.source,
            hook.command
        ));
    }
}

fn trust(startup: &Startup, yes: bool) -> Result<(), String> {
    let HookSettings { hooks, .. } = read(startup);
    let trust = super::trust(startup);
    let is_new = |hook: &&Arc<HookDefinition>| hook.source == HookSource::Project && !trust.is_trusted(&hook.digest());
    let new: Vec<Arc<HookDefinition>> = hooks.iter().filter(is_new).cloned().collect();
    if new.is_empty() {
        print("there is nothing new to agree to");
        return Ok(());
    }
    for hook in &new {
        print(&format!("{}: {}", hook.event.name(), hook.command));
        hook.env.iter().for_each(|(name, value)| print(&format!("    {name}={value}")));
    }
    if !yes {
        print("Run these commands in this folder, as they are now? [y/N]");
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err("agree to the hooks of this folder: the answer was not yes".to_owned());
        }
    }
    trust.trust(&new)?;
    print(&format!("agreed to {}", new.len()));
    Ok(())
}

fn object(path: &Path) -> Result<Map<String, Value>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Err(format!("read {}: {error}", path.display())),
    };
    serde_json::from_str(&text).map_err(|error| format!("use {}: {error}", path.display()))
}

fn take_over(workspace: &Path, from: &Path, dry_run: bool) -> Result<(), String> {
    let theirs = object(&workspace.join(from))?;
    let (hooks, left_out) = migrate(theirs.get("hooks").unwrap_or(&Value::Null));
    left_out.iter().for_each(|what| complain(&format!("warning: not taken over: {what}")));
    let file = workspace.join(".convoke").join("settings.json");
    let mut ours = if file.exists() { object(&file)? } else { Map::new() };
    let Value::Object(present) = ours.entry("hooks").or_insert_with(|| json!({})) else {
        return Err(format!("add hooks to {}: its \"hooks\" is not an object", file.display()));
    };
    let mut count = 0;
    for (event, groups) in hooks {
        let Value::Array(groups) = groups else { continue };
        let Value::Array(list) = present.entry(event).or_insert_with(|| json!([])) else { continue };
        // Running it twice adds nothing.
        let new: Vec<Value> = groups.into_iter().filter(|group| !list.contains(group)).collect();
        count += new.len();
        list.extend(new);
    }
    let text = format!("{:#}\n", Value::Object(ours));
    if dry_run {
        print(text.trim_end());
        return Ok(());
    }
    let write = || {
        fs::create_dir_all(workspace.join(".convoke"))?;
        write_atomic(&file, text.as_bytes())
    };
    write().map_err(|error| format!("write {}: {error}", file.display()))?;
    print(&format!("{count} added to {}; agree to them with: convoke hooks trust", file.display()));
    Ok(())
}
