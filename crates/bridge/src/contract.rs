//! What goes into the bridge and what comes out of it.
//!
//! The shell (the daemon's driver) owns one `Bridge`, mints the ids that cross its border, calls `Bridge::handle`
//! once per input, carries out the outputs in their order, and then sends [`Input::Tick`] at `Bridge::next_deadline`.
//!
//! **Calls.** An input with a [`CallId`] comes from a client that waits. Exactly one [`Output::Answer`] follows, most
//! often in the same step; a create waits for [`Input::SessionStarted`], a close for the running turn's end. If the
//! caller is gone when the answer of a create arrives, the shell sends [`Input::Detach`] for the id it carries.
//!
//! **Agent.** Inputs of one agent must arrive in the order in which the agent wrote them: in particular
//! [`Input::SessionStarted`] before the first [`Input::Update`] of that session, and nothing of an agent after its
//! [`Input::AgentGone`]. Open starts of a dead agent end with [`Input::SessionStartFailed`]. Each [`ReplyKey`] is
//! answered by exactly one [`Output::Resolve`], also when its agent is dead; then there is no one left to tell.
//!
//! **Streams.** The answer to [`Input::Subscribe`] comes before the first [`Output::Send`] of that subscriber. The
//! shell keeps one queue per subscriber without a bound of its own, since the bridge counts: it reports every frame
//! sent with `counted` and written to the socket through [`Input::Drained`]. After [`Output::EndStream`] and
//! [`Output::Evict`] the bridge has forgotten the subscriber; later inputs about it are ignored.
//!
//! Header and body shapes are checked by the shell before an input is made (daemon specification §b.1, §f.3 steps 1
//! and 2); everything after that is decided here.

use std::time::Duration;

use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::daemon::dto::{PromptAccepted, SessionCreated};
use convoke_protocol::{ApprovalMode, ClientId, PromptId, RequestId, SessionId};
use serde_json::Value;

use crate::audit::AuditRecord;
use crate::refusal::{Refusal, StartFailure};

/// A client's call that waits for its answer. Minted by the shell, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One event stream. Minted by the shell; naming a live one again replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberId(pub u64);

/// The agent's permission request that waits for its answer. Minted by the shell, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyKey(pub u64);

/// One attempt to start a session. Minted by the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreationId(pub u64);

/// One agent process. Minted by the shell, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey(pub u64);

