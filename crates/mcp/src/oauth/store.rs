//! Where are tokens between two runs? In one file that only its owner reads.
//!
//! Everything here blocks. Readers see the file as it was or as it is; writers take turns, and so do those who renew a
//! token of the same server, in whichever process they are.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Most servers with tokens: the oldest ones go.
const RECORDS_MAX: usize = 256;
/// More is not our file.
const BYTES_MAX: u64 = 4 << 20;
const VERSION: u32 = 1;

/// What is kept for one server. No `Debug`: nearly all of it is secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    pub(super) server: String,
    /// The address that the tokens are for.
    pub(super) url: String,
    pub(super) token_url: String,
    pub(super) issuer: Option<String>,
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    /// The secret goes into the body, because the endpoint takes it in no header.
    pub(super) secret_in_body: bool,
    pub(super) resource: Option<String>,
    pub(super) audience: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) access_token: Option<String>,
    pub(super) refresh_token: Option<String>,
    /// Seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    #[serde(default)]
    servers: Vec<Record>,
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct Store {
    path: PathBuf,
}

/// Holds a lock until it is dropped.
pub(super) struct Held(#[expect(dead_code, reason = "the lock goes with the file")] File);

impl Store {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// What is kept for this server at this address.
    pub(super) fn find(&self, server: &str, url: &str) -> io::Result<Option<Record>> {
        Ok(self.read()?.into_iter().find(|record| record.server == server && record.url == url))
    }

    /// Puts `record` in the place of what was kept for its server and address.
    pub(super) fn put(&self, record: Record) -> io::Result<()> {
        self.change(|records| {
            records.retain(|other| other.server != record.server || other.url != record.url);
            records.push(record);
            let over = records.len().saturating_sub(RECORDS_MAX);
            records.drain(..over);
            true
        })
    }

    /// Forgets a server, wherever it was; says whether there was anything.
    pub(super) fn forget(&self, server: &str) -> io::Result<bool> {
        let mut found = false;
        self.change(|records| {
            let before = records.len();
            records.retain(|record| record.server != server);
            found = records.len() < before;
            found
        })?;
        Ok(found)
    }

    /// One at a time for this server and address; blocks until it is one's turn.
    pub(super) fn turn(&self, server: &str, url: &str) -> io::Result<Held> {
        // FNV-1a: a name for a file, and nothing depends on it but that the same server comes to the same.
        let hash = [server, "\n", url]
            .concat()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        self.lock(&format!(".{hash:016x}.lock"))
    }

    fn lock(&self, suffix: &str) -> io::Result<Held> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let path = self.path.with_file_name(format!(".{name}{suffix}"));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(Held(file))
    }

    fn read(&self) -> io::Result<Vec<Record>> {
        let text = match fs::metadata(&self.path) {
            Ok(meta) if meta.len() > BYTES_MAX => return Err(io::Error::other("the file is too large")),
            Ok(_) => fs::read_to_string(&self.path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // The parser's words may repeat a token.
        let contents: Contents =
            serde_json::from_str(&text).map_err(|_| io::Error::other("the file does not hold what it should"))?;
        if contents.version != VERSION {
            return Err(io::Error::other("the file is of another version"));
        }
        Ok(contents.servers)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Record>) -> bool) -> io::Result<()> {
        let _held = self.lock(".lock")?;
        let mut servers = self.read()?;
        if !change(&mut servers) {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(&Contents { version: VERSION, servers }).map_err(io::Error::other)?;
        // The folder is there: the lock is in it.
        convoke_stdx::place_file(&self.path, text.as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(server: &str, url: &str, token: &str) -> Record {
        Record {
            server: server.to_owned(),
            url: url.to_owned(),
            access_token: Some(token.to_owned()),
            ..Record::default()
        }
    }

    #[test]
    fn tokens_are_kept_for_one_address_in_a_file_of_one_s_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/tokens.json");
        let store = Store::new(&path);
        assert!(store.find("a", "https://one").unwrap().is_none());
        store.put(record("a", "https://one", "t1")).unwrap();
        store.put(record("a", "https://two", "t2")).unwrap();
        store.put(record("a", "https://one", "t3")).unwrap();
        let token = |url: &str| store.find("a", url).unwrap().and_then(|record| record.access_token);
        assert_eq!((token("https://one").as_deref(), token("https://two").as_deref()), (Some("t3"), Some("t2")));
        assert_eq!(token("https://three"), None);
        assert!(store.find("b", "https://one").unwrap().is_none());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(store.forget("a").unwrap());
        assert!(!store.forget("a").unwrap());
    }

    #[test]
    fn a_file_that_is_not_ours_is_left_alone_and_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.json");
        fs::write(&path, "{\"version\": 1, \"servers\": \"secret\"}").unwrap();
        let error = Store::new(&path).put(record("a", "u", "t")).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(fs::read_to_string(&path).unwrap().contains("secret"));
    }

    #[test]
    fn the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("tokens.json"));
        let mut records: Vec<Record> = (0..RECORDS_MAX).map(|n| record("s", &n.to_string(), "t")).collect();
        store
            .change(|kept| {
                kept.append(&mut records);
                true
            })
            .unwrap();
        store.put(record("s", "one more", "t")).unwrap();
        assert!(store.find("s", "0").unwrap().is_none());
        assert!(store.find("s", "1").unwrap().is_some() && store.find("s", "one more").unwrap().is_some());
    }
}
