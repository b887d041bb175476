//! Who may decide: all permission requests of the daemon, pending and decided.
//!
//! ```text
//!            guards pass                 vote decides, vote cancels, timeout,
//! request ───────────────▶ pending ───── withdrawn, turn or session over ───▶ resolved ── FIFO ──▶ forgotten
//!    │ guards fail                                                               │ late vote of a registered client:
//!    └▶ Resolve at once, never published                                         └▶ permission_already_resolved
//! ```
//! Entry, voter snapshot, policy and deadline are set in one step, so nothing can see a request without its timer.
//! Source: daemon specification, §f; `MultiClientPermissionMediator` upstream.
//!
//! Invariants: I1 each reply key is answered exactly once. I2 a request is pending or remembered, never both. I3 every
//! pending request with a timeout has exactly one deadline, and no deadline lacks its request. I4 pending per session
//! and remembered in all obey their bounds. I5 no vote outside of the captured voters counts, and a pending ballot is
//! undecided; what its members were told of the chance of a quorum is so. I6 the order inside a resolution is: out of pending, `permission_resolved`, remembered, audited,
//! answered.

mod pending;
mod policy;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use convoke_protocol::daemon::FrameKind;
use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};
use convoke_protocol::daemon::dto::PendingInteraction;
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick};
use serde_json::{Map, Value, json};

use crate::action_digest::{action_digest, digest_and_size};
use crate::audit::{AuditEvent, AuditResolution, AuditRing, DecisionReason};
#[cfg(any(test, feature = "sim"))]
use crate::clients::Clients;
use crate::contract::{Caller, CancelReason, Output, ReplyKey, Resolution, VoteChoice};
use crate::event_bus::Draft;
use crate::options::BridgeOptions;
use crate::refusal::{ForbiddenReason, Refusal};
use pending::{Pending, Wait};
use policy::{Ballot, Standing, Verdict, quorum};
use stage::{Ending, Subject};

pub(crate) use stage::{Stage, Withdrawal};

/// The option id that no agent may offer and no client may send: inside, it once stood for cancelling.
pub(crate) const CANCEL_SENTINEL: &str = "__cancelled__";

/// A request as the agent made it; the turn, its originator and the voters are the session's to fill in.
pub(crate) struct Issue {
    pub(crate) request: RequestId,
    pub(crate) reply: ReplyKey,
    pub(crate) prompt_id: Option<PromptId>,
    pub(crate) originator: Option<ClientId>,
    pub(crate) voters: Arc<[ClientId]>,
    pub(crate) tool_call: Value,
    pub(crate) options: Vec<Value>,
}

/// A vote on its way, addressed as its caller did.
pub(crate) struct Vote<'a> {
    pub(crate) addressed: Option<&'a SessionId>,
    pub(crate) request: &'a RequestId,
    pub(crate) caller: &'a Caller,
    pub(crate) choice: VoteChoice,
}

#[derive(Debug)]
pub(crate) struct Mediator {
    policy: PermissionPolicy,
    quorum: Option<usize>,
    cancel: CancelRule,
    timeout_ms: Option<u64>,
    pending_max: usize,
    pending_bytes_max: usize,
    resolved_max: usize,
    pending: BTreeMap<RequestId, Pending>,
    /// Per session in the order of issue.
    by_session: BTreeMap<SessionId, Vec<RequestId>>,
    by_reply: BTreeMap<ReplyKey, RequestId>,
    deadlines: BTreeSet<(Tick, RequestId)>,
    resolved: BTreeMap<RequestId, Resolved>,
    resolved_order: VecDeque<RequestId>,
    /// Notes that the operator had already; they say the same each time.
    noted: Noted,
}

/// What the operator was told once.
#[derive(Debug, Default)]
struct Noted {
    unanimity: bool,
    no_timeout: bool,
}

/// What is remembered of a decided request: enough to tell a late voter.
#[derive(Debug)]
struct Resolved {
    session: SessionId,
    prompt_id: Option<PromptId>,
    outcome: Value,
}

