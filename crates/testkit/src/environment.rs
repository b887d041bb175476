//! A place of its own for each test: home, workspace, environment.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A home and a workspace in a temporary folder, and a command line that sees nothing else.
///
/// Removed when dropped.
#[derive(Debug)]
pub struct TestEnvironment {
    dir: TempDir,
}

impl Default for TestEnvironment {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEnvironment {
    /// Empty folders.
    ///
    /// # Panics
    /// If the temporary folder can't be made: no test can go on then.
    #[must_use]
    pub fn new() -> Self {
        let dir = TempDir::new().expect("make a temporary folder");
        let environment = Self { dir };
        fs::create_dir_all(environment.workspace()).expect("make the workspace");
        fs::create_dir_all(environment.home()).expect("make the home");
        environment
    }

    /// The workspace, resolved.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.root().join("workspace")
    }

    /// The parent of `.convoke/` and `.gemini/`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap_or_else(|_| self.dir.path().to_owned())
    }

    /// Writes a file below the test's folder, such as `workspace/a.txt` or `home/.convoke/settings.json`.
    ///
    /// # Panics
    /// If it can't be written.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&path)).expect("make the folder");
        fs::write(&path, text).expect("write the file");
        path
    }

    /// Reads a file below the test's folder; `None` if there is none.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }

    /// `program` in the workspace with this home and nothing of the tester's own environment but `PATH`.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("CONVOKE_HOME", self.home())
            // Files of the machine that the test runs on are none of its own.
            .env("GEMINI_CLI_SYSTEM_DEFAULTS_PATH", self.home().join("etc/system-defaults.json"))
            .env("GEMINI_CLI_SYSTEM_SETTINGS_PATH", self.home().join("etc/settings.json"))
            .stdin(Stdio::null());
        command
    }
}

/// What a process left behind, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `command` to its end with `input` on stdin.
///
/// # Panics
/// If it can't be started.
pub fn run(command: &mut Command, input: &str) -> Ran {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the process");
    if let Some(mut stdin) = child.stdin.take() {
        // A process that does not read its input is no failure here.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().expect("wait for the process").into()
}
