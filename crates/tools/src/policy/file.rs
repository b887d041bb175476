//! Policy files: TOML in the format of Gemini CLI. What do they say, and what is wrong with one?
//!
//! `[[rule]]` and `[[safety_checker]]` tables; lists of tools and command prefixes expand to their cross product. A
//! `[rule.safety_checker]` is a checker of that rule's calls. Nothing in a file is passed over: an unknown key, a value
//! that means nothing or a pattern that can't be compiled is an error with file, line and rule.
//! Source: runtime specification §6.6.

mod shape;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    ArgsPattern, Checker, CheckerKind, Decision, Mode, Priority, Rule, SAVED_FILE, Scope, Source, TextPattern, Tier,
    ToolPattern, canonical_tool_name, shell,
};
use shape::{CheckerShape, FileShape, RuleShape, ScopeShape, Texts};

// Rules are tried one after the other for every call.
const RULES_MAX: usize = 10_000;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyFile {
    /// Its rules, expanded.
    pub rules: Vec<Rule>,
    /// Its checkers, expanded.
    pub checkers: Vec<Checker>,
    /// What a person should hear about.
    pub warnings: Vec<String>,
}

/// Why a file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read policy {}:{line}: {place}{reason}", path.display())]
pub struct PolicyFileError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The rule, such as `rule 2 "no deleting": `; empty for what is in none.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

/// Reads the text of the file at `path`, whose rules are of `tier`.
pub fn parse_policy(text: &str, path: &Path, tier: Tier) -> Result<PolicyFile, PolicyFileError> {
    let reader = Reader { text, path: Arc::new(path.to_owned()), tier };
    let shape: FileShape = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.error(at, reader.place_of(at), error.message().replace('\n', " "))
    })?;
    let mut file = PolicyFile::default();
    for (index, rule) in shape.rule.into_iter().enumerate() {
        let at = rule.span().start;
        let rule = rule.into_inner();
        let named = rule.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
        let place = format!("rule {}{named}: ", index + 1);
        reader.rule(&mut file, rule, at, &place)?;
    }
    for (index, checker) in shape.safety_checker.into_iter().enumerate() {
        let at = checker.span().start;
        let place = format!("safety_checker {}: ", index + 1);
        reader.checker(&mut file, checker.into_inner(), at, &place)?;
    }
    if file.rules.len() + file.checkers.len() > RULES_MAX {
        return Err(reader.error(0, String::new(), format!("it has more than {RULES_MAX} rules")));
    }
    Ok(file)
}