impl Mediator {
    pub(crate) fn new(options: &BridgeOptions) -> Self {
        Self {
            policy: options.policy,
            quorum: options.quorum,
            cancel: options.cancel,
            timeout_ms: options.permission_timeout.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX)),
            pending_max: options.limits.pending_permissions,
            pending_bytes_max: options.limits.pending_bytes,
            resolved_max: options.limits.resolved_permissions,
            pending: BTreeMap::new(),
            by_session: BTreeMap::new(),
            by_reply: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            resolved: BTreeMap::new(),
            resolved_order: VecDeque::new(),
            noted: Noted::default(),
        }
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn pending_on(&self, session: &SessionId) -> usize {
        self.by_session.get(session).map_or(0, Vec::len)
    }

    fn pending_bytes_on(&self, session: &SessionId) -> usize {
        let requests = self.by_session.get(session).map(Vec::as_slice).unwrap_or_default();
        requests.iter().filter_map(|id| self.pending.get(id)).map(|pending| pending.bytes).sum()
    }

    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.first().map(|(tick, _)| *tick)
    }

    /// The request whose time is over, if any, with its session.
    pub(crate) fn due(&self, tick: Tick) -> Option<(SessionId, RequestId)> {
        let (_, request) = self.deadlines.first().filter(|(deadline, _)| *deadline <= tick)?;
        let pending = self.pending.get(request)?;
        Some((pending.session.clone(), request.clone()))
    }

    /// The session of a pending or remembered request.
    pub(crate) fn session_of(&self, request: &RequestId) -> Option<&SessionId> {
        let pending = self.pending.get(request).map(|pending| &pending.session);
        pending.or_else(|| self.resolved.get(request).map(|resolved| &resolved.session))
    }

    /// The session of the pending request that this key waits for.
    pub(crate) fn awaited(&self, reply: ReplyKey) -> Option<(SessionId, RequestId)> {
        let request = self.by_reply.get(&reply)?;
        let pending = self.pending.get(request)?;
        Some((pending.session.clone(), request.clone()))
    }

    /// Whether this key waits already; then a second request under it is not asked.
    pub(crate) fn awaits(&self, reply: ReplyKey) -> bool {
        self.by_reply.contains_key(&reply)
    }

    /// The pending requests of a session for a reader who did not see them asked, oldest first.
    pub(crate) fn unseen<'a>(&'a self, session: &SessionId, now: Now) -> impl Iterator<Item = (u64, Draft)> + use<'a> {
        let requests = self.by_session.get(session).map(Vec::as_slice).unwrap_or_default();
        let pending = requests.iter().filter_map(|id| Some((id, self.pending.get(id)?)));
        pending.map(move |(id, pending)| (pending.frame_id, pending.repetition(id, now)))
    }

    /// The pending requests of a session for clients that poll, oldest first.
    pub(crate) fn interactions(&self, session: &SessionId) -> Vec<PendingInteraction> {
        let requests = self.by_session.get(session).map(Vec::as_slice).unwrap_or_default();
        requests.iter().filter_map(|id| Some(self.pending.get(id)?.interaction(id))).collect()
    }

    /// Takes an agent's request: answers it at once if it can't be asked, else asks everyone.
    ///
    /// That its session is live and not closing is checked before.
    pub(crate) fn request(&mut self, issue: Issue, stage: &mut Stage<'_>) {
        let (reply, session) = (issue.reply, stage.session);
        let cancelled = Resolution::Cancelled(CancelReason::AgentCancelled);
        if self.session_of(&issue.request).is_some() {
            stage.warn(format!("permission {} (session {session}) was issued before; cancelled", issue.request));
            return self.turn_away(&issue, "repeated_request_id", cancelled, stage);
        }
        // A broken agent must not fill memory; what it can't ask it may not do.
        if self.pending_on(session) >= self.pending_max {
            let text =
                format!("session {session} has {} pending permission requests; one more cancelled", self.pending_max);
            stage.warn(text);
            return self.turn_away(&issue, "too_many_pending", cancelled, stage);
        }
        let (digest, bytes) = digest_and_size(session, &issue.tool_call, &issue.options);
        if self.pending_bytes_on(session).saturating_add(bytes) > self.pending_bytes_max {
            stage.warn(format!(
                "session {session} asks about more than {} bytes at once; permission {} cancelled",
                self.pending_bytes_max, issue.request
            ));
            return self.turn_away(&issue, "too_many_pending", cancelled, stage);
        }
        let mut allowed: Vec<String> = Vec::new();
        for option in &issue.options {
            match option.get("optionId").and_then(Value::as_str) {
                // An agent may not disguise cancelling as one of its options.
                Some(CANCEL_SENTINEL) => {
                    stage.warn(format!(
                        "permission {} (session {session}) offers {CANCEL_SENTINEL}; refused",
                        issue.request
                    ));
                    let collision = Resolution::SentinelCollision;
                    return self.turn_away(&issue, "cancel_sentinel_collision", collision, stage);
                }
                Some(id) if !id.is_empty() && !allowed.iter().any(|known| known == id) => allowed.push(id.to_owned()),
                Some(_) | None => {}
            }
        }
        let ballot = Ballot {
            policy: self.policy,
            cancel: self.cancel,
            originator: issue.originator,
            quorum: quorum(issue.voters.len(), self.quorum),
            voters: issue.voters,
            options: allowed,
            votes: BTreeMap::new(),
        };
        let wait = Wait::from(stage.now, self.timeout_ms);
        let mut pending = Pending {
            session: session.clone(),
            reply,
            prompt_id: issue.prompt_id,
            ballot,
            told: Standing::Open,
            digest: digest.into(),
            bytes,
            issued: stage.now,
            wait,
            frame_id: 0,
            tool_call: issue.tool_call,
            options: issue.options,
        };
        pending.frame_id = stage.publish(pending.announcement(&issue.request));
        stage.record(&issue.request, &pending, pending.requested());
        self.note_electorate(&issue.request, &pending.ballot, stage);
        if wait == Wait::ForEver && !std::mem::replace(&mut self.noted.no_timeout, true) {
            stage.info(format!("permission {}: the timeout is switched off, so requests wait for ever", issue.request));
        }
        self.by_session.entry(session.clone()).or_default().push(issue.request.clone());
        self.by_reply.insert(reply, issue.request.clone());
        if let Some(deadline) = wait.deadline() {
            self.deadlines.insert((deadline, issue.request.clone()));
        }
        let pending = self.pending.entry(issue.request.clone()).or_insert(pending);
        // Of nobody no quorum can come.
        judge_standing(&issue.request, pending, stage);
    }

    /// Answers a request that can't be asked.
    fn turn_away(&self, issue: &Issue, reason: &'static str, resolution: Resolution, stage: &mut Stage<'_>) {
        self.record_unasked(issue, reason, stage.session, stage.now, (stage.audit, stage.out));
        stage.resolve(issue.reply, resolution);
    }

    /// The record of a request that nobody was asked.
    pub(crate) fn record_unasked(
        &self,
        issue: &Issue,
        reason: &'static str,
        session: &SessionId,
        now: Now,
        (audit, out): (&mut AuditRing, &mut Vec<Output>),
    ) {
        let subject = Subject {
            request: &issue.request,
            session,
            originator: issue.originator.as_ref(),
            policy: self.policy.name(),
            digest: action_digest(session, &issue.tool_call, &issue.options).into(),
        };
        subject.record(now, AuditEvent::NotAsked { reason }, audit, out);
    }

    /// Tells the operator what may surprise in a consensus.
    fn note_electorate(&mut self, request: &RequestId, ballot: &Ballot, stage: &mut Stage<'_>) {
        if ballot.policy != PermissionPolicy::Consensus {
            return;
        }
        let (voters, quorum) = (ballot.voters.len(), ballot.quorum);
        if self.quorum.is_some_and(|wanted| wanted > quorum) {
            stage.warn(format!("permission {request}: the quorum is capped to the {voters} clients present"));
        } else if voters == 2 && self.quorum.is_none() && !std::mem::replace(&mut self.noted.unanimity, true) {
            let split = if self.timeout_ms.is_some() { "waits for the timeout" } else { "waits for ever" };
            stage.info(format!(
                "permission {request}: of two clients both must agree, so a split vote {split} unless one of them moves; \
                 with policy.consensusQuorum 1 the first vote decides"
            ));
        }
    }

    /// Judges a vote. `Ok` means decided, recorded or repeated.
    ///
    /// The order of the checks keeps outsiders from learning which requests and clients exist; that the session is
    /// live is checked before. Source: daemon specification, §f.3.
    pub(crate) fn vote(&mut self, vote: Vote<'_>, stage: &mut Stage<'_>) -> Result<(), Refusal> {
        let request = vote.request;
        // The request before the voter: the answer for an unknown, foreign or forgotten request is the same whatever
        // the header says. Else a made-up request id would tell which client ids are registered.
        let unknown = || Refusal::RequestNotFound { session: vote.addressed.cloned(), request: request.clone() };
        if self.session_of(request) != Some(stage.session) {
            return Err(unknown());
        }
        let Some(pending) = self.pending.get_mut(request) else {
            return self.late_vote(&vote, unknown(), stage);
        };
        // Past this point the voter may know that the request exists: it is being announced to all subscribers.
        if let Some(client) = vote.caller.client.clone().filter(|client| !stage.clients.contains(client)) {
            return Err(Refusal::InvalidClientId { session: stage.session.clone(), client });
        }
        let (option_id, extras) = match vote.choice {
            // Before the policy, deliberately: anyone who can reach the daemon can stop the agent, no one can make it
            // go on by stopping it. Unless the operator wants it otherwise.
            VoteChoice::Cancelled => {
                if let Err(reason) = pending.ballot.may_cancel(vote.caller) {
                    return Err(refuse(request, pending, vote.caller, None, reason, stage));
                }
                let client = vote.caller.client.clone();
                stage.record(request, pending, voted(vote.caller, None, "resolved"));
                let reason = DecisionReason::VoterCancelled { resolver_client_id: client.clone() };
                let ending =
                    Ending { resolution: Resolution::Cancelled(CancelReason::AgentCancelled), reason, voter: client };
                self.end(request, ending, stage);
                return Ok(());
            }
            VoteChoice::Selected { option_id, extras } => (option_id, extras),
        };
        // Before the policy: an outsider learns of a wrong option what an insider learns. The sentinel is never among
        // the options, so a client can't smuggle a cancel in as a choice.
        if !pending.ballot.options.contains(&option_id) {
            return Err(Refusal::InvalidOption { request: request.clone(), option_id });
        }
        match pending.ballot.cast(vote.caller, &option_id) {
            Verdict::Decides(reason) => {
                stage.record(request, pending, voted(vote.caller, Some(option_id.clone()), "resolved"));
                let voter = vote.caller.client.clone();
                self.end(
                    request,
                    Ending { resolution: Resolution::Selected { option_id, extras }, reason, voter },
                    stage,
                );
                Ok(())
            }
            Verdict::Counts => {
                stage.record(request, pending, voted(vote.caller, Some(option_id), "recorded"));
                if !judge_standing(request, pending, stage) {
                    stage.publish(pending.progress(request));
                }
                Ok(())
            }
            // No event: else a client could flood the stream with one vote.
            Verdict::Repeats => {
                stage.record(request, pending, voted(vote.caller, Some(option_id), "recorded"));
                Ok(())
            }
            Verdict::Forbidden(reason) => Err(refuse(request, pending, vote.caller, Some(option_id), reason, stage)),
        }
    }

    /// A member has left: a quorum that was in reach may not be any more, and then everybody is told.
    pub(crate) fn member_left(&mut self, stage: &mut Stage<'_>) {
        for request in self.by_session.get(stage.session).map(Vec::as_slice).unwrap_or_default() {
            if let Some(pending) = self.pending.get_mut(request) {
                judge_standing(request, pending, stage);
            }
        }
    }

    /// A vote on a decided request.
    fn late_vote(&self, vote: &Vote<'_>, unknown: Refusal, stage: &mut Stage<'_>) -> Result<(), Refusal> {
        // A decided request is told to members only. For anyone else it is as unknown as one that never was: else
        // request ids from old logs could be tested, and each test would write to everyone's stream.
        let registered = vote.caller.client.as_ref().is_some_and(|client| stage.clients.contains(client));
        let Some(resolved) = self.resolved.get(vote.request).filter(|_| registered) else {
            return Err(unknown);
        };
        let request = vote.request.clone();
        if let VoteChoice::Selected { option_id, .. } = &vote.choice
            && option_id == CANCEL_SENTINEL
        {
            return Err(Refusal::InvalidOption { request, option_id: option_id.clone() });
        }
        let outcome = resolved.outcome.clone();
        stage.publish(Draft {
            kind: FrameKind::PermissionAlreadyResolved,
            prompt_id: resolved.prompt_id.clone(),
            originator: None,
            data: json!({ "requestId": request, "sessionId": stage.session, "outcome": outcome }),
        });
        Err(Refusal::AlreadyResolved { session: vote.addressed.cloned(), request, outcome })
    }

    /// Ends the request whose time is over.
    pub(crate) fn expire(&mut self, request: &RequestId, stage: &mut Stage<'_>) {
        let Some(pending) = self.pending.get(request) else { return };
        let Wait::Until { timeout_ms, .. } = pending.wait else { return };
        stage.warn(format!("permission {request} (session {}) timed out after {timeout_ms}ms", stage.session));
        let issued_at_ms = pending.issued.wall_ms;
        stage.record(request, pending, AuditEvent::Timeout { issued_at_ms });
        let reason = DecisionReason::Timeout { issued_at_ms, timeout_ms, fired_at_ms: stage.now.wall_ms };
        let ending = Ending { resolution: Resolution::Cancelled(CancelReason::Timeout), reason, voter: None };
        self.end(request, ending, stage);
    }

    /// Ends one request without a choice.
    pub(crate) fn withdraw(&mut self, request: &RequestId, by: Withdrawal<'_>, stage: &mut Stage<'_>) {
        self.end(request, Ending::withdrawn(by), stage);
    }

    /// Ends the session's requests without a choice, oldest first: all of them, or those of one turn.
    pub(crate) fn withdraw_all(&mut self, turn: Option<&PromptId>, by: Withdrawal<'_>, stage: &mut Stage<'_>) {
        for request in self.by_session.get(stage.session).cloned().unwrap_or_default() {
            let of_turn = |pending: &Pending| turn.is_none() || pending.prompt_id.as_ref() == turn;
            if self.pending.get(&request).is_some_and(of_turn) {
                self.withdraw(&request, by, stage);
            }
        }
    }

    fn end(&mut self, request: &RequestId, ending: Ending, stage: &mut Stage<'_>) {
        let Some(pending) = self.pending.remove(request) else { return };
        if let Some(deadline) = pending.wait.deadline() {
            self.deadlines.remove(&(deadline, request.clone()));
        }
        self.by_reply.remove(&pending.reply);
        if let Some(requests) = self.by_session.get_mut(&pending.session) {
            requests.retain(|id| id != request);
            if requests.is_empty() {
                self.by_session.remove(&pending.session);
            }
        }
        let (outcome, resolution) = ending.describe();
        let mut data = Map::new();
        data.insert("requestId".into(), json!(request));
        data.insert("outcome".into(), outcome.clone());
        if let Some(voter) = &ending.voter {
            data.insert("voterClientId".into(), json!(voter));
        }
        if let AuditResolution::Cancelled { reason } = &resolution {
            data.insert("reason".into(), json!(reason));
        }
        stage.publish(Draft {
            kind: FrameKind::PermissionResolved,
            prompt_id: pending.prompt_id.clone(),
            originator: ending.voter,
            data: Value::Object(data),
        });
        let session = pending.session.clone();
        self.remember(request, Resolved { session, prompt_id: pending.prompt_id.clone(), outcome });
        let event = AuditEvent::Resolved { resolution, decision_reason: ending.reason };
        stage.record(request, &pending, event);
        stage.resolve(pending.reply, ending.resolution);
    }

    fn remember(&mut self, request: &RequestId, record: Resolved) {
        if self.resolved_max == 0 {
            return;
        }
        while self.resolved_order.len() >= self.resolved_max {
            let Some(oldest) = self.resolved_order.pop_front() else { break };
            self.resolved.remove(&oldest);
        }
        self.resolved.insert(request.clone(), record);
        self.resolved_order.push_back(request.clone());
    }

    /// The turns that pending requests of a session belong to.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn turns_on(&self, session: &SessionId) -> impl Iterator<Item = &PromptId> {
        self.pending.values().filter(move |pending| pending.session == *session).filter_map(|p| p.prompt_id.as_ref())
    }

    /// Whether what was told of a chance of a quorum is so.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_standings(&self, session: &SessionId, clients: &Clients) {
        for request in self.by_session.get(session).map(Vec::as_slice).unwrap_or_default() {
            let pending = self.pending.get(request);
            let told = |pending: &Pending| pending.ballot.standing(|client| clients.contains(client)) == pending.told;
            assert!(pending.is_some_and(told), "I5: {request} stands otherwise than told");
        }
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&self) {
        let replies: BTreeMap<ReplyKey, RequestId> =
            self.pending.iter().map(|(id, pending)| (pending.reply, id.clone())).collect();
        assert_eq!(replies, self.by_reply, "I1: reply keys");
        assert!(self.pending.keys().all(|id| !self.resolved.contains_key(id)), "I2: pending and resolved");
        let deadlines: BTreeSet<_> =
            self.pending.iter().filter_map(|(id, pending)| Some((pending.wait.deadline()?, id.clone()))).collect();
        assert_eq!(deadlines, self.deadlines, "I3: deadlines");
        let mut listed = 0;
        for (session, requests) in &self.by_session {
            assert!(!requests.is_empty() && requests.len() <= self.pending_max, "I4: pending on {session}");
            assert!(self.pending_bytes_on(session) <= self.pending_bytes_max, "I4: bytes pending on {session}");
            assert!(requests.iter().all(|id| self.pending.get(id).is_some_and(|p| p.session == *session)));
            listed += requests.len();
        }
        assert_eq!(listed, self.pending.len(), "a pending request is listed under no session");
        assert!(self.resolved.len() <= self.resolved_max, "I4: resolved");
        assert_eq!(self.resolved.len(), self.resolved_order.len(), "I4: resolved order");
        for pending in self.pending.values() {
            let ballot = &pending.ballot;
            assert!(ballot.votes.keys().all(|voter| ballot.voters.contains(voter)), "I5: a stranger's vote");
            assert!(ballot.votes.values().all(|option| ballot.options.contains(option)), "I5: a vote for nothing");
            assert!(ballot.tally().iter().all(|(_, votes)| *votes < ballot.quorum), "I5: decided but pending");
        }
    }
}

