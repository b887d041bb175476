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

/// Puts a file with these permission bits at `path`, whatever file is there: its content is whole or not there at all.
///
/// A symbolic link at `path` is replaced and not followed; a folder is an error.
pub fn place_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut temp = NamedTempFile::new_in(folder_of(path))?;
    temp.write_all(bytes)?;
    temp.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    temp.as_file().sync_all()?;
    temp.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Puts a symbolic link to `target` at `path`, in place of the file or link that is there; a folder is an error.
pub fn place_link(path: &Path, target: &Path) -> io::Result<()> {
    let made = tempfile::Builder::new().make_in(folder_of(path), |temp| std::os::unix::fs::symlink(target, temp))?;
    made.persist(path).map_err(|e| e.error)?;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
    fn what_is_placed_replaces_a_link_and_has_its_bits() {
        let dir = tempfile::tempdir().unwrap();
        let (real, path) = (dir.path().join("real"), dir.path().join("path"));
        fs::write(&real, "real").unwrap();
        symlink(&real, &path).unwrap();
        place_file(&path, b"new", 0o750).unwrap();
        assert_eq!((fs::read(&real).unwrap(), fs::read(&path).unwrap()), (b"real".to_vec(), b"new".to_vec()));
        let meta = fs::symlink_metadata(&path).unwrap();
        assert_eq!((meta.is_file(), meta.permissions().mode() & 0o7777), (true, 0o750));
        place_link(&path, Path::new("real")).unwrap();
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("real"));
        assert!(place_file(dir.path(), b"x", 0o600).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn fails_without_leaving_anything() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write_atomic(&dir.path().join("no/such/folder"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
