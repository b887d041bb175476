//! What do settings say about tools?

use convoke_agent::ToolOptions;
use convoke_tools::FileFiltering;

use crate::settings::Settings;

/// The tools that sessions have.
pub(crate) fn tool_options(settings: &Settings) -> ToolOptions {
    let filtering = FileFiltering::default();
    ToolOptions {
        core: settings.texts("tools.core"),
        filtering: FileFiltering {
            git: settings.flag("context.fileFiltering.respectGitIgnore").unwrap_or(filtering.git),
            own: settings.flag("context.fileFiltering.respectGeminiIgnore").unwrap_or(filtering.own),
        },
    }
}
