//! The four ways to decide: what one vote does to one request.
//!
//! Knows no session, bus or time. Cancelling is not a vote and never comes here: it works under every policy.
//! Source: daemon specification, §f.5; the moving vote of consensus is ours, see [`Ballot::cast`].

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_protocol::ClientId;
use convoke_protocol::daemon::capability::PermissionPolicy;

use crate::audit::DecisionReason;
use crate::contract::Caller;
use crate::refusal::ForbiddenReason;

/// Everything about one request that its decision depends on, captured when it was issued.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub(super) policy: PermissionPolicy,
    pub(super) originator: Option<ClientId>,
    /// The clients registered at issue. Every policy remembers them, consensus alone asks.
    pub(super) voters: Arc<[ClientId]>,
    pub(super) quorum: usize,
    /// What may be voted for, in the order offered.
    pub(super) options: Vec<String>,
    /// One vote per client at most.
    pub(super) votes: BTreeMap<ClientId, String>,
}

/// What became of a vote.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It decides.
    Decides(DecisionReason),
    /// It counts, or counts elsewhere than before, and more are needed.
    Counts,
    /// The same client has voted for the same option before.
    Repeats,
    /// The policy does not take it.
    Forbidden(ForbiddenReason),
}

/// Votes needed among `voters`: the override, capped so that it can be reached, else ⌊M/2⌋ + 1.
pub(super) fn quorum(voters: usize, wanted: Option<usize>) -> usize {
    match wanted {
        Some(wanted) => wanted.clamp(1, voters.max(1)),
        None => voters / 2 + 1,
    }
}

impl Ballot {
    /// Takes a vote for an offered option.
    ///
    /// Under consensus a client that votes again moves its vote; the same option again changes nothing.
    pub(super) fn cast(&mut self, caller: &Caller, option: &str) -> Verdict {
        match self.policy {
            PermissionPolicy::FirstResponder => self.first_responder(caller),
            PermissionPolicy::Designated => match (&self.originator, &caller.client) {
                // An anonymous prompt designates no one: without this it could never be decided.
                (None, _) => self.first_responder(caller),
                (Some(originator), Some(voter)) if originator == voter => {
                    Verdict::Decides(DecisionReason::DesignatedOriginator { originator_client_id: originator.clone() })
                }
                (Some(_), _) => Verdict::Forbidden(ForbiddenReason::DesignatedMismatch),
            },
            PermissionPolicy::Consensus => self.consensus(caller, option),
            PermissionPolicy::LocalOnly if caller.loopback => {
                Verdict::Decides(DecisionReason::LocalOnlyLoopback { resolver_client_id: caller.client.clone() })
            }
            PermissionPolicy::LocalOnly => Verdict::Forbidden(ForbiddenReason::RemoteNotAllowed),
        }
    }

    fn first_responder(&self, caller: &Caller) -> Verdict {
        Verdict::Decides(DecisionReason::FirstResponder { resolver_client_id: caller.client.clone() })
    }

    fn consensus(&mut self, caller: &Caller, option: &str) -> Verdict {
        let Some(voter) = caller.client.as_ref().filter(|voter| self.voters.contains(voter)) else {
            return Verdict::Forbidden(ForbiddenReason::DesignatedMismatch);
        };
        if self.votes.get(voter).is_some_and(|before| before == option) {
            return Verdict::Repeats;
        }
        self.votes.insert(voter.clone(), option.to_owned());
        let tally = self.tally();
        match tally.iter().find(|(_, votes)| *votes >= self.quorum) {
            Some((winner, _)) => Verdict::Decides(DecisionReason::ConsensusQuorum {
                resolved_option_id: (*winner).to_owned(),
                quorum: self.quorum,
                tally: tally.iter().map(|(option, votes)| ((*option).to_owned(), *votes)).collect(),
            }),
            None => Verdict::Counts,
        }
    }

    /// Votes per option that has any, in the order offered.
    pub(super) fn tally(&self) -> Vec<(&str, usize)> {
        let count = |option: &str| self.votes.values().filter(|vote| *vote == option).count();
        self.options.iter().map(|option| (option.as_str(), count(option))).filter(|(_, votes)| *votes > 0).collect()
    }

