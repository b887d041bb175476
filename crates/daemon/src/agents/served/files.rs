//! Text files of the workspace, for an agent that has its client read and write them.
//!
//! A path is judged by where it leads: links are resolved first, and what is not there yet is judged by the folder that
//! is. Source: ACP v1, "File System".

use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use convoke_acp::RpcError;
use serde_json::{Value, json};

use super::{INTERNAL, INVALID_PARAMS, NOT_FOUND, error};

/// Bytes of one file. It travels in one line of JSON, which may have 16 MiB.
const FILE_MAX: u64 = 10 << 20;

/// `fs/read_text_file`: the text, or the lines from `line` on, at most `limit` of them.
pub(super) fn read(workspace: &Path, params: &Value) -> Result<Value, RpcError> {
    let path = inside(workspace, params)?;
    let file = convoke_stdx::open_regular(&path).map_err(|why| match why.kind() {
        ErrorKind::InvalidInput => error(INVALID_PARAMS, format!("{} is no file", path.display())),
        _ => failed("read", &path, &why),
    })?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(|why| failed("read", &path, &why))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(error(INVALID_PARAMS, format!("{} has more than {FILE_MAX} bytes", path.display())));
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(error(INVALID_PARAMS, format!("{} is no text", path.display())));
    };
    let number = |name: &str| params.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let (line, limit) = (number("line"), number("limit"));
    if line.is_none() && limit.is_none() {
        return Ok(json!({"content": text}));
    }
    let lines = text.split_inclusive('\n').skip(line.unwrap_or(1).saturating_sub(1));
    Ok(json!({"content": lines.take(limit.unwrap_or(usize::MAX)).collect::<String>()}))
}

/// `fs/write_text_file`: the whole text, at once or not at all; folders on the way are made.
pub(super) fn write(workspace: &Path, params: &Value) -> Result<Value, RpcError> {
    let content = params.get("content").and_then(Value::as_str);
    let content = content.ok_or_else(|| error(INVALID_PARAMS, "content must be a text"))?;
    if content.len() as u64 > FILE_MAX {
        return Err(error(INVALID_PARAMS, format!("the content has more than {FILE_MAX} bytes")));
    }
    let path = inside(workspace, params)?;
    if path.is_dir() {
        return Err(error(INVALID_PARAMS, format!("{} is a folder", path.display())));
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|why| failed("write", &path, &why))?;
    }
    convoke_stdx::write_atomic(&path, content.as_bytes()).map_err(|why| failed("write", &path, &why))?;
    Ok(json!({}))
}

/// The folder that a terminal works in.
pub(super) fn folder(workspace: &Path, cwd: Option<&str>) -> Result<PathBuf, RpcError> {
    let Some(cwd) = cwd else { return Ok(workspace.to_owned()) };
    let path = resolve(workspace, Path::new(cwd))?;
    if path.is_dir() { Ok(path) } else { Err(error(INVALID_PARAMS, format!("{cwd} is no folder"))) }
}

fn inside(workspace: &Path, params: &Value) -> Result<PathBuf, RpcError> {
    let path = params.get("path").and_then(Value::as_str);
    resolve(workspace, Path::new(path.ok_or_else(|| error(INVALID_PARAMS, "path must be a text"))?))
}

/// Where `path` leads, if that is in the workspace.
fn resolve(workspace: &Path, path: &Path) -> Result<PathBuf, RpcError> {
    if !path.is_absolute() {
        return Err(error(INVALID_PARAMS, format!("{} must be an absolute path", path.display())));
    }
    let root = workspace.canonicalize().map_err(|why| failed("find", workspace, &why))?;
    let outside = || error(INVALID_PARAMS, format!("{} is outside of the workspace", path.display()));
    // The deepest part that is there; a link is there also if it leads nowhere.
    let mut there = path;
    let mut missing = Vec::new();
    while there.symlink_metadata().is_err() {
        match there.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name),
            _ => return Err(outside()),
        }
        there = there.parent().ok_or_else(outside)?;
    }
    let mut real = there.canonicalize().map_err(|why| failed("find", there, &why))?;
    if !real.starts_with(&root) {
        return Err(outside());
    }
    real.extend(missing.into_iter().rev());
    Ok(real)
}

