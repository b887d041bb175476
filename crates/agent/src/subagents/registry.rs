//! Which subagents are there, and what is wrong with the files of the others?

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::Value;

use super::a2a::Variables;
use super::acknowledge::{Acknowledgements, hash};
use super::definition::{AgentDefinition, AgentKind, AgentOverride, AgentSource, tool_patterns};
use super::documents::Document;
use super::{builtin, front_matter};

/// Most bytes of a definition: beyond this it is no instruction.
const FILE_MAX: u64 = 256 << 10;
/// Most files of one folder, and most agents: each is told to the model in every request.
const AGENTS_MAX: usize = 128;

/// What subagents are made from.
#[derive(Clone, Debug)]
pub struct SubagentOptions {
    /// Whether there are any.
    pub enabled: bool,
    /// Our own documents, for the agent that answers questions about this program.
    pub documents: &'static [Document],
    /// Folders of extensions, which the user installed, weakest first.
    pub extension_folders: Vec<PathBuf>,
    /// Folders with the user's definitions, weakest first.
    pub user_folders: Vec<PathBuf>,
    /// Folders with definitions, below a session's working folder, weakest first; empty where it is not trusted.
    pub workspace_folders: Vec<PathBuf>,
    /// What the settings say about agents, by name.
    pub overrides: BTreeMap<String, AgentOverride>,
    /// Where the user's yes to agents of a workspace is remembered.
    pub acknowledgements: Acknowledgements,
    /// Where the secrets are that definitions of remote agents name.
    pub variables: Variables,
    /// How deep agents may call agents: 1 lets the session's own agent call others, which call none.
    pub depth_max: usize,
    /// What the turn costs at most in which a subagent that met a limit hands in what it has.
    pub recovery_grace: Duration,
}

impl Default for SubagentOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            documents: &[],
            extension_folders: Vec::new(),
            user_folders: Vec::new(),
            workspace_folders: Vec::new(),
            overrides: BTreeMap::new(),
            acknowledgements: Acknowledgements::default(),
            variables: Variables::default(),
            depth_max: 1,
            // Source: runtime specification §12.4.
            recovery_grace: Duration::from_secs(60),
        }
    }
}

/// The subagents of a session.
#[derive(Clone, Debug, Default)]
pub struct AgentRegistry {
    agents: IndexMap<String, Arc<AgentDefinition>>,
    problems: Vec<AgentProblem>,
}

/// Something that keeps an agent from being there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use agent {place}: {message}")]
pub struct AgentProblem {
    /// The file, or the settings key.
    pub place: String,
    /// What is wrong, naming the key.
    pub message: String,
}

impl AgentRegistry {
    /// The built-in agents, those of extensions, those in the user's folders, and those of `workspace`; each takes the place of earlier ones
    /// with its name. What can't be used is told, and does no harm to the others.
    #[must_use]
    pub fn load(options: &SubagentOptions, workspace: &Path) -> Self {
        let mut registry = Self::default();
        if !options.enabled {
            return registry;
        }
        builtin::definitions().into_iter().for_each(|definition| registry.add(definition));
        for folder in &options.extension_folders {
            registry.add_folder(folder, |path, _| AgentSource::Extension(path));
        }
        for folder in &options.user_folders {
            registry.add_folder(folder, |path, _| AgentSource::User(path));
        }
        // The home folder as a workspace: the same files, and the user's own.
        let theirs = options.workspace_folders.iter().map(|folder| workspace.join(folder));
        for folder in theirs.filter(|folder| !options.user_folders.contains(folder)) {
            registry.add_folder(&folder, |path, content| AgentSource::Workspace { path, hash: hash(content) });
        }
        for (name, wanted) in &options.overrides {
            registry.apply(name, wanted);
        }
        registry
    }

    /// The agent of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<AgentDefinition>> {
        self.agents.get(name)
    }

    /// All agents, in order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<AgentDefinition>> {
        self.agents.values()
    }

    /// What is wrong with the others.
    #[must_use]
    pub fn problems(&self) -> &[AgentProblem] {
        &self.problems
    }

    fn add(&mut self, definition: AgentDefinition) {
        if self.agents.len() == AGENTS_MAX && !self.agents.contains_key(&definition.name) {
            let place = definition.source.path().map_or(definition.name.clone(), |path| path.display().to_string());
            return self.problem(place, format!("there are more than {AGENTS_MAX} agents"));
        }
        self.agents.insert(definition.name.clone(), Arc::new(definition));
    }

    fn problem(&mut self, place: String, message: String) {
        if self.problems.len() < AGENTS_MAX {
            self.problems.push(AgentProblem { place, message });
        }
    }

    fn add_folder(&mut self, folder: &Path, source: impl Fn(PathBuf, &[u8]) -> AgentSource) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return,
            Err(error) => return self.problem(folder.display().to_string(), format!("read the folder: {error}")),
        };
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_definition(path)).collect();
        paths.sort();
        for path in paths {
            let place = path.display().to_string();
            let read = content(&path)
                .map_err(|error| format!("read the file: {error}"))
                .and_then(|text| front_matter::definitions(&text, &source(path, text.as_bytes())));
            match read {
                Ok(definitions) => definitions.into_iter().for_each(|definition| self.add(definition)),
                Err(message) => self.problem(place, message),
            }
        }
    }

    fn apply(&mut self, name: &str, wanted: &AgentOverride) {
        if wanted.enabled == Some(false) {
            self.agents.shift_remove(name);
            return;
        }
        let Some(definition) = self.agents.get_mut(name) else {
            let message = "there is no agent of this name".to_owned();
            return self.problem(format!("agents.overrides.{name}"), message);
        };
        let definition = Arc::make_mut(definition);
        match &mut definition.kind {
            AgentKind::Remote(agent) => agent.timeout = wanted.timeout.unwrap_or(agent.timeout),
            AgentKind::Local(agent) => {
                agent.model = wanted.model.clone().or(agent.model.take());
                agent.temperature = wanted.temperature.or(agent.temperature);
                agent.max_turns = wanted.max_turns.unwrap_or(agent.max_turns);
                agent.timeout = wanted.timeout.unwrap_or(agent.timeout);
                if let Some(tools) = &wanted.tools {
                    agent.tools = Some(tool_patterns(tools));
                }
                if let Some(servers) = &wanted.mcp_servers {
                    agent.mcp_servers.clone_from(servers);
                }
            }
        }
    }
}

