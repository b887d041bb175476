//! Which tools has a session, and within what bounds? What settings say about the tools that come with us.

use convoke_tools::FileFiltering;

/// What settings say about tools.
#[derive(Clone, Debug, Default)]
pub struct ToolOptions {
    /// If set, only these built-in tools are there.
    pub core: Option<Vec<String>>,
    /// Which ignore files count where a call does not say.
    pub filtering: FileFiltering,
}

impl ToolOptions {
    /// Whether the built-in tool of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let named = |listed: &String| {
            // `ShellTool(git status)` names the tool as well; which commands may run is the policy's business.
            let listed = listed.split('(').next().unwrap_or_default().trim();
            convoke_tools::policy::canonical_tool_name(listed) == name
        };
        self.core.as_ref().is_none_or(|core| core.iter().any(named))
    }
}
