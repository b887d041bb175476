//! What is on this machine, and what may be fetched: Node, the pinned npm packages, a browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{command, run as run_command};

/// Where the pinned npm packages are declared.
pub(super) const PACKAGES: &str = "tests/interop";

/// The oldest Node that has what the tests use.
const NODE_MIN: u32 = 20;

/// Each need with what meets it, or why nothing does.
pub(super) struct Needs {
    pub(super) node: Result<u32, String>,
    pub(super) packages: Result<(), String>,
    chromium: Result<PathBuf, String>,
}

impl Needs {
    /// Looks, installs the npm packages if they are not those of the lock file, and fetches a browser if it may.
    pub(super) fn meet(root: &Path, install: bool) -> Self {
        let node = node();
        let packages = node.clone().and_then(|_| packages(root));
        let chromium = chromium().or_else(|missing| if install { fetch_chromium() } else { Err(missing) });
        Self { node, packages, chromium }
    }

    /// A browser, and what drives it.
    pub(super) fn browser(&self) -> Result<&PathBuf, &String> {
        self.packages.as_ref()?;
        self.chromium.as_ref()
    }
}

fn node() -> Result<u32, String> {
    let output = Command::new("node").arg("--version").output().map_err(|_| "there is no node".to_owned())?;
    let version = String::from_utf8_lossy(&output.stdout);
    match major(&version) {
        Some(major) if major >= NODE_MIN => Ok(major),
        _ => Err(format!("node is {:?}, and must be {NODE_MIN} or later", version.trim())),
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn packages(root: &Path) -> Result<(), String> {
    let folder = root.join(PACKAGES);
    let modified = |name: &str| std::fs::metadata(folder.join(name)).and_then(|data| data.modified()).ok();
    // npm writes this copy of the lock file last of all.
    let (installed, locked) = (modified("node_modules/.package-lock.json"), modified("package-lock.json"));
    if installed.is_some() && installed >= locked {
        return Ok(());
    }
    run_command(&mut command("npm", &["ci", "--no-audit", "--no-fund"], &folder)).map_err(|error| format!("{error:#}"))
}

fn chromium() -> Result<PathBuf, String> {
    let named = std::env::var_os("CONVOKE_CHROMIUM").map(PathBuf::from);
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(PathBuf::from);
    let found = named.into_iter().chain(usual).find(|path| path.exists());
    found.ok_or_else(|| "there is no chromium; `cargo xtask interop --install` fetches Debian's".to_owned())
}

fn fetch_chromium() -> Result<PathBuf, String> {
    let apt =
        |args: &[&str]| run_command(command("apt-get", args, Path::new("/")).env("DEBIAN_FRONTEND", "noninteractive"));
    apt(&["update"])
        .and_then(|()| apt(&["install", "--yes", "--no-install-recommends", "chromium"]))
        .map_err(|error| format!("{error:#}"))?;
    chromium()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_tells_its_version() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.1"), None);
        assert_eq!(major(""), None);
    }

    #[test]
    fn packages_as_locked_are_not_fetched_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(PACKAGES);
        std::fs::create_dir_all(folder.join("node_modules")).unwrap();
        std::fs::write(folder.join("package-lock.json"), "{}").unwrap();
        std::fs::write(folder.join("node_modules/.package-lock.json"), "{}").unwrap();
        // There is no package.json here: npm would refuse.
        assert_eq!(packages(root.path()), Ok(()));
    }
}