fn voted(caller: &Caller, option_id: Option<String>, outcome: &'static str) -> AuditEvent {
    AuditEvent::Voted { client_id: caller.client.clone(), option_id, from_loopback: caller.loopback, outcome }
}

/// Tells everyone, and the audit, of a vote that the policy does not take.
fn refuse(
    request: &RequestId,
    pending: &Pending,
    caller: &Caller,
    option_id: Option<String>,
    reason: ForbiddenReason,
    stage: &mut Stage<'_>,
) -> Refusal {
    let client_id = caller.client.clone();
    stage.publish(pending.refusal(request, client_id.as_ref(), reason.name()));
    let event = AuditEvent::Forbidden { client_id, option_id, from_loopback: caller.loopback, reason: reason.name() };
    stage.record(request, pending, event);
    Refusal::Forbidden { session: stage.session.clone(), request: request.clone(), reason }
}

/// Whether the chance of a quorum is another than the one told last; then everyone is told, and the operator.
fn judge_standing(request: &RequestId, pending: &mut Pending, stage: &mut Stage<'_>) -> bool {
    let standing = pending.ballot.standing(|client| stage.clients.contains(client));
    if standing == pending.told {
        return false;
    }
    pending.told = standing;
    stage.publish(pending.progress(request));
    let otherwise = match pending.wait {
        Wait::Until { .. } => "the timeout",
        Wait::ForEver => "the end of its turn",
    };
    match standing {
        Standing::Open => {}
        Standing::Split => stage.info(format!(
            "permission {request}: the votes are split, no option can get {} unless a vote moves; else it waits for {otherwise}",
            pending.ballot.quorum
        )),
        Standing::Lost => stage.warn(format!(
            "permission {request}: of {} voters too few are here for {} equal votes; only cancelling or {otherwise} ends it",
            pending.ballot.voters.len(),
            pending.ballot.quorum
        )),
    }
    true
}
