//! Sans-IO: in which order does a client leave?
//!
//! Its own running turns are cancelled; then the requests are cancelled that nobody would answer without it, those
//! included whose vote and cancel both failed before; then it detaches and unsubscribes. Source: daemon specification,
//! §f.7 and §g; `abandonPendingForSession` of the mediation document.

use std::collections::BTreeMap;

use convoke_protocol::{PromptId, SessionId};
use convoke_stdx::Now;

use super::asks::Ballot;
use super::methods::{Awaited, vote_end};
use super::{Answered, Binding, LEAVE, Lane, Order, Output, Phase, Seat};
use crate::acp_http::seat::asks::VoteEnd;
use crate::http_error::HttpError;

/// The close codes of RFC 6455 that are used here.
const PROTOCOL_ERROR: u16 = 1002;
const GOING_AWAY: u16 = 1001;
const NORMAL: u16 = 1000;

/// What is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The ends of its turns.
    Turns,
    /// The ends of its questions.
    Questions,
    /// Everything that was asked before.
    Rest,
}

impl Seat {
    /// A WebSocket that does not begin with `initialize`.
    pub(super) fn refuse_socket(&mut self, now: Now, out: &mut Vec<Output>) {
        out.push(Output::CloseSocket { code: PROTOCOL_ERROR, reason: "expected initialize" });
        self.connection.open = false;
        self.leave(now, out);
    }

    pub(super) fn leave(&mut self, now: Now, out: &mut Vec<Output>) {
        let code = match self.phase {
            Phase::Leaving { .. } | Phase::Gone => return,
            Phase::Stopping { .. } => GOING_AWAY,
            Phase::Waiting { .. } | Phase::Seated => NORMAL,
        };
        self.phase = Phase::Leaving { until: now.tick.after(LEAVE), stage: Stage::Turns };
        match self.binding {
            Binding::Socket if self.connection.open => {
                out.push(Output::CloseSocket { code, reason: "goodbye" });
            }
            Binding::Socket => {}
            Binding::Streams => {
                let sessions = self.sessions.iter().filter(|(_, owned)| owned.track.open);
                out.extend(sessions.map(|(id, _)| Output::Finish { lane: Lane::Session(id.clone()) }));
                if self.connection.open {
                    out.push(Output::Finish { lane: Lane::Connection });
                }
            }
        }
        self.connection.open = false;
        self.connection.take_waiting();
        let mut own: BTreeMap<SessionId, Vec<PromptId>> = BTreeMap::new();
        for (prompt, turn) in std::mem::take(&mut self.turns) {
            own.entry(turn.session).or_default().push(prompt);
        }
        for (session, prompts) in own {
            self.cancel_own(session, prompts, Awaited::Leaving, out);
        }
        for owned in self.sessions.values_mut() {
            owned.track.open = false;
            owned.track.take_waiting();
            owned.loading = None;
            owned.held.clear();
            owned.mode = super::FeedMode::Watching;
        }
    }

    fn cancel_own(&mut self, session: SessionId, prompts: Vec<PromptId>, awaited: Awaited, out: &mut Vec<Output>) {
        if let Some(client) = self.sessions.get(&session).map(|owned| owned.client.clone()) {
            self.call(Order::CancelOwn { session, client, prompts }, false, awaited, out);
        }
    }

    /// A session's stream does not come back: nobody is there for the turns that came through it.
    pub(super) fn abandon(&mut self, session: &SessionId, out: &mut Vec<Output>) {
        let own = self.turns.iter().filter(|(_, turn)| turn.session == *session).map(|(prompt, _)| prompt.clone());
        let own: Vec<_> = own.collect();
        self.cancel_own(session.clone(), own, Awaited::Abandoned(session.clone()), out);
    }

    /// Cancels requests in the client's name.
    pub(super) fn withdraw(&mut self, ballots: Vec<Ballot>, awaited: &Awaited, out: &mut Vec<Output>) {
        for Ballot { session, request, choice, .. } in ballots {
            let Some(client) = self.sessions.get(&session).map(|owned| owned.client.clone()) else { continue };
            let awaited = match awaited {
                Awaited::Leaving => Awaited::Leaving,
                _ => Awaited::Told,
            };
            self.call(Order::Vote { session, client, request, choice }, false, awaited, out);
        }
    }

    /// What was asked before leaving is answered to nobody.
    pub(super) fn done_while_leaving(
        &mut self,
        awaited: &Awaited,
        result: Result<Answered, HttpError>,
        out: &mut Vec<Output>,
    ) {
        match (awaited, result) {
            // It was let in when it had left already.
            (_, Ok(Answered::Session(joined))) => {
                let order = Order::Detach { session: joined.session, client: joined.client };
                self.call(order, false, Awaited::Leaving, out);
            }
            (Awaited::Leaving, Err(error)) if vote_end(Some(&error)) == VoteEnd::Failed => {
                let status = error.status().as_u16();
                let text = format!("ACP connection {} left something open: status {status}", self.id);
                out.push(Output::Warn { text });
            }
            (_, Ok(_) | Err(_)) => {}
        }
    }

    /// The next stage, once everything of this one was answered.
    pub(super) fn go_on_leaving(&mut self, out: &mut Vec<Output>) {
        while let Phase::Leaving { until, stage } = self.phase {
            let own = self.calls.values().any(|awaited| matches!(awaited, Awaited::Leaving));
            let next = match stage {
                Stage::Turns | Stage::Questions if own => return,
                Stage::Turns => {
                    let ballots = self.asks.abandon(None);
                    self.withdraw(ballots, &Awaited::Leaving, out);
                    Stage::Questions
                }
                Stage::Questions => Stage::Rest,
                Stage::Rest if self.calls.is_empty() => {
                    self.give_up_leaving(out);
                    return;
                }
                Stage::Rest => return,
            };
            self.phase = Phase::Leaving { until, stage: next };
        }
    }

    /// Detaches and is gone, whatever is still open.
    pub(super) fn give_up_leaving(&mut self, out: &mut Vec<Output>) {
        for (session, owned) in std::mem::take(&mut self.sessions) {
            self.last_key += 1;
            let order = Order::Detach { session, client: owned.client };
            out.push(Output::Call { call: super::CallKey(self.last_key), order, loopback: false });
            out.push(Output::Unfeed { feed: owned.feed });
        }
        self.calls.clear();
        self.asks.clear();
        self.phase = Phase::Gone;
        out.push(Output::Gone);
    }
}
