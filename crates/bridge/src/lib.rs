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
//! Start at [`Input`] and [`Bridge::handle`].

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
#[cfg(test)]
mod tests;

pub use audit::{AuditEvent, AuditRecord, AuditResolution, DecisionReason};
pub use bridge::{AgentOf, Bridge, Counts, Journal};
pub use contract::{
    AgentKey, Answer, CallId, Caller, CancelReason, CreateRequest, CreationId, Input, LogLevel, Output, ReplyKey,
    Resolution, SessionAnswer, SessionProfile, SessionScope, StartKind, SubscribeRequest, SubscriberId, TurnOutcome,
    VoteChoice,
};
pub use options::{BridgeOptions, Limits};
pub use refusal::{ForbiddenReason, IdConflict, LimitScope, Refusal, StartFailure};
