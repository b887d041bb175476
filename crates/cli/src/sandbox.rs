//! What commands of the agent may change, reach and see, as command line, environment and settings say.

use std::path::PathBuf;

use convoke_protocol::ExitCode;
use convoke_stdx::guard::Mechanism;
use convoke_tools::{Redaction, SandboxOptions};
use serde_json::Value;

use crate::args::AgentArgs;
use crate::environment::Environment;
use crate::failure::Exit;
use crate::settings::Settings;
use crate::startup::Startup;

const SETTING: &str = "tools.sandbox";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Off,
    /// Whatever works here.
    Any,
    This(Mechanism),
}

impl Wish {
    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "" | "false" | "0" | "off" | "none" => Ok(Self::Off),
            "true" | "1" | "on" | "auto" => Ok(Self::Any),
            name => Mechanism::parse(name).map(Self::This).ok_or_else(|| {
                format!(
                    "use the sandbox \"{text}\": choose true, false, landlock or bwrap; containers are not supported"
                )
            }),
        }
    }
}

/// The sandbox of this run. Exits with 44 where one is asked for and this system can't give it.
pub(crate) fn sandbox(args: &AgentArgs, startup: &Startup) -> Result<Option<SandboxOptions>, Exit> {
    let settings = &startup.settings;
    let object = settings.get(SETTING).and_then(Value::as_object);
    let setting = match settings.get(SETTING) {
        Some(Value::Bool(on)) => Some(on.to_string()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Object(object)) => Some(object.get("enabled").is_some_and(|on| on == true).to_string()),
        Some(other) => {
            return Err(wrong(format!("use {SETTING} {other}: it must be true, false, a name or an object")));
        }
        None => None,
    };
    let variable = ["CONVOKE_SANDBOX", "GEMINI_SANDBOX"].iter().find_map(|name| startup.environment.get(name));
    let text = args.sandbox.clone().or(variable.map(ToOwned::to_owned)).or(setting).unwrap_or_default();
    let via = match Wish::parse(&text).map_err(wrong)? {
        Wish::Off => return Ok(None),
        Wish::Any => working(&Mechanism::ALL)?,
        Wish::This(mechanism) => working(&[mechanism])?,
    };
    let field = |name: &str, flat: &str| object.and_then(|object| object.get(name)).or_else(|| settings.get(flat));
    let network = field("networkAccess", "tools.sandboxNetworkAccess").is_some_and(|on| on == true);
    let allowed = field("allowedPaths", "tools.sandboxAllowedPaths").and_then(Value::as_array);
    let mut writable = vec![std::env::temp_dir()];
    for path in allowed.into_iter().flatten() {
        let path = path.as_str().map(|path| expand(path, startup)).filter(|path| path.is_absolute());
        writable.push(path.ok_or_else(|| wrong(format!("use {SETTING}.allowedPaths: each must be an absolute path")))?);
    }
    Ok(Some(SandboxOptions { via, writable, network }))
}

fn wrong(what: String) -> Exit {
    Exit::because(ExitCode::Sandbox, what)
}

fn working(mechanisms: &[Mechanism]) -> Result<Mechanism, Exit> {
    let mut reasons = Vec::new();
    for mechanism in mechanisms {
        match mechanism.check() {
            Ok(()) => return Ok(*mechanism),
            Err(reason) => reasons.push(format!("{}: {reason}", mechanism.name())),
        }
    }
    Err(wrong(format!("this system can't confine commands, so none would run ({})", reasons.join("; "))))
}

/// `~` is the folder above the one with the settings.
fn expand(path: &str, startup: &Startup) -> PathBuf {
    match (path.strip_prefix("~/"), &startup.home) {
        (Some(rest), Some(home)) => home.parent().join(rest),
        _ => PathBuf::from(path),
    }
}

/// Names of variables of this process that commands must not see because of what they look like.
///
/// Off unless the setting says so; always on in GitHub's actions, whose logs are read by others.
pub(crate) fn redacted(settings: &Settings, environment: &Environment) -> Vec<String> {
    const KEY: &str = "security.environmentVariableRedaction";
    let on_github = environment.get("GITHUB_SHA").is_some() || environment.get("SURFACE") == Some("Github");
    if !on_github && settings.flag(&format!("{KEY}.enabled")) != Some(true) {
        return Vec::new();
    }
    let list = |name: &str| settings.texts(&format!("{KEY}.{name}")).unwrap_or_default();
    let redaction = Redaction { allowed: list("allowed"), blocked: list("blocked") };
    environment.hidden_by(|name, value| redaction.hides(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes() {
        assert_eq!(Wish::parse(""), Ok(Wish::Off));
        assert_eq!(Wish::parse("True"), Ok(Wish::Any));
        assert_eq!(Wish::parse("bwrap"), Ok(Wish::This(Mechanism::Bubblewrap)));
        assert!(Wish::parse("docker").unwrap_err().contains("containers are not supported"));
    }

    #[test]
    fn variables_are_hidden_only_where_it_is_asked_for() {
        let local = Environment::of(&[("A_TOKEN", "x"), ("PLAIN", "y")]);
        assert!(redacted(&Settings::default(), &local).is_empty());
        let github = Environment::of(&[("A_TOKEN", "x"), ("PLAIN", "y"), ("GITHUB_SHA", "0")]);
        assert_eq!(redacted(&Settings::default(), &github), ["A_TOKEN"]);
    }
}
