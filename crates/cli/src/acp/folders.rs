//! Sessions of several folders in one process: whose settings, trust and credentials hold for which session?
//!
//! Those of the folder that a session works in, as if the process had been started there. The process's own folder is
//! read when it starts, any other when its first session begins. What a client handed over to prove who it is holds in
//! all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_protocol::{
    AgentInfo, AuthError, AuthMethod, Authenticator, HostedSession, ListSessions, LoadSession, LoadedSession,
    NewSession, SessionError, SessionFactory, SessionId, SessionPage, SessionRecords,
};

use crate::agent_host::{self, Use};
use crate::args::AgentArgs;
use crate::failure::Exit;
use crate::login::Login;
use crate::startup::Startup;

/// So many folders are remembered beside the process's own; of one more everything is read again for each session. More
/// than an editor has windows.
const FOLDERS_MAX: usize = 64;

/// One folder's sessions, and who they are for.
#[derive(Clone)]
struct Folder {
    factory: Arc<dyn SessionFactory>,
    login: Arc<Login>,
}

impl Folder {
    fn new(args: &AgentArgs, startup: &Startup) -> Result<Self, Exit> {
        let login = Arc::new(Login::new(args.clone(), startup.clone()));
        let factory = agent_host::factory(Arc::clone(&login), startup, Use::Interactive)?;
        Ok(Self { factory, login })
    }

    /// Blocks on the disk.
    fn read(args: &AgentArgs, path: &Path) -> Result<Self, Exit> {
        let startup = Startup::read(Some(path), args.skip_trust)?;
        startup.warn();
        Self::new(args, &startup)
    }
}

/// Makes each session in its folder.
pub(super) struct Folders {
    args: AgentArgs,
    /// The folder that the process was started in, and its path.
    own: Folder,
    path: PathBuf,
    others: Mutex<Others>,
}

#[derive(Default)]
struct Others {
    folders: BTreeMap<PathBuf, Folder>,
    /// What the client handed over: a method, and its secret.
    given: Option<(String, Option<String>)>,
}

impl Folders {
    pub(super) fn new(args: &AgentArgs, startup: &Startup) -> Result<Self, Exit> {
        let own = Folder::new(args, startup)?;
        Ok(Self { args: args.clone(), own, path: startup.workspace.clone(), others: Mutex::default() })
    }

    fn with_others<T>(&self, look: impl FnOnce(&mut Others) -> T) -> T {
        look(&mut self.others.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The folder at `cwd`. One that is not there is the business of whoever makes the session.
    async fn at(&self, cwd: &Path) -> Result<Folder, SessionError> {
        let Ok(path) = tokio::fs::canonicalize(cwd).await else { return Ok(self.own.clone()) };
        if path == self.path {
            return Ok(self.own.clone());
        }
        if let Some(known) = self.with_others(|others| others.folders.get(&path).cloned()) {
            return Ok(known);
        }
        let unusable = |why: &str| SessionError::Failed(format!("read what is set for {}: {why}", path.display()));
        let (args, read) = (self.args.clone(), path.clone());
        let folder = tokio::task::spawn_blocking(move || Folder::read(&args, &read)).await;
        let folder = folder.map_err(|error| unusable(&error.to_string()))?;
        let folder = folder.map_err(|_| unusable("it can't be used; the agent's stderr says why"))?;
        if let Some((method, secret)) = self.with_others(|others| others.given.clone()) {
            // What is missing is told by the session.
            let _ = folder.login.authenticate(&method, secret).await;
        }
        Ok(self.with_others(|others| {
            if others.folders.len() >= FOLDERS_MAX {
                return folder;
            }
            others.folders.entry(path).or_insert(folder).clone()
        }))
    }

    fn logins(&self) -> Vec<Arc<Login>> {
        self.with_others(|others| others.folders.values().map(|folder| Arc::clone(&folder.login)).collect())
    }

    fn records_of<'a>(&self, folder: &'a Folder) -> Result<&'a dyn SessionRecords, SessionError> {
        let none = || SessionError::Failed("sessions are not recorded here".to_owned());
        folder.factory.records().ok_or_else(none)
    }
}

#[async_trait]
impl SessionFactory for Folders {
    fn info(&self) -> AgentInfo {
        self.own.factory.info()
    }

    async fn new_session(&self, new: NewSession) -> Result<HostedSession, SessionError> {
        self.at(&new.cwd).await?.factory.new_session(new).await
    }

    fn records(&self) -> Option<&dyn SessionRecords> {
        self.own.factory.records().map(|_| self as &dyn SessionRecords)
    }

    fn authenticator(&self) -> Option<&dyn Authenticator> {
        Some(self)
    }
}

/// Records lie in the home, so those of the process's own folder know all.
#[async_trait]
impl SessionRecords for Folders {
    async fn list_sessions(&self, list: ListSessions) -> Result<SessionPage, SessionError> {
        self.records_of(&self.own)?.list_sessions(list).await
    }

    async fn load_session(&self, load: LoadSession) -> Result<LoadedSession, SessionError> {
        let folder = self.at(&load.session.cwd).await?;
        self.records_of(&folder)?.load_session(load).await
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.records_of(&self.own)?.delete_session(id).await
    }
}

#[async_trait]
impl Authenticator for Folders {
    fn methods(&self) -> Vec<AuthMethod> {
        self.own.login.methods()
    }

    async fn authenticate(&self, method: &str, secret: Option<String>) -> Result<(), AuthError> {
        self.own.login.authenticate(method, secret.clone()).await?;
        self.with_others(|others| others.given = Some((method.to_owned(), secret.clone())));
        for login in self.logins() {
            // Where a folder has no such credential, what it has goes on to hold.
            let _ = login.authenticate(method, secret.clone()).await;
        }
        Ok(())
    }

    async fn logout(&self) {
        self.with_others(|others| others.given = None);
        self.own.login.logout().await;
        for login in self.logins() {
            login.logout().await;
        }
    }
}