/// `agents.overrides` of the settings, and what is wrong with it.
#[must_use]
pub fn read_overrides(value: Option<&Value>) -> (BTreeMap<String, AgentOverride>, Vec<AgentProblem>) {
    let (mut overrides, mut problems) = (BTreeMap::new(), Vec::new());
    let place = |name: &str| format!("agents.overrides{name}");
    match value {
        None => {}
        Some(Value::Object(map)) => {
            for (name, value) in map {
                match front_matter::read_override(value.clone()) {
                    Ok(read) => _ = overrides.insert(name.clone(), read),
                    Err(message) => problems.push(AgentProblem { place: place(&format!(".{name}")), message }),
                }
            }
        }
        Some(_) => problems.push(AgentProblem { place: place(""), message: "expected an object".to_owned() }),
    }
    (overrides, problems)
}

/// `*.md`, but for names that begin with `_`, which are drafts and notes.
fn is_definition(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("_");
    path.extension().is_some_and(|extension| extension == "md") && !name.starts_with('_')
}

fn content(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = convoke_stdx::open_regular(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > FILE_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} KiB", FILE_MAX >> 10)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn local(name: &str, description: &str) -> String {
        format!("---\nname: {name}\ndescription: {description}\n---\nbody")
    }

    #[test]
    fn later_folders_win_and_broken_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        write(at("home/.gemini/agents/a.md"), &local("one", "old"));
        write(at("home/.convoke/agents/a.md"), &local("one", "new"));
        write(at("home/.convoke/agents/_draft.md"), "nothing");
        write(at("home/.convoke/agents/notes.txt"), "nothing");
        write(at("home/.convoke/agents/broken.md"), "---\nname: x\n---\nbody");
        write(at("ext/agents/a.md"), &local("one", "brought"));
        write(at("ext/agents/b.md"), &local("three", "brought"));
        write(at("work/.convoke/agents/b.md"), &local("two", "theirs"));
        write(at("work/.convoke/agents/g.md"), &local("generalist", "theirs"));
        let (overrides, problems) = read_overrides(Some(&json!({
            "cli_help": {"enabled": false},
            "one": {"runConfig": {"maxTurns": 3}},
            "nobody": {},
            "two": {"model": "x"},
        })));
        assert_eq!(
            problems[0].to_string(),
            "use agent agents.overrides.two: key 'model' is unknown; there are enabled, modelConfig, runConfig, tools, mcpServers"
        );
        let options = SubagentOptions {
            enabled: true,
            extension_folders: vec![at("gone/agents"), at("ext/agents")],
            user_folders: vec![at("home/.gemini/agents"), at("home/.convoke/agents")],
            workspace_folders: vec![".gemini/agents".into(), ".convoke/agents".into()],
            overrides,
            ..SubagentOptions::default()
        };
        let registry = AgentRegistry::load(&options, &at("work"));
        let found: Vec<_> = registry
            .all()
            .map(|agent| (agent.name.as_str(), agent.source.name(), agent.description.as_str()))
            .map(|(name, source, description)| format!("{name} {source} {}", &description[..3]))
            .collect();
        assert_eq!(
            found,
            [
                "codebase_investigator built-in Fin",
                "generalist workspace the",
                "one user new",
                "three extension bro",
                "two workspace the"
            ]
        );
        let AgentKind::Local(one) = &registry.get("one").unwrap().kind else { panic!("it is local") };
        assert_eq!(one.max_turns, 3);
        let problems: Vec<_> = registry.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                format!("use agent {}: key 'description' is missing", at("home/.convoke/agents/broken.md").display()),
                "use agent agents.overrides.nobody: there is no agent of this name".to_owned(),
            ]
        );
        let untrusted = SubagentOptions { workspace_folders: Vec::new(), ..options };
        assert!(AgentRegistry::load(&untrusted, &at("work")).get("two").is_none());
        assert_eq!(AgentRegistry::load(&SubagentOptions::default(), &at("work")).all().count(), 0);
    }

    #[test]
    fn a_huge_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("a.md"), &"x".repeat(300 << 10));
        let options =
            SubagentOptions { enabled: true, user_folders: vec![dir.path().into()], ..SubagentOptions::default() };
        let registry = AgentRegistry::load(&options, dir.path());
        assert_eq!(registry.problems()[0].message, "read the file: it is larger than 256 KiB");
    }
}
