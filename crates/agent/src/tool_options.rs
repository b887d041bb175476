//! Which tools has a session, and within what bounds? What settings say about the tools that come with us.

use std::path::PathBuf;

use convoke_tools::FileFiltering;
use convoke_tools::policy::canonical_tool_name;

use crate::DiscoveryOptions;

/// What settings say about tools.
#[derive(Clone, Debug)]
pub struct ToolOptions {
    /// If set, only these built-in tools are there.
    pub core: Option<Vec<String>>,
    /// Which ignore files count where a call does not say.
    pub filtering: FileFiltering,
    /// Whether models keep a list of steps.
    pub todos: bool,
    /// Whether models name their topic.
    pub topics: bool,
    /// Folders of skills, those of the user; later ones win.
    pub skill_folders: Vec<PathBuf>,
    /// Folders of skills relative to the working folder, if it is trusted.
    pub workspace_skill_folders: Vec<PathBuf>,
    /// Hosts, with or without a port, that pages may be fetched from although they are on a private network.
    pub private_hosts: Vec<String>,
    /// Whether `web_fetch` gives what is at one address, instead of an answer from pages.
    pub direct_web_fetch: bool,
    /// Programs of the project that bring tools.
    pub discovery: Option<DiscoveryOptions>,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            core: None,
            filtering: FileFiltering::default(),
            todos: true,
            topics: true,
            skill_folders: Vec::new(),
            workspace_skill_folders: Vec::new(),
            private_hosts: Vec::new(),
            direct_web_fetch: false,
            discovery: None,
        }
    }
}

impl ToolOptions {
    /// Whether the built-in tool of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let named = |listed: &String| {
            // `ShellTool(git status)` names the tool as well; which commands may run is the policy's business.
            let listed = listed.split('(').next().unwrap_or_default().trim();
            canonical_tool_name(listed) == name
        };
        let switched_off = (name == "write_todos" && !self.todos) || (name == "update_topic" && !self.topics);
        !switched_off && self.core.as_ref().is_none_or(|core| core.iter().any(named))
    }
}
