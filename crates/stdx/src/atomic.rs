//! Files that are either the old content or the new, never half of one.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// Replaces the file at `path` with `bytes`: a temporary file beside it, synced, then renamed over it.
///
/// An existing file keeps its permission bits; a new one gets what the umask allows (`0o666`).
/// A symbolic link is followed, so the link stays and its target is replaced.
/// On an error the old file is untouched and the temporary one is removed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let old = fs::metadata(&target).ok();
    let mut temp = match &old {
        Some(_) => NamedTempFile::new_in(folder)?,
        None => tempfile::Builder::new().permissions(new_file_mode()).tempfile_in(folder)?,
    };
    temp.write_all(bytes)?;
    if let Some(meta) = old {
        temp.as_file().set_permissions(meta.permissions())?;
    }
    temp.as_file().sync_all()?;
    temp.persist(&target).map_err(|e| e.error)?;
    Ok(())
}

fn new_file_mode() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    // The kernel takes the umask off again, as for any new file.
    fs::Permissions::from_mode(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn keeps_mode_and_link() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o750)).unwrap();
        let link = dir.path().join("link");
        symlink(&real, &link).unwrap();
        write_atomic(&link, b"new").unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn fails_without_leaving_anything() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write_atomic(&dir.path().join("no/such/folder"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
