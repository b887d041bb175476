//! Sans-IO: when does a server connect, wait, list again, and when is it given up?
//!
//! A connection has a generation; whatever is said about another generation is old news. A server that goes is
//! started again after 1, 4 and 16 seconds; one that held for a while gets its tries back. Announcements of changed
//! lists are gathered, so that a server that announces without end is asked twice a second at most.
//! Source: runtime specification §14 \[DEV\], \(c\) 40.

use std::time::Duration;

use convoke_stdx::{Now, Tick};

/// How long to wait before each new try.
pub(crate) const BACKOFF: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(16)];
/// A connection that held this long was no failure.
const STABLE: Duration = Duration::from_mins(1);
/// Announcements that come this close together are one.
const GATHER: Duration = Duration::from_millis(100);
/// Between two listings, and before looking again when a list had not changed after all.
const AGAIN: Duration = Duration::from_millis(500);

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// It is wanted; once more, if it was given up.
    Start,
    /// It answered, and its lists are here.
    Connected { generation: u64 },
    /// It could not be reached; `again` if another try may help.
    Refused { generation: u64, again: bool },
    /// The connection is gone.
    Lost { generation: u64 },
    /// It says that a list changed.
    Changed { generation: u64 },
    /// A listing is done; `changed` if it brought something else.
    Listed { generation: u64, changed: bool },
    /// Time passed.
    Tick,
    /// It is not wanted any more.
    Close,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Connect. Answered with `Connected` or `Refused`.
    Connect { generation: u64 },
    /// Ask for the lists. Answered with `Listed`.
    List { generation: u64 },
    /// End the connection, or the attempt at one.
    Disconnect { generation: u64 },
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody asked for it yet.
    Idle,
    /// On its way.
    Connecting,
    /// There.
    Ready(Listing),
    /// Waiting before another try.
    Waiting { until: Tick },
    /// Given up.
    Failed,
    /// Ended.
    Closed,
}

/// What of a connected server's lists is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Asked for, and not answered yet.
    running: bool,
    /// When to ask next.
    due: Option<Tick>,
    /// A change was announced since the last question.
    announced: bool,
    /// The lists may be late: if nothing changed, look once more.
    verify: bool,
}

/// One server's life.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: State,
    generation: u64,
    tries: usize,
    connected_at: Tick,
    /// When lists were last asked for.
    asked_at: Option<Tick>,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self { state: State::Idle, generation: 0, tries: 0, connected_at: Tick::default(), asked_at: None }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// How many times it was started again since it last held.
    pub(crate) fn tries(&self) -> usize {
        self.tries
    }

    /// When time matters next.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Ready(Listing { running: false, due, .. }) => due,
            _ => None,
        }
    }

    pub(crate) fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match (self.state, input) {
            (State::Closed, _) => {}
            (State::Connecting | State::Ready(_), Input::Close) => {
                out.push(Output::Disconnect { generation: self.generation });
                self.state = State::Closed;
            }
            (_, Input::Close) => self.state = State::Closed,
            (State::Idle, Input::Start) => self.connect(out),
            // What stood in the way is gone.
            (State::Failed, Input::Start) => {
                self.tries = 0;
                self.connect(out);
            }
            (State::Waiting { until }, Input::Tick) if now.tick >= until => self.connect(out),
            (State::Connecting, Input::Connected { generation }) if generation == self.generation => {
                self.connected_at = now.tick;
                self.state = State::Ready(Listing::default());
            }
            (State::Connecting, Input::Refused { generation, again }) if generation == self.generation => {
                self.failed(now, again);
            }
            (State::Ready(_), Input::Lost { generation }) if generation == self.generation => {
                if now.tick.since(self.connected_at) >= STABLE {
                    self.tries = 0;
                }
                self.failed(now, true);
            }
            (State::Ready(listing), Input::Changed { generation }) if generation == self.generation => {
                let free = self.asked_at.map_or(Tick::default(), |asked| asked.after(AGAIN));
                let due = listing.due.unwrap_or(now.tick.after(GATHER).max(free));
                self.state = State::Ready(Listing { announced: true, verify: true, due: Some(due), ..listing });
            }
            (State::Ready(listing), Input::Listed { generation, changed })
                if generation == self.generation && listing.running =>
            {
                let again = listing.announced || (listing.verify && !changed);
                self.state = State::Ready(Listing {
                    running: false,
                    due: again.then(|| now.tick.after(AGAIN)),
                    announced: listing.announced,
                    verify: listing.announced,
                });
            }
            (State::Ready(Listing { running: false, due: Some(due), verify, .. }), Input::Tick) if now.tick >= due => {
                let listing = Listing { running: true, due: None, announced: false, verify };
                self.state = State::Ready(listing);
                self.asked_at = Some(now.tick);
                out.push(Output::List { generation: self.generation });
            }
            _ => {}
        }
    }

    fn connect(&mut self, out: &mut Vec<Output>) {
        self.generation += 1;
        self.state = State::Connecting;
        out.push(Output::Connect { generation: self.generation });
    }

    fn failed(&mut self, now: Now, again: bool) {
        match BACKOFF.get(self.tries) {
            Some(wait) if again => {
                self.tries += 1;
                self.state = State::Waiting { until: now.tick.after(*wait) };
            }
            _ => self.state = State::Failed,
        }
    }

    /// What holds after every step.
    #[cfg(test)]
    fn check_invariants(&self) {
        assert!(self.tries <= BACKOFF.len());
        if let State::Ready(listing) = self.state {
            assert!(!listing.announced || listing.running || listing.due.is_some(), "an announcement is forgotten");
        }
        assert!(matches!(self.state, State::Idle | State::Closed) || self.generation > 0);
    }
}

#[cfg(test)]
mod tests;
