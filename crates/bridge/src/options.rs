//! What bounds the bridge, and how it decides: given once, at construction.

use std::time::Duration;

use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};
use convoke_stdx::Tick;

/// How a bridge decides and when it gives up waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// Who may decide permission requests; captured by each request when it is issued.
    pub policy: PermissionPolicy,
    /// Votes that consensus needs, instead of ⌊M/2⌋ + 1; capped to the number of voters. Zero counts as one.
    pub quorum: Option<usize>,
    /// Whose vote to cancel ends a request; captured by each request when it is issued.
    pub cancel: CancelRule,
    /// How long a permission request waits for its decision; `None` waits for ever.
    pub permission_timeout: Option<Duration>,
    /// How long a turn may run when its prompt names no deadline of its own; `None` is unlimited.
    pub prompt_deadline: Option<Duration>,
    /// How long a session without subscriber, prompt and pending request is kept; `None` keeps it.
    pub idle_timeout: Option<Duration>,
    /// Idle sessions end at multiples of this, so that many end at once; zero ends each when it is due.
    pub reap_interval: Duration,
    /// How long a session that everybody left is kept after its turn, or whatever else kept it, for a client that comes
    /// back.
    pub settled_grace: Duration,
    /// The bounds.
    pub limits: Limits,
}

impl BridgeOptions {
    /// When something that is due at `due` is swept up.
    pub(crate) fn sweep(&self, due: Tick) -> Tick {
        let every = u64::try_from(self.reap_interval.as_millis()).unwrap_or(u64::MAX);
        if every == 0 { due } else { Tick(due.0.div_ceil(every).saturating_mul(every)) }
    }
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            policy: PermissionPolicy::FirstResponder,
            quorum: None,
            cancel: CancelRule::Any,
            // Split votes and absent voters end here; the peer's 0 leaves them waiting for ever.
            permission_timeout: Some(Duration::from_secs(5 * 60)),
            prompt_deadline: None,
            idle_timeout: Some(Duration::from_secs(30 * 60)),
            reap_interval: Duration::ZERO,
            settled_grace: Duration::ZERO,
            limits: Limits::default(),
        }
    }
}

/// Every bound of the bridge in one place. Source: daemon specification, §j.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions of one workspace, those being started included; 0 is unlimited.
    pub sessions_per_workspace: usize,
    /// Sessions of all workspaces, those being started included; 0 is unlimited.
    pub sessions_total: usize,
    /// Client ids registered on one session, and callers that wait for one start.
    pub clients: usize,
    /// Prompts of one session, the running one included; 0 lifts the limit up to [`Limits::PROMPTS_HARD`].
    pub pending_prompts: usize,
    /// Permission requests pending on one session.
    pub pending_permissions: usize,
    /// Bytes of the actions that the pending permission requests of one session are about, as canonical JSON.
    pub pending_bytes: usize,
    /// Decided requests that are remembered, over all sessions, so that a late vote is told so.
    pub resolved_permissions: usize,
    /// Audit records kept for reading back.
    pub audit_records: usize,
    /// Frames of one session kept for replay.
    pub ring_frames: usize,
    /// Bytes of one session's frames kept for replay.
    pub ring_bytes: usize,
    /// Bytes replayed to one subscription.
    pub replay_bytes: usize,
    /// Subscribers of one session.
    pub subscribers: usize,
    /// Live frames queued to one subscriber that names no number of its own.
    pub queued_frames: usize,
    /// Bytes of live frames queued to one subscriber.
    pub queued_bytes: usize,
    /// Finished turns of one session kept for clients that poll.
    pub turns: usize,
    /// Bytes of answer text kept for one turn.
    pub turn_text_bytes: usize,
    /// How long a closed session waits for its running turn to end in good order.
    pub close_grace: Duration,
}

impl Limits {
    /// Prompts of one session when the configured limit is off: a queue without any bound is no queue.
    pub const PROMPTS_HARD: usize = 1000;
    /// What a subscriber may ask for as its number of queued frames.
    pub const QUEUED_FRAMES: std::ops::RangeInclusive<usize> = 16..=2048;
    /// Longest display name, in UTF-16 units; a longer one is cut.
    pub const DISPLAY_NAME_UNITS: usize = 256;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_per_workspace: 32,
            sessions_total: 800,
            // Far above any team; an id is at most 128 bytes, so a session's registry stays under 256 KiB.
            clients: 1024,
            pending_prompts: 5,
            // A turn asks for a handful at most; beyond this the agent is broken.
            pending_permissions: 64,
            // What is replayed to one reader: each late joiner is told all of them.
            pending_bytes: 8 << 20,
            // Under 100 KiB, covers the races of reconnecting user interfaces.
            resolved_permissions: 512,
            audit_records: 512,
            ring_frames: 8000,
            // Four full replays; keeps 32 busy sessions within a gibibyte where frames alone would not.
            ring_bytes: 32 << 20,
            // Four times a subscriber's queue.
            replay_bytes: 8 << 20,
            subscribers: 64,
            queued_frames: 256,
            queued_bytes: 2 << 20,
            turns: 64,
            turn_text_bytes: 64 << 10,
            // Half of a child's own ten seconds: closing a session must not outlast closing the child.
            close_grace: Duration::from_secs(5),
        }
    }
}