/// Something happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A client wants a session: a new one, or the workspace's shared one. → [`Answer::Session`], later.
    Create {
        /// Who waits.
        call: CallId,
        /// What for.
        request: CreateRequest,
    },
    /// A client loads or resumes a session: attaches if it is live, else starts it from storage.
    /// → [`Answer::Session`], later if it is not live.
    Restore {
        /// Who waits.
        call: CallId,
        /// Which session.
        session: SessionId,
        /// Its workspace.
        workspace: String,
        /// The well-formed header, if any; kept only if it is registered on this session.
        client: Option<ClientId>,
        /// The id to register otherwise.
        minted: ClientId,
    },
    /// A client leaves. Unknown sessions and ids are no-ops; there is no answer to wait for.
    Detach {
        /// From where.
        session: SessionId,
        /// The header; anonymous leaves nothing behind.
        client: Option<ClientId>,
    },
    /// A client opens an event stream. → [`Answer::Subscribed`], then its frames.
    Subscribe {
        /// Who waits.
        call: CallId,
        /// Of which session.
        session: SessionId,
        /// From where, and how.
        request: SubscribeRequest,
    },
    /// An event stream was closed by its client.
    Unsubscribe {
        /// Which.
        subscriber: SubscriberId,
    },
    /// Counted frames were written to the socket.
    Drained {
        /// Of which stream.
        subscriber: SubscriberId,
        /// How many.
        frames: usize,
        /// The sum of their `sse` lengths.
        bytes: usize,
    },
    /// A stream's socket took nothing for too long. → [`Output::Evict`].
    WriterStalled {
        /// Which stream.
        subscriber: SubscriberId,
        /// For how long.
        idle_for: Duration,
        /// The limit.
        timeout: Duration,
    },
    /// A client sends a prompt. → [`Answer::Prompt`].
    Prompt {
        /// Who waits.
        call: CallId,
        /// To which session.
        session: SessionId,
        /// From whom.
        caller: Caller,
        /// The turn's id, minted by the shell.
        prompt_id: PromptId,
        /// ACP content blocks, not empty, each an object.
        blocks: Vec<Value>,
        /// How long the turn may run, counted from its start.
        deadline: Option<Duration>,
    },
    /// A client cancels the running turn. → [`Answer::Done`], also when idle.
    Cancel {
        /// Who waits.
        call: CallId,
        /// Of which session.
        session: SessionId,
        /// From whom.
        caller: Caller,
    },
    /// A client votes on a permission request. → [`Answer::Done`]: decided, recorded or repeated.
    Vote {
        /// Who waits.
        call: CallId,
        /// The addressed session; `None` on the legacy route, which finds it by the request.
        session: Option<SessionId>,
        /// The request.
        request: RequestId,
        /// From whom.
        caller: Caller,
        /// For what.
        choice: VoteChoice,
    },
    /// A client is alive. → [`Answer::Heartbeat`].
    Heartbeat {
        /// Who waits.
        call: CallId,
        /// On which session.
        session: SessionId,
        /// From whom.
        caller: Caller,
    },
    /// A client names the session, or (with `None`) asks for its name. → [`Answer::Metadata`].
    SetMetadata {
        /// Who waits.
        call: CallId,
        /// Which session.
        session: SessionId,
        /// From whom.
        caller: Caller,
        /// The new name; longer than [`crate::Limits::DISPLAY_NAME_UNITS`] is cut.
        display_name: Option<String>,
    },
    /// A client closes the session for everyone. → [`Answer::Done`], after the running turn ended.
    Close {
        /// Who waits.
        call: CallId,
        /// Which session.
        session: SessionId,
        /// From whom.
        caller: Caller,
    },
    /// The agent changed its model at a client's wish: `model_switched`.
    ModelSwitched {
        /// Of which session.
        session: SessionId,
        /// At whose wish.
        originator: Option<ClientId>,
        /// The model now.
        model_id: String,
    },
    /// The agent did not change its model: `model_switch_failed`.
    ModelSwitchFailed {
        /// Of which session.
        session: SessionId,
        /// At whose wish.
        originator: Option<ClientId>,
        /// The model that was asked for.
        model_id: String,
        /// The agent's words.
        error: String,
    },
    /// The agent changed its approval mode: `approval_mode_changed`. The bridge knows the mode before.
    ApprovalModeChanged {
        /// Of which session.
        session: SessionId,
        /// At whose wish.
        originator: Option<ClientId>,
        /// The mode now.
        mode: ApprovalMode,
        /// Whether it was written to the settings.
        persisted: bool,
    },
    /// The agent took the session back to before a prompt: `session_rewound`. What was decided stays decided: the audit and
    /// pending requests know nothing of it.
    SessionRewound {
        /// Which session.
        session: SessionId,
        /// At whose wish, if it was asked for outside of a prompt.
        originator: Option<ClientId>,
        /// The agent's id of the prompt.
        prompt_id: String,
        /// Its place among the prompts, from 0.
        turn_index: usize,
        /// `conversation`, `files` or `both`.
        what: String,
        /// Files that are what they were.
        files_changed: Vec<String>,
        /// Files that are not.
        files_failed: Vec<String>,
    },
    /// The agent goes on without keeping what is said: `recordingDegraded` in every snapshot from now on.
    RecordingStopped {
        /// Of which session.
        session: SessionId,
    },
    /// What the shell remembers of a session that is being restored; comes before its [`Input::SessionStarted`].
    Recalled {
        /// Which attempt; an unknown one is ignored.
        creation: CreationId,
        /// Its name for people.
        display_name: Option<String>,
        /// What kind of place it comes from.
        source_type: Option<String>,
    },
    /// The agent started a session.
    SessionStarted {
        /// Which attempt; an unknown one (given up meanwhile) is closed again through [`Output::CloseSession`].
        creation: CreationId,
        /// The session's id, unique among the live ones.
        session: SessionId,
        /// Who runs it.
        agent: AgentKey,
        /// A fresh random name of its event bus.
        epoch: String,
        /// When it was first created, if it was restored; milliseconds since the Unix epoch.
        created_wall_ms: Option<u64>,
        /// The model, if the agent told.
        model_id: Option<String>,
        /// The approval mode.
        approval_mode: ApprovalMode,
    },
    /// The agent did not start a session.
    SessionStartFailed {
        /// Which attempt.
        creation: CreationId,
        /// Why.
        failure: StartFailure,
    },
    /// The agent reported progress: ACP's `session/update`. Carried verbatim as `data.update`.
    Update {
        /// On which session.
        session: SessionId,
        /// ACP's `SessionUpdate` object.
        update: Value,
    },
    /// The agent asks for permission: ACP's `session/request_permission`. → one [`Output::Resolve`], later.
    PermissionRequested {
        /// On which session.
        session: SessionId,
        /// The request's id towards clients, a UUID minted by the shell.
        request: RequestId,
        /// Where the answer goes.
        reply: ReplyKey,
        /// ACP's `toolCall`, verbatim.
        tool_call: Value,
        /// ACP's `options`, verbatim: `[{optionId, name, kind}]`.
        options: Vec<Value>,
    },
    /// The agent gave up its own request. → its [`Output::Resolve`], cancelled.
    PermissionWithdrawn {
        /// Which.
        reply: ReplyKey,
    },
    /// The agent ended a turn.
    TurnEnded {
        /// On which session.
        session: SessionId,
        /// Which.
        prompt_id: PromptId,
        /// How.
        outcome: TurnOutcome,
    },
    /// An agent's process ended; so do all its sessions.
    AgentGone {
        /// Which.
        agent: AgentKey,
        /// Its exit code, if it exited.
        exit_code: Option<i32>,
        /// The signal that ended it, such as `SIGKILL`.
        signal: Option<String>,
    },
    /// [`crate::Bridge::next_deadline`] is reached; early or late ones do no harm.
    Tick,
    /// The daemon shuts down: every session ends, every later call is refused.
    Shutdown,
}

