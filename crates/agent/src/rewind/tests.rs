//! A home, a workspace, and a session that is driven by hand.

mod cases;
mod crash;
mod walk;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use convoke_adk::{Content, Event, InMemorySessionService, LiveSession, Part, Role, SessionKey, SessionService};
use convoke_protocol::{RewindOutcome, RewindRequest, RewindWhat, Rewound};
use convoke_tools::{FileWatch, Workspace, WorkspaceOptions, WritingCall};
use serde_json::Map;

use super::keeper::Keeper;
use super::rewinder::{Done, Rewinder};
use super::{FilesLine, SnapshotBounds};
use crate::record::{Conversation, Recorder, Records};
use crate::{RecordError, RecordOptions};

const ID: &str = "session-1";

/// What is at a path, with its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Folder,
    File(Vec<u8>, u32),
    Link(PathBuf),
}

type Tree = BTreeMap<PathBuf, Thing>;

/// All that is below a folder.
fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let thing = if meta.is_dir() {
            tree.extend(self::tree(&path));
            Thing::Folder
        } else if meta.is_symlink() {
            Thing::Link(fs::read_link(&path).unwrap())
        } else {
            Thing::File(fs::read(&path).unwrap(), meta.permissions().mode() & 0o777)
        };
        tree.insert(path, thing);
    }
    tree
}

struct House {
    dir: tempfile::TempDir,
    bounds: SnapshotBounds,
    runtime: tokio::runtime::Runtime,
}

/// One process with the session open.
struct Desk {
    recorder: Recorder,
    keeper: Keeper,
    rewinder: Arc<Rewinder>,
    sessions: Arc<dyn SessionService>,
    live: LiveSession,
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { dir, bounds: SnapshotBounds::default(), runtime }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }

    fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    fn records(&self) -> Arc<Records> {
        Arc::new(Records::new(RecordOptions { folder: self.tmp(), ..RecordOptions::default() }))
    }

    /// The folder with what is kept for going back.
    fn kept(&self) -> PathBuf {
        let project = fs::read_dir(self.tmp()).unwrap().next().unwrap().unwrap().path();
        project.join("rewind")
    }

    fn desk(&self, recorder: Recorder, past: &[FilesLine]) -> Desk {
        let options = WorkspaceOptions { cwd: self.work(), ..WorkspaceOptions::default() };
        let workspace = Workspace::new(options).unwrap();
        let keeper = Keeper::new(workspace, recorder.clone(), self.bounds, past).unwrap();
        let inner: Arc<dyn SessionService> = Arc::new(InMemorySessionService::default());
        let live = inner.create(SessionKey::default(), Map::new(), 0).unwrap();
        let rewinder = Rewinder {
            records: self.records(),
            recorder: recorder.clone(),
            keeper: Some(keeper.clone()),
            cwd: self.work(),
        };
        let sessions = recorder.sessions(inner);
        Desk { recorder, keeper, rewinder: Arc::new(rewinder), sessions, live }
    }

    fn begin(&self) -> Desk {
        self.desk(self.records().begin(ID, &self.work()), &[])
    }

    fn open(&self) -> Result<Desk, RecordError> {
        let loaded = self.records().load(ID, &self.work())?;
        Ok(self.desk(loaded.recorder, &loaded.conversation.files))
    }

    /// A call of the agent's that changes these files, or any.
    fn call(&self, desk: &Desk, tool: &str, files: Option<&[&str]>, work: impl FnOnce(&Path)) {
        let files = files.map(|files| files.iter().map(|file| self.work().join(file)).collect());
        let call = WritingCall { tool: tool.into(), what: format!("{tool} something"), files };
        let ticket = self.runtime.block_on(desk.keeper.before(call));
        work(&self.work());
        self.runtime.block_on(desk.keeper.after(ticket));
    }

    fn write(&self, desk: &Desk, name: &str, text: &str) {
        self.call(desk, "write_file", Some(&[name]), |work| {
            fs::create_dir_all(work.join(name).parent().unwrap()).unwrap();
            fs::write(work.join(name), text).unwrap();
        });
    }

    fn shell(&self, desk: &Desk, work: impl FnOnce(&Path)) {
        self.call(desk, "run_shell_command", None, work);
    }

    fn rewind(&self, desk: &Desk, to: &str, what: RewindWhat, force: bool) -> RewindOutcome {
        self.runtime.block_on(desk.keeper.settle());
        let request = RewindRequest { to: to.into(), what, force };
        let Done { outcome, .. } = desk.rewinder.rewind_with(&request, &mut || Ok(())).unwrap();
        outcome
    }

    fn rewound(&self, desk: &Desk, to: &str, what: RewindWhat) -> Rewound {
        match self.rewind(desk, to, what, false) {
            RewindOutcome::Done(rewound) => rewound,
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work().join(name)).ok()
    }
}

impl Desk {
    fn prompt(&self, text: &str) {
        self.recorder.prompt(vec![Part::text(text)], None);
        self.event("user", Role::User, text);
    }

    fn answer(&self, text: &str) {
        self.event("convoke", Role::Model, text);
        self.recorder.turn_written();
    }

    fn event(&self, author: &str, role: Role, text: &str) {
        let event = Event {
            id: uuid::Uuid::new_v4().to_string(),
            author: author.into(),
            timestamp_ms: 1_700_000_000_000,
            content: Some(Arc::new(Content { role, parts: vec![Part::text(text)] })),
            ..Event::default()
        };
        self.sessions.append(&self.live, event);
    }

    fn conversation(&self) -> Conversation {
        self.recorder.read().unwrap()
    }

    fn prompts(&self) -> Vec<String> {
        self.conversation().prompts().into_iter().map(|point| point.text).collect()
    }
}
