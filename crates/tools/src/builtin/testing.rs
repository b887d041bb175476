//! A folder, the tools over it, and a way to call them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use convoke_stdx::guard::Spawner;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{BuiltinOptions, Grounded, ShellOptions, WebModel, WebTask, tools};
use crate::{
    BackgroundLimits, BackgroundProcesses, ClientFiles, ConfirmationDetails, DeclarativeTool, ErrorType,
    ExecutionContext, Guards, Invocation, ToolFailure, ToolOutput, Workspace, WorkspaceOptions,
};

pub(super) struct Folder {
    pub(super) dir: tempfile::TempDir,
    pub(super) background: Arc<BackgroundProcesses>,
    pub(super) shell: ShellOptions,
    pub(super) client: Option<Arc<dyn ClientFiles>>,
}

impl Folder {
    /// A folder `work` with these files, beside a folder `outside`.
    pub(super) fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        std::fs::create_dir_all(dir.path().join("outside")).unwrap();
        let background = Arc::new(BackgroundProcesses::new(BackgroundLimits::default()));
        let folder =
            Self { dir, background, shell: ShellOptions::new(Guards::new(Spawner::unguarded())), client: None };
        for (name, text) in files {
            folder.write(name, text.as_bytes());
        }
        folder
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.dir.path()).unwrap().join("work").join(name)
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(super) fn read(&self, name: &str) -> String {
        String::from_utf8(std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    pub(super) fn tool(&self, name: &str) -> Arc<dyn DeclarativeTool> {
        let workspace = Workspace::new(WorkspaceOptions { cwd: self.path(""), ..WorkspaceOptions::default() }).unwrap();
        let workspace = match &self.client {
            Some(client) => workspace.with_client_files(client.clone()),
            None => workspace,
        };
        let options = BuiltinOptions {
            workspace: Arc::new(workspace),
            shell: self.shell.clone(),
            background: Arc::clone(&self.background),
        };
        tools(options).into_iter().find(|tool| tool.name() == name).unwrap()
    }

    pub(super) fn build(&self, name: &str, args: Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        self.tool(name).build(&args)
    }

    pub(super) async fn run(&self, name: &str, args: Value) -> Result<ToolOutput, ToolFailure> {
        self.build(name, args)?.execute(&context()).await
    }

    pub(super) async fn text(&self, name: &str, args: Value) -> String {
        self.run(name, args).await.unwrap().text
    }

    pub(super) async fn fails(&self, name: &str, args: Value) -> (ErrorType, String) {
        let failure = self.run(name, args).await.unwrap_err();
        (failure.error_type().unwrap(), failure.message().to_owned())
    }

    pub(super) async fn confirmation(&self, name: &str, args: Value) -> ConfirmationDetails {
        self.build(name, args).unwrap().confirmation().await.unwrap()
    }
}

pub(super) fn context() -> ExecutionContext {
    ExecutionContext::new("call", CancellationToken::new(), |_| ())
}

/// A deadline around waiting for an event; never what a test is about.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it never happened")
}

type Said = Result<(&'static str, Value, Value), &'static str>;

/// A model that searches and reads pages by itself, and answers from a list.
pub(super) struct Oracle {
    answers: Mutex<VecDeque<Said>>,
    asked: Mutex<Vec<(WebTask, String)>>,
}

impl Oracle {
    pub(super) fn saying<const N: usize>(answers: [Said; N]) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into()), asked: Mutex::default() })
    }

    pub(super) fn asked(&self) -> Vec<(WebTask, String)> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl WebModel for Oracle {
    fn searches(&self) -> bool {
        true
    }

    fn reads_pages(&self) -> bool {
        true
    }

    async fn ask(&self, task: WebTask, prompt: String, _: &CancellationToken) -> Result<Grounded, String> {
        self.asked.lock().unwrap().push((task, prompt));
        let answer = self.answers.lock().unwrap().pop_front().expect("asked too often");
        let (text, grounding, pages) = answer?;
        Ok(Grounded { text: text.to_owned(), grounding, pages })
    }
}