/// Something to do outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// The one answer to a call.
    Answer {
        /// Which call.
        call: CallId,
        /// What it gets.
        answer: Result<Answer, Refusal>,
    },
    /// Start a session, choosing or starting an agent for the workspace.
    /// → [`Input::SessionStarted`] or [`Input::SessionStartFailed`], exactly one of them.
    StartSession {
        /// Which attempt.
        creation: CreationId,
        /// Where.
        workspace: String,
        /// How.
        start: StartKind,
    },
    /// Send a prompt to the agent. → [`Input::TurnEnded`], exactly one, unless the agent dies.
    StartTurn {
        /// On which session.
        session: SessionId,
        /// Of which agent.
        agent: AgentKey,
        /// The turn.
        prompt_id: PromptId,
        /// ACP content blocks.
        blocks: Vec<Value>,
    },
    /// Ask the agent to end the turn: ACP's `session/cancel`. Its [`Input::TurnEnded`] still follows.
    CancelTurn {
        /// On which session.
        session: SessionId,
        /// Of which agent.
        agent: AgentKey,
        /// The turn.
        prompt_id: PromptId,
    },
    /// The session is over here; the agent may free it.
    CloseSession {
        /// Which.
        session: SessionId,
        /// Of which agent.
        agent: AgentKey,
    },
    /// Answer the agent's permission request.
    Resolve {
        /// Which.
        reply: ReplyKey,
        /// With what.
        resolution: Resolution,
    },
    /// Queue a frame to a stream.
    Send {
        /// Which stream.
        subscriber: SubscriberId,
        /// The frame.
        frame: EncodedFrame,
        /// Whether it counts towards the queue and is reported through [`Input::Drained`] once it is written.
        counted: bool,
    },
    /// Close a stream in good order, after everything queued is written.
    EndStream {
        /// Which.
        subscriber: SubscriberId,
    },
    /// Drop a stream and its queue now; the frame is written first if the socket takes it at once.
    Evict {
        /// Which.
        subscriber: SubscriberId,
        /// `client_evicted`.
        frame: EncodedFrame,
    },
    /// Something to remember about who decided what.
    Audit(AuditRecord),
    /// Something for the operator.
    Log {
        /// How bad.
        level: LogLevel,
        /// The line, without time and level.
        text: String,
    },
}

/// What a call gets when it is not refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Input::Create`] and [`Input::Restore`].
    Session(SessionAnswer),
    /// To [`Input::Subscribe`].
    Subscribed {
        /// The name of the session's event bus, for the response header.
        epoch: String,
    },
    /// To [`Input::Prompt`].
    Prompt(PromptAccepted),
    /// To [`Input::Heartbeat`].
    Heartbeat {
        /// Now, in milliseconds since the Unix epoch.
        last_seen_at: u64,
    },
    /// To [`Input::SetMetadata`].
    Metadata {
        /// The name now.
        display_name: Option<String>,
    },
    /// To [`Input::Cancel`], [`Input::Vote`] and [`Input::Close`].
    Done,
}

