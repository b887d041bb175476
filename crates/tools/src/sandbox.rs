//! What may a command change, and whom may it reach?
//!
//! Inside of the sandbox a command writes in the workspace and in the folders that the user named, and has no network
//! unless the user allowed it. A call that needs more says so in its arguments, and then a person is asked, whatever
//! policy says. The kernel enforces it: see [`Confinement`].

use std::path::PathBuf;

use convoke_stdx::guard::{Confinement, Mechanism};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Access, ToolFailure, Workspace};

/// The sandbox of a session's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxOptions {
    /// What enforces it; [`Mechanism::check`] said yes.
    pub via: Mechanism,
    /// What may be written besides the workspace: the folder for temporary files, caches of build tools. Absolute.
    pub writable: Vec<PathBuf>,
    /// Whether commands may use the network.
    pub network: bool,
}

/// What one call asks for beyond the sandbox: `additional_permissions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    network: bool,
    #[serde(default)]
    write: Vec<PathBuf>,
}

/// Folders that one call may ask for; far more than an honest call needs, few enough to be read by who is asked.
const WRITE_MAX: usize = 16;

impl Wanted {
    /// The schema of the argument.
    pub(crate) fn schema() -> Value {
        json!({
            "type": "object",
            "description": "Commands run in a sandbox: they can write only in the workspace and have no network, unless \
                            the user changed that. If this one needs more, ask for exactly that; the user decides.",
            "properties": {
                "network": {"type": "boolean", "description": "The command needs the network."},
                "write": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": WRITE_MAX,
                    "description": "Absolute paths of folders outside of the workspace that it has to write in.",
                },
            },
            "additionalProperties": false,
        })
    }

    /// What a person is asked, if anything is wanted at all.
    pub(crate) fn question(&self) -> Option<String> {
        let folders: Vec<String> = self.write.iter().map(|path| path.display().to_string()).collect();
        let wants = match (self.network, folders.is_empty()) {
            (false, true) => return None,
            (true, true) => "the network".to_owned(),
            (false, false) => format!("writing in {}", folders.join(", ")),
            (true, false) => format!("the network, and writing in {}", folders.join(", ")),
        };
        Some(format!("This command asks to leave the sandbox for {wants}."))
    }

    /// Whether every path can be meant.
    pub(crate) fn check(&self) -> Result<(), ToolFailure> {
        let wrong = |what: String| Err(ToolFailure::new(crate::ErrorType::InvalidToolParams, what));
        if self.write.len() > WRITE_MAX {
            return wrong(format!("params/additional_permissions/write must have at most {WRITE_MAX} items"));
        }
        match self.write.iter().find(|path| !path.is_absolute()) {
            Some(path) => {
                wrong(format!("params/additional_permissions/write must have absolute paths, not {}", path.display()))
            }
            None => Ok(()),
        }
    }
}

impl SandboxOptions {
    /// The limits of one call.
    pub(crate) fn confinement(&self, workspace: &Workspace, wanted: &Wanted) -> Confinement {
        let roots = workspace
            .roots()
            .iter()
            .filter(|root| root.to_str().is_some_and(|root| workspace.resolve(root, Access::Write).is_ok()));
        let writable = roots.chain(&self.writable).chain(&wanted.write).cloned().collect();
        Confinement { via: self.via, writable, network: self.network || wanted.network }
    }

    /// What the model is told when a command failed in the sandbox: the failure may be the sandbox's.
    pub(crate) fn note(&self, confinement: &Confinement) -> String {
        let network = if confinement.network { "" } else { " and no network" };
        format!(
            "[The command ran in a sandbox: it could write only in the workspace{network}. If that is why it failed, \
             call again with additional_permissions.]"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(value: Value) -> Result<Wanted, serde_json::Error> {
        serde_json::from_value(value)
    }

    #[test]
    fn only_what_is_asked_for_is_put_to_a_person() {
        assert_eq!(wanted(json!({})).unwrap().question(), None);
        assert_eq!(wanted(json!({"network": false, "write": []})).unwrap().question(), None);
        let both = wanted(json!({"network": true, "write": ["/opt/a", "/opt/b"]})).unwrap();
        let asked = "This command asks to leave the sandbox for the network, and writing in /opt/a, /opt/b.";
        assert_eq!(both.question().as_deref(), Some(asked));
    }

    #[test]
    fn odd_wishes_are_refused() {
        assert!(wanted(json!({"everything": true})).is_err());
        assert!(wanted(json!({"write": ["relative"]})).unwrap().check().is_err());
        assert!(wanted(json!({"write": vec!["/a"; 17]})).unwrap().check().is_err());
        assert!(wanted(json!({"write": ["/a"], "network": true})).unwrap().check().is_ok());
    }
}
