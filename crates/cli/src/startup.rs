//! What every command begins with: environment, home, trust, settings.

use std::path::{Path, PathBuf};

use convoke_protocol::ExitCode;

use crate::agents;
use crate::environment::Environment;
use crate::failure::{Exit, complain};
use crate::home::Home;
use crate::settings::{Settings, Sources};
use crate::telemetry::TelemetryOptions;
use crate::trust::{Trust, trust_of};

/// The ground that a command stands on.
#[derive(Clone)]
pub(crate) struct Startup {
    pub(crate) environment: Environment,
    pub(crate) home: Option<Home>,
    /// The folder to work in, absolute and resolved.
    pub(crate) workspace: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) trust: Trust,
    pub(crate) warnings: Vec<String>,
}

impl Startup {
    /// Reads everything once. `workspace` is the current folder unless the command line says otherwise.
    pub(crate) fn read(workspace: Option<&Path>, skip_trust: bool) -> Result<Self, Exit> {
        let mut environment = Environment::of_process();
        let home = Home::find(&environment);
        let workspace = match workspace {
            Some(path) => path.to_owned(),
            None => std::env::current_dir()
                .map_err(|error| Exit::because(ExitCode::Input, format!("find the current folder: {error}")))?,
        };
        let workspace = workspace.canonicalize().unwrap_or(workspace);
        let (listed, mut warnings) = trust_of(&workspace, skip_trust, home.as_ref(), &environment);
        // The user's own settings decide whether folders need trust at all; the workspace's can't.
        let users = Settings::load(&Sources {
            home: home.as_ref(),
            workspace: &workspace,
            trusted: false,
            environment: &environment,
        });
        let users = users.map_err(|error| Exit::because(ExitCode::Configuration, error))?;
        let trust = match users.flag("security.folderTrust.enabled") {
            Some(false) => Trust::Trusted,
            Some(true) | None => listed,
        };
        add_env_files(&mut environment, home.as_ref(), (trust == Trust::Trusted).then_some(&workspace));
        let settings = Settings::load(&Sources {
            home: home.as_ref(),
            workspace: &workspace,
            trusted: trust == Trust::Trusted,
            environment: &environment,
        })
        .map_err(|error| Exit::because(ExitCode::Configuration, error))?;
        warnings.extend_from_slice(settings.warnings());
        warnings.extend(TelemetryOptions::warnings(&environment, &settings));
        let mut startup = Self { environment, home, workspace, settings, trust, warnings };
        startup.warnings.extend(agents::warnings(&startup));
        Ok(startup)
    }

    /// Whether the user asked for trusted folders only, and this is none.
    pub(crate) fn needs_trust(&self) -> bool {
        self.trust == Trust::Untrusted && self.settings.flag("security.folderTrust.enabled") == Some(true)
    }

    /// Tells the warnings on stderr, each once.
    pub(crate) fn warn(&self) {
        for warning in &self.warnings {
            complain(&format!("warning: {warning}"));
        }
    }
}

/// `.env` files: the trusted workspace's, then those of the folders above it up to the home, then the home's.
fn add_env_files(environment: &mut Environment, home: Option<&Home>, workspace: Option<&PathBuf>) {
    let above = workspace
        .into_iter()
        .flat_map(|folder| folder.ancestors().take_while(|folder| home.is_none_or(|home| *folder != home.parent())));
    let folders: Vec<PathBuf> = above.map(Path::to_owned).chain(home.map(|home| home.parent().to_owned())).collect();
    // The nearest folder with any such file decides, as elsewhere.
    let of_folder = |folder: &PathBuf| [".convoke/.env", ".gemini/.env", ".env"].map(|name| folder.join(name));
    let nearest = folders.iter().map(of_folder).find(|files| files.iter().any(|file| file.is_file()));
    for file in nearest.into_iter().flatten().chain(home.map(|home| home.folder().join(".env"))) {
        environment.add_file(&file);
    }
}