/// A session as its new member sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionAnswer {
    /// The wire's body.
    pub created: SessionCreated,
    /// Who runs it.
    pub agent: AgentKey,
    /// The session's last event so far; 0 before the first.
    pub last_event_id: u64,
    /// Which bus numbered it.
    pub epoch: String,
}

/// Who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The well-formed header; `None` is anonymous.
    pub client: Option<ClientId>,
    /// Whether the socket's peer is this machine; never from a header.
    pub loopback: bool,
}

/// A client's wish for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// The workspace, absolute.
    pub workspace: String,
    /// Shared or its own. A chosen id always makes its own.
    pub scope: SessionScope,
    /// A chosen id, lower case.
    pub session: Option<SessionId>,
    /// The well-formed header, if any; kept only if it is registered on the session found.
    pub client: Option<ClientId>,
    /// The id to register otherwise.
    pub minted: ClientId,
    /// For the agent, if a new session is started.
    pub profile: SessionProfile,
}

/// Who shares a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionScope {
    /// One per workspace, joined by everyone who asks for it.
    #[default]
    Single,
    /// Its creator's own, joined only by its id.
    Thread,
}

/// What a new session starts with; carried for the shell and the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionProfile {
    /// The model service asked for.
    pub model_service_id: Option<String>,
    /// The approval mode asked for.
    pub approval_mode: Option<ApprovalMode>,
    /// What kind of place it comes from.
    pub source_type: Option<String>,
    /// Which of them.
    pub source_id: Option<String>,
    /// The name of the agent asked for.
    pub agent: Option<String>,
}

/// How a session comes to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartKind {
    /// Newly.
    New {
        /// A chosen id.
        session: Option<SessionId>,
        /// What with.
        profile: SessionProfile,
    },
    /// From storage.
    Restore {
        /// Which.
        session: SessionId,
    },
}

/// Where a stream begins and how much it may lag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// The new stream.
    pub subscriber: SubscriberId,
    /// `Last-Event-ID`; `None` is live only.
    pub last_event_id: Option<u64>,
    /// `X-Qwen-Event-Epoch`.
    pub epoch: Option<String>,
    /// `maxQueued`, within [`crate::Limits::QUEUED_FRAMES`] (else brought into it).
    pub max_queued: Option<usize>,
    /// Whether a `session_snapshot` is wanted.
    pub snapshot: bool,
}

/// What a client votes for.
#[derive(Clone, Debug, PartialEq)]
pub enum VoteChoice {
    /// One of the options.
    Selected {
        /// Which.
        option_id: String,
        /// Further fields of the answer to the agent (`answers`, `expectedPlanExecutionMode`), as an object.
        extras: Option<Value>,
    },
    /// The request is to be withdrawn.
    Cancelled,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnOutcome {
    /// With a stop reason of ACP, such as `end_turn`.
    Complete {
        /// The reason.
        stop_reason: String,
    },
    /// With an error.
    Failed {
        /// For people.
        message: String,
        /// For programs: a string, or a JSON-RPC number.
        code: Option<Value>,
    },
}

/// How a permission request ended, for the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// An option was chosen: `{outcome:{outcome:"selected", optionId}, …extras}`.
    Selected {
        /// Which.
        option_id: String,
        /// Further fields, as an object.
        extras: Option<Value>,
    },
    /// Nothing was chosen: `{outcome:{outcome:"cancelled"}, _meta:{"qwen.daemon.permissionCancelReason": reason}}`.
    Cancelled(CancelReason),
    /// The agent offered the option id that is reserved for cancelling; an error to the agent, nothing was asked.
    SentinelCollision,
}

/// Why a permission request ended without a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// No one decided in time.
    Timeout,
    /// Its session ended.
    SessionClosed,
    /// The turn, the agent or a voter withdrew it.
    AgentCancelled,
}

impl CancelReason {
    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::SessionClosed => "session_closed",
            Self::AgentCancelled => "agent_cancelled",
        }
    }
}

/// How much a line for the operator matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Only for those who look for it.
    Debug,
    /// Ordinary.
    Info,
    /// Worth a look.
    Warn,
}
