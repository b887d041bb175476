//! What the owner of the agents and the keeper of one of them say to each other.

use convoke_acp::{ChildEvent, PermissionReply, Withdrawal};
use convoke_bridge::{CreationId, Refusal, ReplyKey, Resolution, StartFailure, TurnOutcome};
use convoke_protocol::{ApprovalMode, ClientId, PromptId, SessionId};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::served::Served;
use super::state::{Ask, SessionState};

/// What the keeper of an agent is asked to do.
pub(crate) enum Order {
    /// A new session.
    New {
        /// For whom.
        creation: CreationId,
        /// The id it should have.
        wish: Option<SessionId>,
        /// The mode it should start in.
        mode: ApprovalMode,
        /// The model it should start with.
        model: Option<String>,
    },
    /// A stored session.
    Load {
        /// For whom.
        creation: CreationId,
        /// Which.
        session: SessionId,
        /// The agent's id of it.
        agent_session: SessionId,
    },
    /// A turn.
    Prompt {
        /// The agent's session.
        session: SessionId,
        /// Our turn.
        prompt_id: PromptId,
        /// ACP content blocks.
        blocks: Vec<Value>,
    },
    /// The end of the running turn.
    Cancel {
        /// The agent's session.
        session: SessionId,
    },
    /// The end of a session.
    Close {
        /// The agent's session.
        session: SessionId,
    },
    /// Another model or mode.
    Change(Box<Change>),
    /// The answer to a question.
    Reply(Box<PermissionReply>, Resolution),
    /// A notice when the agent takes a question back.
    Watch(ReplyKey, Withdrawal),
}

/// A client's wish for another model or mode, on its way to the agent.
pub(crate) struct Change {
    /// Our session.
    pub(crate) session: SessionId,
    /// The agent's session.
    pub(crate) agent_session: SessionId,
    /// Who wishes it.
    pub(crate) originator: Option<ClientId>,
    /// What.
    pub(crate) wish: Wish,
    /// How the agent is asked.
    pub(crate) ask: Ask,
}

/// What a client wishes, and where it waits.
pub(crate) enum Wish {
    /// Another mode; the answer is the mode before.
    Mode(ApprovalMode, oneshot::Sender<Result<ApprovalMode, Refusal>>),
    /// Another model; the answer is the agent's.
    Model(String, oneshot::Sender<Result<Value, Refusal>>),
    /// To see the points that the session can go back to; the answer is the agent's.
    RewindPoints(oneshot::Sender<Result<Value, Refusal>>),
    /// To go back: what the agent is asked, but for the session; the answer is the agent's.
    Rewind(Map<String, Value>, oneshot::Sender<Result<Value, Refusal>>),
}

impl Wish {
    /// Whether it may take as long as a session takes to be loaded: files are put back one by one.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self, Self::RewindPoints(_) | Self::Rewind(..))
    }

    /// Tells whoever waits that nothing changed.
    pub(crate) fn refuse(self, refusal: Refusal) {
        // They may be gone.
        match self {
            Self::Mode(_, reply) => drop(reply.send(Err(refusal))),
            Self::Model(_, reply) | Self::RewindPoints(reply) | Self::Rewind(_, reply) => {
                drop(reply.send(Err(refusal)));
            }
        }
    }
}

/// What a keeper tells.
pub(crate) enum Report {
    /// The agent shook hands.
    Up {
        /// Whether it can load sessions.
        loads: bool,
    },
    /// The agent did not start.
    NotUp(StartFailure),
    /// The agent says something, its end included.
    Said(ChildEvent),
    /// A session was started, or not.
    Started {
        /// For whom.
        creation: CreationId,
        /// What came of it.
        result: Result<Box<Started>, StartFailure>,
    },
    /// A turn ended.
    TurnEnded {
        /// The agent's session.
        session: SessionId,
        /// Our turn.
        prompt_id: PromptId,
        /// How.
        outcome: TurnOutcome,
        /// The agent did not heed a cancel.
        stuck: bool,
    },
    /// The agent left something unanswered for too long.
    Stuck,
    /// A question was taken back.
    Withdrawn(ReplyKey),
    /// Something was done for the agent.
    Served(Served),
    /// The model or mode was changed, or not.
    Changed {
        /// What was asked.
        change: Box<Change>,
        /// What the agent answered.
        result: Result<Value, StartFailure>,
        /// It did not answer at all.
        stuck: bool,
    },
}

/// A session as its agent made it.
pub(crate) struct Started {
    /// The agent's id of it.
    pub(crate) agent_session: SessionId,
    /// Ours, if it was asked for by id.
    pub(crate) wish: Option<SessionId>,
    /// What the agent told of it.
    pub(crate) state: SessionState,
    /// Its mode.
    pub(crate) mode: ApprovalMode,
    /// What came of the wish for a model, if there was one: the model, and why it is not in use.
    pub(crate) model: Option<(String, Option<String>)>,
}
