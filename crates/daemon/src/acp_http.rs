//! How does a client of the Agent Client Protocol sit down at the daemon? `/acp`, over HTTP and over WebSocket.
//!
//! ```text
//! POST, GET, DELETE ─▶ http ───┐ memos                    ┌─▶ driver ─▶ bridge
//! WebSocket ─────────▶ socket ─┴──────▶ attendant ─ Seat ─┤
//!        ◀────────────────── outlets ◀──┘                 └─▶ subscriptions
//! ```
//! An ACP connection is one more client of the bridge. Its seat decides what a message means and which stream hears of
//! what; its attendant, one task for each connection, carries it out. Source: daemon specification, §g.

mod attendant;
mod http;
mod orders;
mod outlet;
mod registry;
mod rpc;
mod seat;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::Body;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::driver::Handle;
use crate::facts::Facts;
use crate::peer::Connection;
use crate::respond::Reply;
use crate::service::Service;
use crate::toll::Toll;

pub(crate) use outlet::Reader as OutletReader;
use registry::Registry;

/// Tasks on their way to the crew: one for each connection, and there are 64.
const TASKS_MAX: usize = 64;

type Task = BoxFuture<'static, ()>;

/// Where ACP clients sit down.
pub(crate) struct AcpDesk {
    registry: Arc<Registry>,
    handle: Handle,
    house: seat::House,
    heartbeat: Duration,
    facts: Arc<Facts>,
    /// Who asked how often; `None` does not count.
    rate: Option<Arc<Toll>>,
    tasks: mpsc::Sender<Task>,
    stop: CancellationToken,
}

/// Runs the tasks of ACP connections; to be run by the daemon until it ends, and ends them when it is dropped.
pub(crate) struct AcpCrew {
    tasks: mpsc::Receiver<Task>,
    stop: CancellationToken,
}

impl AcpDesk {
    pub(crate) fn new(handle: Handle, facts: Arc<Facts>, rate: Option<Arc<Toll>>) -> (Self, AcpCrew) {
        let (sender, tasks) = mpsc::channel(TASKS_MAX);
        let stop = CancellationToken::new();
        let desk = Self {
            registry: Arc::default(),
            handle,
            house: seat::House { workspace: facts.workspace.clone(), version: facts.version.clone() },
            heartbeat: facts.limits.heartbeat,
            rate,
            tasks: sender,
            stop: stop.clone(),
            facts,
        };
        (desk, AcpCrew { tasks, stop })
    }

    /// Answers a request for `/acp`. Host and Origin were judged before.
    pub(crate) async fn answer<B>(&self, service: &Service, from: &Connection, head: &Parts, body: B) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let upgrade = socket::is_upgrade(head);
        let admitted =
            if upgrade { service.auth.admits_upgrade(&head.headers) } else { service.auth.admits(&head.headers) };
        if !admitted {
            return http::unauthorized();
        }
        let reply =
            if upgrade { socket::open(self, from, head).await } else { http::answer(self, from, head, body).await };
        reply.unwrap_or_else(|error| error.reply())
    }
}

impl AcpCrew {
    /// Runs until no request can come any more and every connection has ended; `stop` asks them to.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                task = self.tasks.recv() => match task {
                    Some(task) => _ = running.spawn(task),
                    None => break,
                },
                Some(_) = running.join_next() => {}
                () = stop.cancelled(), if !self.stop.is_cancelled() => self.stop.cancel(),
            }
        }
        self.stop.cancel();
        while running.join_next().await.is_some() {}
    }
}
