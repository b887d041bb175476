//! The user's hooks: where are they configured, and which commands of a folder did the user agree to?

pub(crate) mod command;
mod migrate;
mod trusted;

use std::sync::Arc;

use convoke_agent::{HookLayer, HookOptions, HookTrust, TrustNothing};

use crate::extensions::Extension;
use crate::startup::Startup;
use trusted::TrustedHooks;

/// What sessions need to know about hooks.
pub(crate) fn options(startup: &Startup, extensions: &[Extension]) -> HookOptions {
    HookOptions { layers: layers(startup, extensions), trust: trust(startup) }
}

/// Everybody's hooks: those of settings, and behind them what extensions bring.
pub(crate) fn layers(startup: &Startup, extensions: &[Extension]) -> Vec<HookLayer> {
    let brought = extensions.iter().map(Extension::hook_layer);
    startup.settings.hook_layers().into_iter().chain(brought).collect()
}

/// The record of what was agreed to; without a home there is none.
pub(crate) fn trust(startup: &Startup) -> Arc<dyn HookTrust> {
    match &startup.home {
        Some(home) => Arc::new(TrustedHooks::new(home, &startup.workspace)),
        None => Arc::new(TrustNothing),
    }
}
