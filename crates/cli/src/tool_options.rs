//! What do settings say about tools?

use std::path::Path;

use convoke_agent::{DiscoveryOptions, ToolOptions};
use convoke_tools::FileFiltering;

use crate::extensions::Extension;
use crate::home::folders_in;
use crate::startup::Startup;
use crate::trust::Trust;

/// The tools that sessions have.
pub(crate) fn tool_options(startup: &Startup, extensions: &[Extension]) -> ToolOptions {
    let settings = &startup.settings;
    let with_skills = settings.flag("skills.enabled") != Some(false);
    // The folder that other agents agreed on lies below those of our own.
    let skills_of = |parent: &Path| {
        let folders = [parent.join(".agents")].into_iter().chain(folders_in(parent));
        folders.map(|folder| folder.join("skills")).filter(|_| with_skills).collect::<Vec<_>>()
    };
    // Under the user's own: an extension stands for no skill of the same name.
    let brought = extensions.iter().map(|extension| extension.part("skills")).filter(|_| with_skills);
    let own = startup.home.iter().flat_map(|home| skills_of(home.parent()));
    let is_trusted = startup.trust == Trust::Trusted;
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
        skill_folders: brought.chain(own).collect(),
        workspace_skill_folders: if is_trusted { skills_of(Path::new("")) } else { Vec::new() },
        // The settings of a workspace are there only if it is trusted.
        discovery: settings
            .text("tools.discoveryCommand")
            .zip(settings.text("tools.callCommand"))
            .map(|(discover, call)| DiscoveryOptions { discover: discover.to_owned(), call: call.to_owned() }),
        direct_web_fetch: settings.flag("experimental.directWebFetch").unwrap_or(false),
        private_hosts: settings.texts("tools.webFetch.allowedPrivateHosts").unwrap_or_default(),
    }
}
