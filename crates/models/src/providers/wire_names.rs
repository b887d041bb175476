//! Names of tools on the wire: what does a tool with a name that a protocol refuses travel as?
//!
//! Tools of MCP servers may have `.` and `:` in their names, and other tools any length. OpenAI and Anthropic take
//! letters, digits, `_` and `-`, 64 of them. Names that fit stay as they are; the others are made to fit, and numbered
//! where they would meet another tool's. The table is made of the request alone, so that the body and the answer's
//! reader agree without sharing anything.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use convoke_adk::LlmRequest;

/// The longest name that both protocols take.
const NAME_MAX: usize = 64;

/// The names of one request's tools.
#[derive(Debug, Default)]
pub(super) struct WireNames {
    /// Only those that travel under another name than their own; bounded by the tools on offer.
    renamed: HashMap<String, String>,
}

impl WireNames {
    pub(super) fn of(request: &LlmRequest) -> Self {
        Self::of_names(request.tools.keys().map(String::as_str))
    }

    fn of_names<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        // Those that fit have the first choice, whatever the order: a name must not be taken from its owner.
        let mut taken: HashSet<String> = names.clone().filter(|name| fits(name)).map(str::to_owned).collect();
        let mut renamed = HashMap::new();
        for name in names.filter(|name| !fits(name)) {
            let first = plain(name);
            let mut wire = first.clone();
            let mut number = 2;
            while !taken.insert(wire.clone()) {
                let end = format!("_{number}");
                let head = first.get(..first.len().min(NAME_MAX - end.len())).unwrap_or_default();
                wire = format!("{head}{end}");
                number += 1;
            }
            renamed.insert(name.to_owned(), wire);
        }
        Self { renamed }
    }

    /// What the tool is called on the wire. A tool that is no longer on offer may still be named in the conversation.
    pub(super) fn wire<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match self.renamed.get(name) {
            Some(wire) => Cow::Owned(wire.clone()),
            None if fits(name) => Cow::Borrowed(name),
            None => Cow::Owned(plain(name)),
        }
    }

    /// The tools' own names by those that were sent.
    pub(super) fn back(self) -> HashMap<String, String> {
        self.renamed.into_iter().map(|(name, wire)| (wire, name)).collect()
    }
}

fn fits(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_plain)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn plain(name: &str) -> String {
    let as_plain = |c: char| u8::try_from(c).ok().filter(|byte| is_plain(*byte)).map_or('_', char::from);
    let plain: String = name.chars().take(NAME_MAX).map(as_plain).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_differ_and_come_back() {
        let long = format!("mcp_server_{}...{}", "a".repeat(40), "b".repeat(40));
        let names = ["mcp_a.b", "mcp_a:b", "mcp_a_b", "mcp_a_b_2", "read_file", &long, &format!("{long}x"), "ü", ""];
        let table = WireNames::of_names(names.iter().copied());
        let wires: Vec<String> = names.iter().map(|name| table.wire(name).into_owned()).collect();
        assert_eq!(wires[..5], ["mcp_a_b_3", "mcp_a_b_4", "mcp_a_b", "mcp_a_b_2", "read_file"]);
        assert!(wires.iter().all(|wire| fits(wire)), "{wires:?}");
        assert_eq!(wires.iter().collect::<HashSet<_>>().len(), names.len(), "{wires:?}");
        let back = table.back();
        for (name, wire) in names.iter().zip(&wires) {
            assert_eq!(back.get(wire).map_or(wire.as_str(), String::as_str), *name);
        }
        assert_eq!(back.len(), 6, "a name that fits is in no table");
    }

    #[test]
    fn a_tool_that_is_gone_still_has_a_name_that_fits() {
        assert_eq!(WireNames::default().wire("mcp_gone.tool"), "mcp_gone_tool");
    }
}
