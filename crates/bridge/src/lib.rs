//! Who may decide, who hears of it, who is next?
//!
//! The referee between one daemon's agents and its many clients: sessions, client ids, prompt queues, event buses and
//! the permission mediator. Sans-IO: no socket, clock, randomness, lock or task; time and ids are inputs.
//!
//! ```text
//!            Input                          Output
//! clients ─ create, prompt, vote … ─▶ ┌────────┐ ─▶ Answer, Send, EndStream, Evict
//! agents ── update, permission … ───▶ │ Bridge │ ─▶ StartSession, StartTurn, CancelTurn, Resolve, CloseSession
//! clock ─── tick at next_deadline ──▶ └────────┘ ─▶ Audit, Log
//! ```
//! One input is one atomic step: nothing can come between the snapshot of voters, the entry and its deadline.
//! Start at [`Input`] and [`Bridge::handle`]. A shell in a few lines, with an agent that needs no time to start:
//!
//! ```
//! use convoke_bridge::*;
//! use convoke_protocol::ApprovalMode;
//! use convoke_stdx::Clock;
//!
//! let clock = Clock::start();
//! let mut bridge = Bridge::new(BridgeOptions::default());
//! let request = CreateRequest {
//!     workspace: "/workspace/demo".into(),
//!     scope: SessionScope::Single,
//!     session: None,
//!     client: None,
//!     minted: "client_1".into(),
//!     profile: SessionProfile::default(),
//! };
//! let mut inputs = vec![Input::Create { call: CallId(1), request }];
//! let mut answers = Vec::new();
//! while let Some(input) = inputs.pop() {
//!     let mut out = Vec::new();
//!     bridge.handle(clock.now(), input, &mut out);
//!     for output in out {
//!         match output {
//!             Output::Answer { call: CallId(1), answer: Ok(Answer::Session(session)) } => answers.push(session),
//!             Output::StartSession { creation, .. } => inputs.push(Input::SessionStarted {
//!                 creation,
//!                 session: "841d8369-cd2d-4629-9c26-717454fccf8e".into(),
//!                 agent: AgentKey(1),
//!                 epoch: "98f4b8b6-ec78-489a-8e08-91798b3e40a4".into(),
//!                 created_wall_ms: None,
//!                 model_id: None,
//!                 approval_mode: ApprovalMode::Default,
//!             }),
//!             other => panic!("{other:?}"),
//!         }
//!     }
//! }
//! assert_eq!(answers[0].created.client_id, "client_1".into());
//! assert_eq!(bridge.counts().sessions, 1);
//! ```

mod action_digest;
mod audit;
mod bridge;
mod clients;
mod contract;
mod event_bus;
mod mediator;
mod options;
mod prompt_queue;
mod refusal;
mod session;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
#[cfg(test)]
mod tests;

pub use action_digest::action_digest;
pub use audit::{AuditEvent, AuditRecord, AuditResolution, DecisionReason};
pub use bridge::{AgentOf, Bridge, Counts, Journal};
pub use contract::{
    AgentKey, Answer, CallId, Caller, CancelReason, CreateRequest, CreationId, Input, LogLevel, Output, ReplyKey,
    Resolution, SessionAnswer, SessionProfile, SessionScope, StartKind, SubscribeRequest, SubscriberId, TurnOutcome,
    VoteChoice,
};
pub use options::{BridgeOptions, Limits};
pub use refusal::{ForbiddenReason, IdConflict, LimitScope, Refusal, StartFailure};
