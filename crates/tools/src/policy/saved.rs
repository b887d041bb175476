//! The file of lasting answers: which rule is written, and how does the file survive it?
//!
//! Rules are appended to what is there, in the format of every other policy file, and the file is replaced at once.
//! One that can't be read as a policy is left alone.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use toml::Value;

use super::{ArgsPattern, Mode, Rule, Tier, parse_policy};

/// The file's name in a folder of policies. What it allows only takes questions away.
pub const SAVED_FILE: &str = "auto-saved.toml";

// A person answers now and then; a file that long was not made by answers.
const BYTES_MAX: usize = 1 << 20;

/// Why a lasting answer was not kept beyond the session.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// There is no place for it.
    #[error("save a lasting answer: there is no file for them")]
    Nowhere,
    /// The file can't be read or written.
    #[error("save a lasting answer to {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is in the file is no policy.
    #[error("save a lasting answer to {path}: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Adds `rules` to the file, but for those that are there.
pub(super) fn append(path: &Path, rules: &[Rule]) -> Result<(), SaveError> {
    let failed = |source| SaveError::File { path: path.to_owned(), source };
    let unusable = |reason| SaveError::Unusable { path: path.to_owned(), reason };
    let mut text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed)?;
            }
            "# Written for answers of the kind \"always allow\". Remove a rule to be asked again.\n".to_owned()
        }
        Err(error) => return Err(failed(error)),
    };
    let known = parse_policy(&text, path, Tier::User).map_err(|error| unusable(error.to_string()))?.rules;
    for rule in rules {
        let is_known = known.iter().any(|known| known.scope == rule.scope && known.decision == rule.decision);
        if !is_known {
            text.push_str(&render(rule));
        }
    }
    if text.len() > BYTES_MAX {
        return Err(unusable("it is too long".to_owned()));
    }
    convoke_stdx::write_atomic(path, text.as_bytes()).map_err(failed)
}

fn render(rule: &Rule) -> String {
    let mut out = "\n[[rule]]\n".to_owned();
    let mut member = |key: &str, value: Value| {
        // Writing to a string can't fail.
        let _ = writeln!(out, "{key} = {value}");
    };
    member("toolName", rule.scope.tool.to_string().into());
    if let Some(server) = &rule.scope.mcp_server {
        member("mcpName", server.as_str().into());
    }
    match &rule.scope.args {
        Some(ArgsPattern::CommandPrefix(words)) => member("commandPrefix", words.join(" ").into()),
        Some(ArgsPattern::Text(pattern)) => member("argsPattern", pattern.source().into()),
        Some(ArgsPattern::PlanFiles) | None => {}
    }
    member("decision", rule.decision.as_str().into());
    member("priority", Value::Integer(950));
    let modes = rule.scope.modes.clone().unwrap_or_else(|| Mode::ALL.to_vec());
    member("modes", modes.into_iter().map(|mode| Value::from(mode.in_files())).collect::<Vec<_>>().into());
    out
}
