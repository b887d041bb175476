//! What does a server get when it asks us, and where do its notifications go?
//!
//! It may know the workspace's folders. It may not ask a model, and a question to the user is declined: nobody would
//! know who asks. Neither is offered at the handshake.

#![expect(deprecated, reason = "roots are deprecated in the newest protocol and are what older servers ask for")]

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, Implementation, ListRootsResult,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, Root, RootsCapabilities,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::mpsc;

use crate::call::Progress;

/// The longest log line of a server that goes to our log.
const LOG_MAX: usize = 2_000;
/// Announcements that wait; what does not fit says nothing new.
pub(crate) const CHANGES_MAX: usize = 4;

/// What a running call does with progress.
pub(crate) type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Who hears of which progress; bounded by the calls that run.
#[derive(Default)]
pub(crate) struct ProgressTable(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    listeners: HashMap<ProgressToken, (f64, OnProgress)>,
    /// Of calls that have not said yet that they listen: a server may be quicker than we are.
    early: VecDeque<ProgressNotificationParam>,
}

/// Progress that waits for its call to listen. Tokens are not used again, so what nobody listens to any more goes this way.
const EARLY_MAX: usize = 64;

impl ProgressTable {
    /// Progress with this token goes to `listener` until the guard is dropped, what came already included.
    pub(crate) fn enter(&self, token: ProgressToken, listener: OnProgress) -> Listening<'_> {
        let mut heard = self.lock();
        heard.listeners.insert(token.clone(), (f64::NEG_INFINITY, listener));
        let (early, others) = heard.early.drain(..).partition(|early| early.progress_token == token);
        heard.early = others;
        drop(heard);
        let early: VecDeque<_> = early;
        early.into_iter().for_each(|params| self.report(params));
        Listening { table: self, token }
    }

    fn report(&self, params: ProgressNotificationParam) {
        let mut heard = self.lock();
        let listener = match heard.listeners.get_mut(&params.progress_token) {
            // Notifications are handled side by side, and an older one says nothing any more.
            Some((before, _)) if params.progress < *before => return,
            Some((before, listener)) => {
                *before = params.progress;
                listener.clone()
            }
            None => {
                heard.early.push_back(params);
                if heard.early.len() > EARLY_MAX {
                    heard.early.pop_front();
                }
                return;
            }
        };
        drop(heard);
        listener(Progress { progress: params.progress, total: params.total, message: params.message });
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that hears of its progress.
pub(crate) struct Listening<'a> {
    table: &'a ProgressTable,
    token: ProgressToken,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.table.lock().listeners.remove(&self.token);
    }
}

/// Our end of one connection.
pub(crate) struct Handler {
    pub(crate) server: String,
    pub(crate) client: (String, String),
    pub(crate) roots: Arc<[PathBuf]>,
    pub(crate) progress: Arc<ProgressTable>,
    pub(crate) changed: mpsc::Sender<()>,
}

/// The workspace's folders as a server reads them.
pub(crate) fn roots(folders: &[PathBuf]) -> ListRootsResult {
    let root = |folder: &PathBuf| {
        let uri = reqwest::Url::from_file_path(folder).ok()?;
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let root = Root::new(uri.to_string());
        Some(match name {
            Some(name) => root.with_name(name),
            None => root,
        })
    };
    ListRootsResult::new(folders.iter().filter_map(root).collect())
}

/// A clear no.
pub(crate) fn declined() -> ElicitResult {
    ElicitResult::new(ElicitationAction::Decline)
}

impl Handler {
    fn announce(&self) {
        // A full queue holds an announcement already.
        let _ = self.changed.try_send(());
    }
}

impl ClientHandler for Handler {
    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(ErrorData::method_not_found::<CreateMessageRequestMethod>())
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(roots(&self.roots))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        tracing::info!(server = %self.server, "declined a question of an MCP server");
        Ok(declined())
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.report(params);
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        let text = params.data.to_string();
        tracing::debug!(server = %self.server, text = convoke_stdx::cut::head(&text, LOG_MAX), "MCP server");
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.announce();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.announce();
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.announce();
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let mut roots = RootsCapabilities::default();
        roots.list_changed = Some(false);
        capabilities.roots = Some(roots);
        let (name, version) = self.client.clone();
        ClientConfig::new(capabilities, Implementation::new(name, version))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    #[test]
    fn progress_that_is_quicker_than_its_listener_is_heard_once() {
        let token = |number| ProgressToken(NumberOrString::Number(number));
        let told = |number, progress| ProgressNotificationParam::new(token(number), progress);
        let table = ProgressTable::default();
        let heard: Arc<Mutex<Vec<f64>>> = Arc::default();
        let listener = || -> OnProgress {
            let heard = heard.clone();
            Arc::new(move |progress| heard.lock().unwrap().push(progress.progress))
        };
        table.report(told(1, 0.5));
        table.report(told(2, 7.0));
        let listening = table.enter(token(1), listener());
        table.report(told(1, 1.0));
        table.report(told(1, 0.7));
        assert_eq!(*heard.lock().unwrap(), [0.5, 1.0], "in its order, and nothing that is older");
        drop(listening);
        // What comes for calls that are over takes no more room than this.
        (0..1_000).for_each(|number| table.report(told(1, f64::from(number))));
        assert_eq!(table.lock().early.len(), EARLY_MAX);
    }
}
