//! A small git repository to play in.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const FILES: &[(&str, &str)] = &[
    ("README.md", "# Greeter\n\nA script that greets. Run it with `sh greet.sh NAME`.\n"),
    ("greet.sh", "#!/bin/sh\n# Greets whoever is named.\necho \"Hello, $1!\"\n"),
];

/// Makes the repository in a temporary folder, which is removed when the value is dropped.
///
/// Without `git` on the machine it is just a folder, and everything else works the same.
pub(super) fn make() -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("convoke-demo-").tempdir()?;
    for (name, text) in FILES {
        fs::write(dir.path().join(name), text)?;
    }
    let commit = ["-c", "user.name=Demo", "-c", "user.email=demo@localhost", "commit", "-q", "-m", "Greeter"];
    for args in [&["init", "-q", "-b", "main"][..], &["add", "."], &commit] {
        if !git(dir.path(), args) {
            break;
        }
    }
    Ok(dir)
}

fn git(dir: &Path, args: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The user's hooks, templates and signing keys have no part in this.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.status().is_ok_and(|status| status.success())
}
