//! Is there a browser to show a page in?

use std::process::{Command, Stdio};

use crate::environment::Environment;

/// Opens the page where there is a screen to open it on; nobody misses it elsewhere.
pub(crate) fn open(url: &str, environment: &Environment) {
    if environment.get("DISPLAY").is_none() && environment.get("WAYLAND_DISPLAY").is_none() {
        return;
    }
    // The opener hands the URL over and ends; it is no part of this process's work and may outlive it.
    let _ = Command::new("xdg-open").arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}