struct Reader<'a> {
    text: &'a str,
    path: Arc<PathBuf>,
    tier: Tier,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    fn error(&self, at: usize, place: String, reason: impl Into<String>) -> PolicyFileError {
        PolicyFileError { path: self.path.as_ref().clone(), line: self.line(at), place, reason: reason.into() }
    }

    /// The table that a position lies in, by the headers above it.
    fn place_of(&self, at: usize) -> String {
        let until = self.text.get(..at).unwrap_or(self.text);
        // The header's own line belongs to its table.
        let rest = self.text.get(until.len()..).unwrap_or_default().split('\n').next().unwrap_or_default();
        let above = format!("{until}{rest}");
        let count = |header: &str| above.lines().filter(|line| line.trim_start().starts_with(header)).count();
        let last = above.lines().rev().map(str::trim_start).find(|line| line.starts_with("[["));
        match last {
            Some(line) if line.starts_with("[[rule]]") => format!("rule {}: ", count("[[rule]]")),
            Some(line) if line.starts_with("[[safety_checker]]") => {
                format!("safety_checker {}: ", count("[[safety_checker]]"))
            }
            Some(_) | None => String::new(),
        }
    }

    fn source(&self, at: usize) -> Source {
        Source::File { path: self.path.clone(), line: self.line(at) }
    }

    fn rule(&self, file: &mut PolicyFile, shape: RuleShape, at: usize, place: &str) -> Result<(), PolicyFileError> {
        let fail = |reason: String| self.error(at, place.to_owned(), reason);
        let decision = Decision::parse(&shape.decision)
            .ok_or_else(|| fail(format!("decision is \"{}\", not allow, deny or ask_user", shape.decision)))?;
        let p = self.fraction(shape.priority).map_err(fail)?;
        let scopes = self.scopes(shape.scope, shape.interactive).map_err(fail)?;
        let yolo_only = |scope: &Scope| scope.modes.as_deref() == Some(&[Mode::Yolo]);
        if self.tier == Tier::Extension && (decision == Decision::Allow || scopes.iter().any(yolo_only)) {
            file.warnings
                .push(fail("an extension may not allow anything; the rule is left out".to_owned()).to_string());
            return Ok(());
        }
        let is_saved = self.path.file_name().is_some_and(|name| name == SAVED_FILE);
        for scope in scopes {
            if let Some(checker) = &shape.safety_checker {
                let checker = self.one_checker(file, checker, scope.clone(), p, at).map_err(fail)?;
                file.checkers.extend(checker);
            }
            file.rules.push(Rule {
                name: shape.name.clone(),
                scope,
                decision,
                priority: Priority::new(self.tier, p),
                allow_redirection: shape.allow_redirection.unwrap_or(false),
                lasting: is_saved && decision == Decision::Allow,
                deny_message: shape.deny_message.clone(),
                source: self.source(at),
            });
        }
        Ok(())
    }

    fn checker(
        &self,
        file: &mut PolicyFile,
        shape: shape::SafetyCheckerShape,
        at: usize,
        place: &str,
    ) -> Result<(), PolicyFileError> {
        let fail = |reason: String| self.error(at, place.to_owned(), reason);
        let p = self.fraction(shape.priority.unwrap_or(0)).map_err(fail)?;
        for scope in self.scopes(shape.scope, None).map_err(fail)? {
            let checker = self.one_checker(file, &shape.checker, scope, p, at).map_err(fail)?;
            file.checkers.extend(checker);
        }
        Ok(())
    }

    fn one_checker(
        &self,
        file: &mut PolicyFile,
        shape: &CheckerShape,
        scope: Scope,
        p: u16,
        at: usize,
    ) -> Result<Option<Checker>, String> {
        let kind = match (shape.kind.as_str(), shape.name.as_str()) {
            ("in-process", "allowed-path") => CheckerKind::AllowedPath,
            ("in-process", "conseca") => {
                let line = self.line(at);
                file.warnings.push(format!(
                    "{}:{line}: the checker \"conseca\" needs a service that is not part of this agent; it is left out",
                    self.path.display()
                ));
                return Ok(None);
            }
            ("in-process", name) => return Err(format!("there is no in-process checker \"{name}\"")),
            ("external", name) => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
                    return Err(format!("the external checker \"{name}\" is no plain file name"));
                }
                let folder = self.path.parent().unwrap_or(Path::new("."));
                CheckerKind::External(folder.join("checkers").join(name))
            }
            (kind, _) => return Err(format!("the checker's type is \"{kind}\", not external or in-process")),
        };
        let config = shape
            .config
            .clone()
            .map_or(serde_json::Value::Null, |config| serde_json::to_value(config).unwrap_or(serde_json::Value::Null));
        Ok(Some(Checker {
            name: shape.name.clone(),
            scope,
            priority: Priority::new(self.tier, p),
            kind,
            config,
            source: self.source(at),
        }))
    }

    fn fraction(&self, priority: i64) -> Result<u16, String> {
        u16::try_from(priority)
            .ok()
            .filter(|p| *p <= Priority::MAX)
            .ok_or_else(|| format!("priority is {priority}, not 0 to {}", Priority::MAX))
    }

    /// One scope for each tool and each pattern.
    fn scopes(&self, shape: ScopeShape, interactive: Option<bool>) -> Result<Vec<Scope>, String> {
        let patterns = patterns(&shape)?;
        let tools = match shape.tool_name {
            None => vec!["*".to_owned()],
            Some(tools) => tools.into_vec(),
        };
        let modes = modes(shape.modes.unwrap_or_default())?;
        let mut scopes = Vec::new();
        for tool in &tools {
            if tool.trim().is_empty() {
                return Err("toolName is empty".to_owned());
            }
            for args in &patterns {
                // Behind a server's name stands its own name for the tool, which is no alias of one of ours.
                let tool = if shape.mcp_name.is_some() { tool } else { canonical_tool_name(tool) };
                let mut scope = Scope::of(ToolPattern::parse(tool));
                scope.mcp_server.clone_from(&shape.mcp_name);
                scope.subagent.clone_from(&shape.subagent);
                scope.annotations = shape.tool_annotations.clone().unwrap_or_default();
                scope.args.clone_from(args);
                scope.modes.clone_from(&modes);
                scope.interactive = interactive;
                scopes.push(scope);
            }
        }
        Ok(scopes)
    }
}

fn modes(names: Vec<String>) -> Result<Option<Vec<Mode>>, String> {
    let mut modes = Vec::new();
    for name in names {
        let mode = Mode::ALL.into_iter().find(|mode| mode.in_files() == name);
        modes.push(mode.ok_or_else(|| format!("modes has \"{name}\", not default, autoEdit, yolo or plan"))?);
    }
    Ok((!modes.is_empty()).then_some(modes))
}

fn patterns(shape: &ScopeShape) -> Result<Vec<Option<ArgsPattern>>, String> {
    let about_commands = shape.command_prefix.is_some() || shape.command_regex.is_some();
    let is_shell = match &shape.tool_name {
        Some(Texts::One(name)) => canonical_tool_name(name) == shell::TOOL,
        Some(Texts::Many(names)) => matches!(names.as_slice(), [name] if canonical_tool_name(name) == shell::TOOL),
        None => false,
    };
    if about_commands && !is_shell {
        return Err("commandPrefix and commandRegex need toolName = \"run_shell_command\"".to_owned());
    }
    let text = |key: &str, pattern: &str| {
        let pattern = TextPattern::new(pattern).map_err(|why| format!("{key} can't be used: {why}"))?;
        Ok::<_, String>(Some(ArgsPattern::Text(pattern)))
    };
    match (&shape.args_pattern, &shape.command_prefix, &shape.command_regex) {
        (None, None, None) => Ok(vec![None]),
        (Some(pattern), None, None) => Ok(vec![text("argsPattern", pattern)?]),
        (None, None, Some(regex)) => Ok(vec![text("commandRegex", &format!("\"command\":\"{regex}"))?]),
        (None, Some(prefixes), None) => {
            let mut patterns = Vec::new();
            for prefix in prefixes.clone().into_vec() {
                let words: Vec<String> = prefix.split_whitespace().map(str::to_owned).collect();
                if words.is_empty() {
                    return Err("commandPrefix is empty".to_owned());
                }
                patterns.push(Some(ArgsPattern::CommandPrefix(words)));
            }
            Ok(patterns)
        }
        _ => Err("argsPattern, commandPrefix and commandRegex exclude each other".to_owned()),
    }
}
