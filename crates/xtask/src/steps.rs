//! One external command at a time: shown before it runs, timed, and without a standard input.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The cargo that runs us, or the one in the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// A command in `folder` that can't wait for somebody to type.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command
}

/// Shows and runs `command`; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("failed to start {}", shown(command)))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// The command as one would type it: set variables, the program's name, its arguments.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let secret = name.to_string_lossy().ends_with("TOKEN");
        let value = if secret { "…".into() } else { value?.to_string_lossy() };
        Some(format!("{}={}", name.to_string_lossy(), quoted(&value)))
    });
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let args = command.get_args().map(|arg| quoted(&arg.to_string_lossy()));
    variables.chain([program.into_owned()]).chain(args).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '"', '*']) { format!("'{word}'") } else { word.to_owned() }
}

/// What `step` returned, and how long it took.
pub(crate) fn timed<T>(step: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (step(), start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_one_would_type_them() {
        let mut command = command("/usr/bin/cargo", &["doc", "--no deps"], Path::new("."));
        command.env("RUSTDOCFLAGS", "-D warnings").env("SERVER_TOKEN", "hush");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' SERVER_TOKEN=… cargo doc '--no deps'");
    }

    #[test]
    fn a_failing_command_is_an_error_and_nobody_is_asked() {
        assert!(run(&mut command("sh", &["-c", "! read line"], Path::new("."))).is_ok());
        let error = run(&mut command("sh", &["-c", "exit 3"], Path::new("."))).unwrap_err().to_string();
        assert_eq!(error, "sh -c 'exit 3': exit status: 3");
    }
}
