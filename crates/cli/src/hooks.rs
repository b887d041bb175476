//! The user's hooks: where are they configured, and which commands of a folder did the user agree to?

pub(crate) mod command;
mod migrate;
mod trusted;

use std::sync::Arc;

use convoke_agent::{HookOptions, HookTrust, TrustNothing};

use crate::startup::Startup;
use trusted::TrustedHooks;

/// What sessions need to know about hooks.
pub(crate) fn options(startup: &Startup) -> HookOptions {
    HookOptions { layers: startup.settings.hook_layers(), trust: trust(startup), plans_folder: None }
}

/// The record of what was agreed to; without a home there is none.
pub(crate) fn trust(startup: &Startup) -> Arc<dyn HookTrust> {
    match &startup.home {
        Some(home) => Arc::new(TrustedHooks::new(home, &startup.workspace)),
        None => Arc::new(TrustNothing),
    }
}
