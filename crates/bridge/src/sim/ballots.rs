//! The policies once more, read naively: who was there, who may vote, what a vote does.
//!
//! Knows the inputs, and of the outputs only who was registered, which turn began and what was resolved. It shares no
//! code with the mediator, and takes no short cuts: it counts everything anew each time.

use std::collections::{BTreeMap, VecDeque};

use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::Now;
use serde_json::Value;

use crate::contract::{Caller, CancelReason, ReplyKey, Resolution, VoteChoice};
use crate::options::BridgeOptions;

/// Whether a session takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Closing,
    Gone,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) session: SessionId,
    pub(super) reply: ReplyKey,
    /// In which order requests were asked.
    pub(super) order: usize,
    pub(super) prompt: Option<PromptId>,
    originator: Option<ClientId>,
    voters: Vec<ClientId>,
    options: Vec<String>,
    votes: BTreeMap<ClientId, String>,
    /// At which tick it must be over.
    pub(super) due: Option<u64>,
}

/// How far a consensus is, as every client should know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) received: usize,
    pub(super) tallies: BTreeMap<String, usize>,
    pub(super) unreachable: bool,
    pub(super) lost: bool,
}

/// What has to come of a vote.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// A refusal, by the name of its variant.
    Refused(&'static str),
    /// By the policy, with its reason.
    Forbidden(&'static str),
    /// It counts, and nothing is decided.
    Recorded,
    /// It decides.
    Resolved(ReplyKey, Resolution),
}

#[derive(Debug)]
pub(super) struct Ballots {
    options: BridgeOptions,
    members: BTreeMap<SessionId, BTreeMap<ClientId, usize>>,
    turns: BTreeMap<SessionId, PromptId>,
    originators: BTreeMap<PromptId, Option<ClientId>>,
    asked: usize,
    pub(super) pending: BTreeMap<RequestId, Asked>,
    /// Decided requests, oldest first, as many as may be remembered.
    pub(super) remembered: VecDeque<(RequestId, SessionId)>,
}

impl Ballots {
    pub(super) fn new(options: BridgeOptions) -> Self {
        Self {
            options,
            members: BTreeMap::new(),
            turns: BTreeMap::new(),
            originators: BTreeMap::new(),
            asked: 0,
            pending: BTreeMap::new(),
            remembered: VecDeque::new(),
        }
    }

    pub(super) fn joined(&mut self, session: &SessionId, client: &ClientId) {
        *self.members.entry(session.clone()).or_default().entry(client.clone()).or_default() += 1;
    }

    pub(super) fn left(&mut self, session: &SessionId, client: &ClientId) {
        let Some(members) = self.members.get_mut(session) else { return };
        if let Some(count) = members.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                members.remove(client);
            }
        }
    }

    pub(super) fn prompted(&mut self, prompt: &PromptId, by: Option<&ClientId>) {
        self.originators.entry(prompt.clone()).or_insert_with(|| by.cloned());
    }

    pub(super) fn turn_began(&mut self, session: &SessionId, prompt: &PromptId) {
        self.turns.insert(session.clone(), prompt.clone());
    }

    /// Whether this turn was running; it is not any more.
    pub(super) fn turn_ended(&mut self, session: &SessionId, prompt: &PromptId) -> bool {
        let runs = self.turns.get(session) == Some(prompt);
        if runs {
            self.turns.remove(session);
        }
        runs
    }

    pub(super) fn runs(&self, session: &SessionId) -> bool {
        self.turns.contains_key(session)
    }

    /// A session is gone; it may come back under its name, with nobody in it.
    pub(super) fn over(&mut self, session: &SessionId) {
        self.members.remove(session);
        self.turns.remove(session);
    }

    pub(super) fn is_member(&self, session: &SessionId, client: Option<&ClientId>) -> bool {
        client.is_some_and(|client| self.members.get(session).is_some_and(|members| members.contains_key(client)))
    }

    pub(super) fn members<'a>(&'a self, session: &SessionId) -> impl Iterator<Item = &'a ClientId> + use<'a> {
        self.members.get(session).into_iter().flat_map(BTreeMap::keys)
    }

    fn owner(&self, request: &RequestId) -> Option<&SessionId> {
        let remembered = self.remembered.iter().find(|(id, _)| id == request).map(|(_, session)| session);
        self.pending.get(request).map(|asked| &asked.session).or(remembered)
    }

    pub(super) fn of_session<'a>(&'a self, session: &'a SessionId) -> impl Iterator<Item = (&'a RequestId, &'a Asked)> {
        self.pending.iter().filter(move |(_, asked)| asked.session == *session)
    }

    /// An agent asks: the answer that it gets at once, or nothing, and then the request waits.
    pub(super) fn ask(
        &mut self,
        now: Now,
        life: Life,
        session: &SessionId,
        request: &RequestId,
        reply: ReplyKey,
        offers: &[Value],
    ) -> Option<Resolution> {
        if life != Life::Open {
            return Some(Resolution::Cancelled(CancelReason::SessionClosed));
        }
        if self.owner(request).is_some() || self.of_session(session).count() >= self.options.limits.pending_permissions
        {
            return Some(Resolution::Cancelled(CancelReason::AgentCancelled));
        }
        let ids: Vec<&str> = offers.iter().filter_map(|offer| offer.get("optionId")?.as_str()).collect();
        if ids.contains(&"__cancelled__") {
            return Some(Resolution::SentinelCollision);
        }
        let prompt = self.turns.get(session).cloned();
        self.asked += 1;
        let asked = Asked {
            session: session.clone(),
            reply,
            order: self.asked,
            originator: prompt.as_ref().and_then(|prompt| self.originators.get(prompt).cloned().flatten()),
            prompt,
            voters: self.members.get(session).into_iter().flat_map(|members| members.keys().cloned()).collect(),
            options: ids.into_iter().filter(|id| !id.is_empty()).map(str::to_owned).collect(),
            votes: BTreeMap::new(),
            due: self.options.permission_timeout.map(|timeout| now.tick.after(timeout).0),
        };
        self.pending.insert(request.clone(), asked);
        None
    }

    /// A client votes.
    pub(super) fn vote(
        &mut self,
        life: impl Fn(&SessionId) -> Life,
        addressed: Option<&SessionId>,
        request: &RequestId,
        caller: &Caller,
        choice: &VoteChoice,
    ) -> Outcome {
        let owner = self.owner(request).cloned();
        let session = match addressed {
            Some(session) => match life(session) {
                Life::Gone => return Outcome::Refused("SessionNotFound"),
                Life::Closing => return Outcome::Refused("SessionClosing"),
                Life::Open => session.clone(),
            },
            None => match owner.clone().filter(|owner| life(owner) == Life::Open) {
                Some(owner) => owner,
                None => return Outcome::Refused("RequestNotFound"),
            },
        };
        if owner.as_ref() != Some(&session) {
            return Outcome::Refused("RequestNotFound");
        }
        let is_member = self.is_member(&session, caller.client.as_ref());
        let smuggled = matches!(choice, VoteChoice::Selected { option_id, .. } if option_id == "__cancelled__");
        let Some(asked) = self.pending.get_mut(request) else {
            return Outcome::Refused(match (is_member, smuggled) {
                (false, _) => "RequestNotFound",
                (true, true) => "InvalidOption",
                (true, false) => "AlreadyResolved",
            });
        };
        if caller.client.is_some() && !is_member {
            return Outcome::Refused("InvalidClientId");
        }
        // Who may vote, as the table of the specification says it.
        let client = caller.client.as_ref();
        let refused = match self.options.policy {
            PermissionPolicy::FirstResponder => None,
            PermissionPolicy::Designated => match &asked.originator {
                Some(originator) if client != Some(originator) => Some("designated_mismatch"),
                _ => None,
            },
            PermissionPolicy::Consensus => match client {
                Some(client) if asked.voters.iter().any(|voter| voter == client) => None,
                _ => Some("designated_mismatch"),
            },
            PermissionPolicy::LocalOnly => (!caller.loopback).then_some("remote_not_allowed"),
        };
        let VoteChoice::Selected { option_id, extras } = choice else {
            return match refused.filter(|_| self.options.cancel == CancelRule::Eligible) {
                Some(reason) => Outcome::Forbidden(reason),
                None => Outcome::Resolved(asked.reply, Resolution::Cancelled(CancelReason::AgentCancelled)),
            };
        };
        if !asked.options.contains(option_id) {
            return Outcome::Refused("InvalidOption");
        }
        if let Some(reason) = refused {
            return Outcome::Forbidden(reason);
        }
        if let (PermissionPolicy::Consensus, Some(client)) = (self.options.policy, client) {
            asked.votes.insert(client.clone(), option_id.clone());
            let equal = asked.votes.values().filter(|vote| *vote == option_id).count();
            if equal < quorum(asked.voters.len(), self.options.quorum) {
                return Outcome::Recorded;
            }
        }
        let extras = extras.clone();
        Outcome::Resolved(asked.reply, Resolution::Selected { option_id: option_id.clone(), extras })
    }

    /// A request is over: it is remembered, and the oldest one is forgotten.
    pub(super) fn resolved(&mut self, request: &RequestId) {
        if let Some(asked) = self.pending.remove(request) {
            self.remembered.push_back((request.clone(), asked.session));
            while self.remembered.len() > self.options.limits.resolved_permissions {
                self.remembered.pop_front();
            }
        }
    }

    /// What every client should know of a request beside that it waits; nothing before there is anything to know.
    pub(super) fn progress(&self, asked: &Asked) -> Option<Progress> {
        if self.options.policy != PermissionPolicy::Consensus {
            return None;
        }
        let needed = quorum(asked.voters.len(), self.options.quorum);
        let vote = |voter: &ClientId| asked.votes.get(voter);
        let here = |voter: &ClientId| self.is_member(&asked.session, Some(voter));
        let reaches = |may: &dyn Fn(&ClientId, &String) -> bool| {
            asked.options.iter().any(|option| asked.voters.iter().filter(|voter| may(voter, option)).count() >= needed)
        };
        let mut tallies = BTreeMap::new();
        asked.votes.values().for_each(|option| *tallies.entry(option.clone()).or_default() += 1);
        let progress = Progress {
            received: asked.votes.len(),
            tallies,
            unreachable: !reaches(&|voter, option| match vote(voter) {
                Some(vote) => vote == option,
                None => here(voter),
            }),
            lost: !reaches(&|voter, option| here(voter) || vote(voter) == Some(option)),
        };
        (progress != Progress::default()).then_some(progress)
    }
}

fn quorum(voters: usize, wanted: Option<usize>) -> usize {
    let most = voters.max(1);
    wanted.map_or(voters / 2 + 1, |wanted| wanted.max(1)).min(most)
}
