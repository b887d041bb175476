//! The program `bwrap`, for kernels without Landlock.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Where distributions put it. `PATH` is not asked: the program that confines must not be one that the workspace brought.
const PROGRAMS: &[&str] = &["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];

/// Whether it is there and may make a namespace.
pub(super) fn check() -> Result<(), String> {
    let program = program().map_err(|error| error.to_string())?;
    let tried = std::process::Command::new(&program).args(args(&[], false)).args(["--", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("bwrap does not work here: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("bwrap does not start: {error}")),
    }
}

pub(super) fn program() -> io::Result<PathBuf> {
    let found = PROGRAMS.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "bwrap is not installed"))
}

/// Everything read-only but `writable`; devices of its own; `/run` empty where the network is off, since the sockets of
/// container engines and other services are there.
pub(super) fn args(writable: &[&Path], network: bool) -> Vec<OsString> {
    let mut args: Vec<OsString> =
        ["--ro-bind", "/", "/", "--dev", "/dev", "--die-with-parent", "--new-session"].map(OsString::from).to_vec();
    if !network {
        args.extend(["--unshare-net", "--tmpfs", "/run"].map(OsString::from));
    }
    for path in writable {
        args.extend(["--bind".into(), (*path).into(), (*path).into()]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_written_comes_last_so_that_nothing_covers_it() {
        let args = args(&[Path::new("/run/user/1/work")], false);
        assert_eq!(args[args.len() - 3..], ["--bind", "/run/user/1/work", "/run/user/1/work"]);
        assert!(args.iter().any(|arg| arg == "--unshare-net"));
        assert!(!self::args(&[], true).iter().any(|arg| arg == "--unshare-net"));
    }
}
