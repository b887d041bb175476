//! What do settings say about tools?

use convoke_agent::ToolOptions;
use convoke_tools::FileFiltering;

use crate::settings::Settings;

/// The tools that sessions have.
pub(crate) fn tool_options(settings: &Settings) -> ToolOptions {
    let ours = ToolOptions::default();
    let filtering = ours.filtering;
    ToolOptions {
        core: settings.texts("tools.core"),
        filtering: FileFiltering {
            git: settings.flag("context.fileFiltering.respectGitIgnore").unwrap_or(filtering.git),
            own: settings.flag("context.fileFiltering.respectGeminiIgnore").unwrap_or(filtering.own),
        },
        todos: settings.flag("useWriteTodos").unwrap_or(ours.todos),
        topics: settings.flag("general.topicUpdateNarration").unwrap_or(ours.topics),
        private_hosts: settings.texts("tools.webFetch.allowedPrivateHosts").unwrap_or_default(),
    }
}