fn failed(what: &str, path: &Path, why: &io::Error) -> RpcError {
    let code = if why.kind() == ErrorKind::NotFound { NOT_FOUND } else { INTERNAL };
    error(code, format!("{what} {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Place {
        _folder: tempfile::TempDir,
        workspace: PathBuf,
        outside: PathBuf,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, outside) = (folder.path().join("w"), folder.path().join("o"));
        std::fs::create_dir(&workspace).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(workspace.join("a.txt"), "one\ntwo\nthree").unwrap();
        std::fs::write(outside.join("secret"), "secret").unwrap();
        Place { _folder: folder, workspace, outside }
    }

    fn params(path: &Path) -> Value {
        json!({"path": path, "content": "new"})
    }

    #[test]
    fn lines_of_a_file() {
        let place = place();
        let part = |line: Value, limit: Value| {
            let params = json!({"path": place.workspace.join("a.txt"), "line": line, "limit": limit});
            read(&place.workspace, &params).unwrap()["content"].as_str().unwrap().to_owned()
        };
        assert_eq!(part(Value::Null, Value::Null), "one\ntwo\nthree");
        assert_eq!(part(json!(2), Value::Null), "two\nthree");
        assert_eq!(part(json!(2), json!(1)), "two\n");
        assert_eq!(part(Value::Null, json!(1)), "one\n");
        assert_eq!(part(json!(9), json!(1)), "");
    }

    #[test]
    fn nothing_outside_is_read_or_written_whatever_leads_there() {
        let place = place();
        let inside = |name: &str| place.workspace.join(name);
        symlink(&place.outside, inside("folder")).unwrap();
        symlink(place.outside.join("secret"), inside("file")).unwrap();
        symlink(place.outside.join("not there"), inside("nowhere")).unwrap();
        let paths = [
            place.outside.join("secret"),
            place.outside.join("new"),
            inside("folder/secret"),
            inside("folder/new"),
            inside("folder/deep/new"),
            inside("file"),
            inside("nowhere"),
            inside("../o/secret"),
            inside("missing/../../o/new"),
            PathBuf::from("a.txt"),
            PathBuf::from("/"),
        ];
        for path in &paths {
            let (read, written) = (read(&place.workspace, &params(path)), write(&place.workspace, &params(path)));
            assert!(read.is_err() && written.is_err(), "{}", path.display());
        }
        assert_eq!(std::fs::read_dir(&place.outside).unwrap().count(), 1);
        assert_eq!(std::fs::read_to_string(place.outside.join("secret")).unwrap(), "secret");
        let refused = read(&place.workspace, &params(&place.outside.join("secret"))).unwrap_err();
        assert_eq!(refused.code, INVALID_PARAMS);
        assert!(refused.message.ends_with("is outside of the workspace"), "{}", refused.message);
    }

    #[test]
    fn what_is_inside_is_written_with_its_folders() {
        let place = place();
        let path = place.workspace.join("deep/er/new.txt");
        assert_eq!(write(&place.workspace, &params(&path)).unwrap(), json!({}));
        assert_eq!(read(&place.workspace, &params(&path)).unwrap(), json!({"content": "new"}));
        symlink(&path, place.workspace.join("link")).unwrap();
        assert!(write(&place.workspace, &params(&place.workspace.join("link"))).is_ok());
        assert!(write(&place.workspace, &params(&place.workspace.join("deep"))).is_err());
        assert_eq!(read(&place.workspace, &params(&place.workspace.join("none"))).unwrap_err().code, NOT_FOUND);
        assert!(read(&place.workspace, &params(&place.workspace.join("deep"))).is_err());
        let fifo = place.workspace.join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(read(&place.workspace, &params(&fifo)).unwrap_err().message.ends_with("is no file"));
    }

    #[test]
    fn sizes_and_contents_are_bounded() {
        let place = place();
        let path = place.workspace.join("big");
        File::create(&path).unwrap().set_len(FILE_MAX + 1).unwrap();
        assert!(read(&place.workspace, &params(&path)).unwrap_err().message.contains("more than"));
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert!(read(&place.workspace, &params(&path)).unwrap_err().message.contains("no text"));
        let big = json!({"path": path, "content": "x".repeat(usize::try_from(FILE_MAX).unwrap() + 1)});
        assert!(write(&place.workspace, &big).is_err());
        assert!(write(&place.workspace, &json!({"path": path})).is_err());
    }
}
