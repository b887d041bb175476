//! Prompts of servers as commands: what are they called, and what do they take?
//!
//! `/NAME` where nothing else has that name, `/SERVER:NAME` always. Arguments are `--name=value`, `--name="two words"`, or
//! stand in the order that the server gives them in, the last one taking the rest. Source: runtime specification §14.

use std::collections::HashSet;

use convoke_mcp::{Answer, McpPrompt, PromptArgument};
use convoke_protocol::CommandInfo;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::ServersAtHand;

impl ServersAtHand {
    /// The commands that the prompts of the servers are now, under names that `taken` has not.
    pub(crate) fn commands(&self, taken: &[CommandInfo]) -> Vec<CommandInfo> {
        let taken = taken.iter().map(|command| command.name.as_str());
        named(self.servers.prompts(), taken).into_iter().map(|(name, listed)| info(name, &listed)).collect()
    }

    /// The prompt that a command means, once the servers are there.
    pub(crate) async fn prompt_of(
        &self,
        command: &str,
        taken: &[CommandInfo],
        cancel: &CancellationToken,
    ) -> Option<McpPrompt> {
        if self.servers.is_empty() {
            return None;
        }
        self.started(cancel).await;
        let prompts = self.servers.prompts();
        let full = prompts.iter().find(|listed| full_name(listed) == command).cloned();
        let taken = taken.iter().map(|command| command.name.as_str());
        full.or_else(|| Some(named(prompts, taken).into_iter().find(|(name, _)| name == command)?.1))
    }

    /// What the prompt says with these arguments.
    pub(crate) async fn render(
        &self,
        listed: &McpPrompt,
        args: &str,
        cancel: &CancellationToken,
    ) -> Result<Answer, String> {
        let arguments = arguments(&listed.prompt.arguments, args)?;
        let asked = self.servers.prompt(&listed.server, &listed.prompt.name, arguments);
        let answer = cancel.run_until_cancelled(asked).await;
        answer.ok_or("it was cancelled")?.map_err(|error| error.to_string())
    }
}

/// As much of a name as a command may have.
fn typed(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || matches!(c, ':' | '-' | '_' | '.') { c } else { '_' }).collect()
}

fn full_name(listed: &McpPrompt) -> String {
    typed(&format!("{}:{}", listed.server, listed.prompt.name))
}

fn named<'a>(prompts: Vec<McpPrompt>, taken: impl Iterator<Item = &'a str>) -> Vec<(String, McpPrompt)> {
    let mut taken: HashSet<String> = taken.map(ToOwned::to_owned).collect();
    let name = |listed: McpPrompt| {
        let names = [typed(&listed.prompt.name), full_name(&listed)];
        let free = names.into_iter().find(|name| !name.is_empty() && !taken.contains(name))?;
        taken.insert(free.clone());
        Some((free, listed))
    };
    prompts.into_iter().filter_map(name).collect()
}

fn info(name: String, listed: &McpPrompt) -> CommandInfo {
    let hint = |argument: &PromptArgument| match argument.required {
        true => format!("<{}>", argument.name),
        false => format!("[{}]", argument.name),
    };
    let hints: Vec<String> = listed.prompt.arguments.iter().map(hint).collect();
    let first = listed.prompt.description.lines().next().unwrap_or_default();
    CommandInfo {
        name,
        description: match first {
            "" => format!("a prompt of {}", listed.server),
            first => format!("{} ({})", convoke_stdx::cut::head(first, 200), listed.server),
        },
        hint: (!hints.is_empty()).then(|| hints.join(" ")),
    }
}

/// A word of a command line, and where what follows it begins.
struct Word<'a> {
    text: String,
    rest: &'a str,
    /// Nothing of it was quoted.
    plain: bool,
}

/// The next word; quotes hold words together, and a backslash holds a quote.
fn word(line: &str) -> Option<Word<'_>> {
    let line = line.trim_start();
    let (mut text, mut quote, mut plain) = (String::new(), None, true);
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => {
                return Some(Word { text, rest: line.get(at..).unwrap_or_default(), plain });
            }
            // Within a word it is an apostrophe.
            (None, '"') => (quote, plain) = (Some(c), false),
            (None, '\'') if text.is_empty() || text.ends_with('=') => (quote, plain) = (Some(c), false),
            (Some(open), c) if open == c => quote = None,
            (Some('"'), '\\') => text.extend(chars.next().map(|(_, c)| c)),
            (_, c) => text.push(c),
        }
    }
    (!line.is_empty()).then_some(Word { text, rest: "", plain })
}