    /// How many more votes the leading option needs; at least one while the request is pending.
    pub(super) fn votes_needed(&self) -> usize {
        let best = self.tally().iter().map(|(_, votes)| *votes).max().unwrap_or(0);
        self.quorum.saturating_sub(best).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(policy: PermissionPolicy, originator: Option<&str>, voters: &[&str], wanted: Option<usize>) -> Ballot {
        Ballot {
            policy,
            originator: originator.map(Into::into),
            voters: voters.iter().map(|voter| ClientId::from(*voter)).collect(),
            quorum: quorum(voters.len(), wanted),
            options: vec!["yes".into(), "no".into()],
            votes: BTreeMap::new(),
        }
    }

    fn caller(client: Option<&str>, loopback: bool) -> Caller {
        Caller { client: client.map(Into::into), loopback }
    }

    fn short(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Decides(_) => "decides",
            Verdict::Counts => "counts",
            Verdict::Repeats => "repeats",
            Verdict::Forbidden(reason) => reason.name(),
        }
    }

    #[test]
    fn quorum_is_a_majority_unless_overridden_and_always_reachable() {
        for (voters, expected) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)] {
            assert_eq!(quorum(voters, None), expected, "M = {voters}");
        }
        for (voters, wanted, expected) in [(2, 5, 2), (2, 1, 1), (4, 4, 4), (0, 3, 1), (3, 0, 1)] {
            assert_eq!(quorum(voters, Some(wanted)), expected, "M = {voters}, override {wanted}");
        }
    }

    /// Every policy × every kind of voter, for prompts with and without an originator.
    #[test]
    fn who_decides_under_which_policy() {
        use PermissionPolicy::{Consensus, Designated, FirstResponder, LocalOnly};
        // Voters: the originator, another member, one who came later, anonymous.
        let voters = [Some("orig"), Some("other"), Some("late"), None];
        let mismatch = "designated_mismatch";
        let remote = "remote_not_allowed";
        let table = [
            (FirstResponder, Some("orig"), true, ["decides"; 4]),
            (FirstResponder, None, false, ["decides"; 4]),
            (Designated, Some("orig"), true, ["decides", mismatch, mismatch, mismatch]),
            (Designated, None, false, ["decides"; 4]),
            (Consensus, Some("orig"), true, ["counts", "counts", mismatch, mismatch]),
            (Consensus, None, false, ["counts", "counts", mismatch, mismatch]),
            (LocalOnly, Some("orig"), true, ["decides"; 4]),
            (LocalOnly, Some("orig"), false, [remote; 4]),
        ];
        for (policy, originator, loopback, expected) in table {
            for (voter, expected) in voters.into_iter().zip(expected) {
                let mut ballot = ballot(policy, originator, &["orig", "other"], None);
                let verdict = ballot.cast(&caller(voter, loopback), "yes");
                assert_eq!(short(&verdict), expected, "{policy:?} {originator:?} {voter:?} loopback {loopback}");
            }
        }
    }

    #[test]
    fn a_second_vote_moves_and_a_repeat_changes_nothing() {
        let mut ballot = ballot(PermissionPolicy::Consensus, None, &["a", "b", "c"], None);
        let mut cast = |who, option| short(&ballot.cast(&caller(Some(who), false), option));
        assert_eq!(cast("a", "yes"), "counts");
        assert_eq!(cast("a", "yes"), "repeats");
        assert_eq!(cast("b", "no"), "counts");
        assert_eq!(cast("a", "no"), "decides");
        assert_eq!(ballot.tally(), [("no", 2)]);
    }

    #[test]
    fn an_empty_electorate_decides_nothing() {
        let mut ballot = ballot(PermissionPolicy::Consensus, Some("orig"), &[], None);
        assert_eq!(short(&ballot.cast(&caller(Some("orig"), true), "yes")), "designated_mismatch");
        assert_eq!(ballot.votes_needed(), 1);
    }
}
