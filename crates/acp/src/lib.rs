//! Both ends of the [Agent Client Protocol](https://agentclientprotocol.com), version 1; the agent
//! end speaks draft version 2 where its host wants that.
//!
//! This is the only room that names the ACP SDK, and none of its types leave it: whoever hosts an agent sees
//! `convoke_protocol` types and raw JSON.
//!
//! * **Agent end** – [`serve`] offers the sessions of a [`SessionFactory`](convoke_protocol::SessionFactory) to an ACP
//!   client: an editor, a daemon, ours or another. [`serve_stdio`] does so on stdin and stdout.
//! * **Client end** – [`AgentChild`] drives any ACP agent, started as a guarded child process ([`AgentChild::start`])
//!   or reached over any pair of byte streams ([`AgentChild::connect`]). What the agent says arrives, in its own order,
//!   in a bounded queue of [`ChildEvent`]s ([`AgentEvents`]).
//!
//! ```no_run
//! # async fn demo(command: convoke_acp::AgentCommand, spawner: convoke_stdx::guard::Spawner)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use convoke_acp::{AgentChild, AgentOptions, ChildEvent};
//!
//! let (agent, mut events) = AgentChild::start(command, &spawner, AgentOptions::default()).await?;
//! let session = agent.new_session("/work/project".as_ref(), None).await?.session_id;
//! let prompt = serde_json::json!([{"type": "text", "text": "hello"}]);
//! let driver = agent.clone();
//! let turn = async move { driver.prompt(&session, prompt, None).await };
//! let follow = async {
//!     while let Some(event) = events.recv().await {
//!         match event {
//!             ChildEvent::Update(update) => println!("{}", update.update),
//!             ChildEvent::PermissionRequest(ask) => ask.reply.selected("proceed_once"),
//!             // Only for a client that said it serves files and terminals; dropping it answers with an error.
//!             ChildEvent::Call(_) => {}
//!             ChildEvent::Exited(_) => break,
//!         }
//!     }
//! };
//! tokio::select! { end = turn => println!("{}", end?.stop_reason), () = follow => {} }
//! # Ok(()) }
//! ```

mod agent;
mod client;
mod lines;
mod rpc_error;
pub mod transport;
mod wire;

/// The key in `_meta` of the answer to `session/load` with the number of lines of the record that could not be read.
pub const DAMAGED_META: &str = "convoke.damagedLines";

/// The key in `_meta` of `session/new` by which a client chooses the id of the session.
pub const SESSION_ID_META: &str = "convoke.sessionId";

/// The key in `_meta` of a new session and of `session_info_update` that names the model.
pub const MODEL_META: &str = "convoke.model";

/// The key in `_meta` of `session_info_update` that is `false` once a session goes on without a record.
pub const RECORDING_META: &str = "convoke.recording";

/// The key in `_meta` of `session_info_update` that tells what a session went back to, whoever asked for it.
pub const REWOUND_META: &str = "convoke.rewound";

/// The key in `_meta` of a prompt's answer that says more about its end, such as `{"code": "MAX_TURNS_EXCEEDED", …}`.
pub const END_META: &str = "convoke.end";

/// The key in `_meta` of a prompt's answer, and in `data` of its error, with the texts that were said to the turn by
/// `_convoke/session/steer` and that no model read: send them as prompts.
pub const UNREAD_META: &str = "convoke.unread";

/// The key in `_meta` of the agent's capabilities that lists its own methods.
pub const METHODS_META: &str = "convoke.methods";

pub use agent::{ServeError, serve, serve_stdio, serve_with_v2};
pub use client::{
    AgentChild, AgentCommand, AgentDescription, AgentError, AgentEvents, AgentOptions, CallReply, ChildEvent,
    ClientCall, EndCause, Exit, PermissionAsk, PermissionReply, PromptEnd, StartError, StartedSession, UpdateEvent,
    Withdrawal,
};
pub use lines::{Line, Lines};
pub use rpc_error::RpcError;