/// The arguments that `line` gives to a prompt that takes `known`. `Err` says what is wrong.
fn arguments(known: &[PromptArgument], line: &str) -> Result<Map<String, Value>, String> {
    let mut given = Map::new();
    let mut rest = line.trim();
    let mut positional = Vec::new();
    while let Some(next) = word(rest) {
        match next.text.strip_prefix("--").and_then(|pair| pair.split_once('=')) {
            Some((name, value)) if known.iter().any(|argument| argument.name == name) => {
                given.insert(name.to_owned(), Value::from(value));
            }
            Some((name, _)) if positional.is_empty() => {
                let names: Vec<&str> = known.iter().map(|argument| argument.name.as_str()).collect();
                return Err(format!("it takes no \"{name}\", but: {}", names.join(", ")));
            }
            _ => positional.push((next.text, rest.trim_start(), next.plain)),
        }
        rest = next.rest;
    }
    let free: Vec<&PromptArgument> = known.iter().filter(|argument| !given.contains_key(&argument.name)).collect();
    let last = free.len().saturating_sub(1);
    let mut words = positional.into_iter().peekable();
    for (at, argument) in free.iter().enumerate() {
        let Some((mut text, from, plain)) = words.next() else { break };
        if at == last && words.peek().is_some() {
            // The rest as it was typed, unless that would be a quoted word with more behind it.
            let more: Vec<String> = words.by_ref().map(|(text, ..)| text).collect();
            text = if plain { from.trim_end().to_owned() } else { format!("{text} {}", more.join(" ")) };
        }
        given.insert(argument.name.clone(), Value::from(text));
    }
    if words.next().is_some() {
        return Err("it takes no arguments".to_owned());
    }
    let missing = known.iter().find(|argument| argument.required && !given.contains_key(&argument.name));
    match missing {
        Some(argument) => Err(format!("it needs \"{}\": say --{0}=…", argument.name)),
        None => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use convoke_mcp::PromptInfo;
    use serde_json::json;

    use super::*;

    fn argument(name: &str, required: bool) -> PromptArgument {
        PromptArgument { name: name.to_owned(), description: String::new(), required }
    }

    fn listed(server: &str, name: &str) -> McpPrompt {
        let prompt = PromptInfo {
            name: name.to_owned(),
            description: "Greets.\nAt length.".to_owned(),
            arguments: vec![argument("who", true), argument("how", false)],
        };
        McpPrompt { server: server.to_owned(), prompt }
    }

    #[test]
    fn names_are_short_where_they_are_free() {
        let all = vec![listed("a", "greet"), listed("b", "greet"), listed("b", "help"), listed("b", "say hi")];
        let names: Vec<String> = named(all, ["help"].into_iter()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["greet", "b:greet", "b:help", "say_hi"]);
        let told = info("greet".to_owned(), &listed("a", "greet"));
        assert_eq!((told.description.as_str(), told.hint.as_deref()), ("Greets. (a)", Some("<who> [how]")));
    }

    #[test]
    fn arguments_have_names_or_places() {
        let known = [argument("who", true), argument("how", false)];
        for (line, expected) in [
            ("Ada", json!({"who": "Ada"})),
            ("Ada very  kindly", json!({"who": "Ada", "how": "very  kindly"})),
            ("\"Ada L.\" kindly", json!({"who": "Ada L.", "how": "kindly"})),
            ("--how=\"with joy\" Ada it's", json!({"how": "with joy", "who": "Ada it's"})),
            ("--who='Ada L.' --how=x", json!({"who": "Ada L.", "how": "x"})),
            ("--who=\"a \\\"b\\\"\"", json!({"who": "a \"b\""})),
        ] {
            assert_eq!(arguments(&known, line), Ok(expected.as_object().unwrap().clone()), "{line}");
        }
        assert!(arguments(&known, "").unwrap_err().contains("--who"));
        assert!(arguments(&known, "--what=x").unwrap_err().contains("no \"what\""));
        assert!(arguments(&[], "x").unwrap_err().contains("no arguments"));
        assert_eq!(arguments(&[], " "), Ok(Map::new()));
    }
}
