//! Where is an executable of this package, for a test of another one?

use std::path::PathBuf;
use std::process::Command;

/// The executable `name`, beside the running test; built first if a lone `cargo test -p` left it out.
///
/// # Panics
///
/// If it can't be built.
pub(crate) fn binary_beside_tests(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap_or(&test);
    let binary = profile.join(name);
    if !binary.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "convoke-testkit", "--bin", name]);
        build.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
        if let Some(target) = profile.parent() {
            build.arg("--target-dir").arg(target);
        }
        match profile.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => {}
            Some(other) => _ = build.args(["--profile", other]),
        }
        let built = build.status().is_ok_and(|status| status.success());
        assert!(built && binary.exists(), "build {name} at {}", binary.display());
    }
    binary
}
