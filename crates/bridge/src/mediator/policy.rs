//! The four ways to decide: what one vote does to one request.
//!
//! Knows no session, bus or time. Cancelling is not a vote for an option: it ends the request under every policy, and
//! only whose it may be is asked here, see [`Ballot::may_cancel`]. Source: daemon specification, §f.5; the moving vote
//! of consensus is ours, see [`Ballot::cast`], and so is [`Standing`].

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_protocol::ClientId;
use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};

use crate::audit::DecisionReason;
use crate::contract::Caller;
use crate::refusal::ForbiddenReason;

/// Everything about one request that its decision depends on, captured when it was issued.
#[derive(Debug)]
pub(crate) struct Ballot {
    pub(super) policy: PermissionPolicy,
    pub(super) cancel: CancelRule,
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

/// Whether a consensus can still come about, judged from the votes and from who is still registered.
///
/// A member that has left can't come back under its id: its vote stays as it is, and if it gave none it never will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Some option gets the quorum if the members that are here and have not voted yet all vote for it. Always so under
    /// the other policies.
    #[default]
    Open,
    /// No option does, but some would if members that are here moved their votes to it.
    Split,
    /// Not even if all who are here agreed: only cancelling or the timeout ends the request.
    Lost,
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
        if let Err(reason) = self.admits(caller) {
            return Verdict::Forbidden(reason);
        }
        let resolver_client_id = caller.client.clone();
        match (self.policy, &self.originator) {
            (PermissionPolicy::Consensus, _) => match &caller.client {
                Some(voter) => self.count(voter, option),
                None => Verdict::Forbidden(ForbiddenReason::DesignatedMismatch),
            },
            (PermissionPolicy::Designated, Some(originator)) => {
                Verdict::Decides(DecisionReason::DesignatedOriginator { originator_client_id: originator.clone() })
            }
            (PermissionPolicy::LocalOnly, _) => {
                Verdict::Decides(DecisionReason::LocalOnlyLoopback { resolver_client_id })
            }
            (PermissionPolicy::Designated, None) | (PermissionPolicy::FirstResponder, _) => {
                Verdict::Decides(DecisionReason::FirstResponder { resolver_client_id })
            }
        }
    }

    /// Whether the policy takes this caller's vote at all.
    fn admits(&self, caller: &Caller) -> Result<(), ForbiddenReason> {
        let client = caller.client.as_ref();
        match self.policy {
            PermissionPolicy::FirstResponder => Ok(()),
            // An anonymous prompt designates no one: without this it could never be decided.
            PermissionPolicy::Designated if self.originator.is_none() || self.originator.as_ref() == client => Ok(()),
            PermissionPolicy::Consensus if client.is_some_and(|client| self.voters.contains(client)) => Ok(()),
            PermissionPolicy::LocalOnly if caller.loopback => Ok(()),
            PermissionPolicy::Designated | PermissionPolicy::Consensus => Err(ForbiddenReason::DesignatedMismatch),
            PermissionPolicy::LocalOnly => Err(ForbiddenReason::RemoteNotAllowed),
        }
    }

    /// Whether this caller may end the request without a choice. One suffices, also under consensus: stopping needs no
    /// agreement.
    pub(super) fn may_cancel(&self, caller: &Caller) -> Result<(), ForbiddenReason> {
        match self.cancel {
            CancelRule::Any => Ok(()),
            CancelRule::Eligible => self.admits(caller),
        }
    }

    fn count(&mut self, voter: &ClientId, option: &str) -> Verdict {
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

    /// Whether a quorum is in reach while those are here for whom `is_here` says so.
    pub(super) fn standing(&self, is_here: impl Fn(&ClientId) -> bool) -> Standing {
        if self.policy != PermissionPolicy::Consensus {
            return Standing::Open;
        }
        let here = self.voters.iter().filter(|voter| is_here(voter)).count();
        let silent = self.voters.iter().filter(|voter| is_here(voter) && !self.votes.contains_key(*voter)).count();
        // Votes for an option that stand, those that can't be moved among them.
        let votes = |option: &String, fixed: bool| {
            self.votes.iter().filter(|(voter, vote)| *vote == option && !(fixed && is_here(voter))).count()
        };
        if self.options.iter().any(|option| votes(option, false) + silent >= self.quorum) {
            Standing::Open
        } else if self.options.iter().any(|option| votes(option, true) + here >= self.quorum) {
            Standing::Split
        } else {
            Standing::Lost
        }
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
            cancel: CancelRule::Any,
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

    /// Who may cancel under `eligible` is who may vote; under `any` it is anybody.
    #[test]
    fn who_cancels_is_who_votes_where_the_setting_says_so() {
        for policy in PermissionPolicy::ALL {
            for (voter, loopback) in [(Some("orig"), false), (Some("other"), true), (Some("late"), false), (None, true)]
            {
                let mut ballot = ballot(policy, Some("orig"), &["orig", "other"], None);
                let caller = caller(voter, loopback);
                assert_eq!(ballot.may_cancel(&caller), Ok(()), "{policy:?} {voter:?}");
                ballot.cancel = CancelRule::Eligible;
                let cancels = ballot.may_cancel(&caller);
                match ballot.cast(&caller, "yes") {
                    Verdict::Forbidden(reason) => assert_eq!(cancels, Err(reason), "{policy:?} {voter:?}"),
                    _ => assert_eq!(cancels, Ok(()), "{policy:?} {voter:?}"),
                }
            }
        }
    }

    #[test]
    fn a_quorum_is_out_of_reach_as_soon_as_it_is() {
        use Standing::{Lost, Open, Split};
        // Votes as `voter:option`, those who are here, members, override → standing.
        let table = [
            ("", "ab", "ab", None, Open),
            ("a:yes", "ab", "ab", None, Open),
            ("a:yes b:no", "ab", "ab", None, Split),
            ("a:yes b:no", "a", "ab", None, Split),
            ("a:yes", "a", "ab", None, Lost),
            ("", "a", "ab", None, Lost),
            ("a:yes b:no", "b", "ab", None, Split),
            ("a:yes b:no", "", "ab", None, Lost),
            ("a:yes b:no", "abc", "abc", None, Open),
            ("a:yes b:no", "abc", "abc", Some(3), Split),
            ("a:yes b:no c:no", "abcd", "abcd", None, Open),
            ("a:yes b:yes c:no", "d", "abcd", None, Open),
            ("a:yes b:no", "abcde", "abcde", Some(5), Split),
            ("a:yes", "bcde", "abcde", Some(5), Open),
            ("a:yes b:no", "bcde", "abcde", Some(5), Split),
            ("a:yes b:no", "cde", "abcde", Some(5), Lost),
            ("", "", "", None, Lost),
        ];
        for (votes, here, members, wanted, expected) in table {
            let ids: Vec<String> = members.chars().map(String::from).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let mut ballot = ballot(PermissionPolicy::Consensus, None, &ids, wanted);
            for vote in votes.split_whitespace() {
                let (voter, option) = vote.split_once(':').unwrap();
                ballot.votes.insert(voter.into(), option.into());
            }
            let standing = ballot.standing(|client| here.contains(client.as_str()));
            assert_eq!(standing, expected, "{votes:?}, here {here:?} of {members:?}, quorum {wanted:?}");
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
