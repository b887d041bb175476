//! Does the bridge keep its promises whatever its clients, its agents and the clock do?
//!
//! A seed makes a walk: clients that create, attach, subscribe from any cursor, vote, race, repeat, lie (wrong, foreign
//! and unregistered ids), stall, leave and come back; agents that ask, withdraw, finish and die; a clock that jumps; and a
//! shutdown at the end. After every step a judge, who sees nothing but what goes in and what comes out, checks:
//!
//! - every call and every request of an agent is answered exactly once;
//! - every vote is answered, counted or refused as a second and naive reading of the policies says, and nothing is
//!   resolved that this reading does not resolve;
//! - nothing is pending without a timer or a stated reason, and no timer is missed;
//! - what is remembered of decided requests, audited and queued obeys its bounds;
//! - event ids have no gaps, everybody receives the same frames, and nobody misses one without being told;
//! - whoever follows a session, from whatever cursor and after however many absences, knows the requests that are
//!   pending, and how far their voters are;
//! - every turn, queued prompt and request that was announced is ended exactly once;
//! - the invariants of every part of the bridge hold.
//!
//! The same seed makes the same walk. A failing walk is a list of inputs that fails without the chance that made it, so
//! it can be shortened: [`Failure::shortened`].
//!
//! ```
//! let report = convoke_bridge::sim::run(7, 200).unwrap_or_else(|failure| panic!("{}", failure.shortened()));
//! assert!(report.inputs > 50, "a step that finds nothing to do makes no input");
//! ```

/// Returns from the enclosing function with a broken promise unless a condition holds.
macro_rules! must {
    ($rule:literal, $holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err($crate::sim::Broken { rule: $rule, what: format!($($what)+) });
        }
    };
}

mod ballots;
mod chance;
mod history;
mod judge;
mod readers;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::fmt;

use convoke_stdx::Now;

use crate::contract::Input;
use crate::options::BridgeOptions;
use judge::Judge;
use walk::Walk;

/// What a walk came by.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many inputs the bridge took.
    pub inputs: usize,
    /// What happened how often, by name: a walk that reaches nothing proves nothing.
    pub reached: BTreeMap<String, usize>,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Which promise, in a word.
    rule: &'static str,
    /// How.
    what: String,
}

type Kept<T = ()> = Result<T, Broken>;

/// One input and its moment.
type Moment = (Now, Input);

/// A walk on which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which walk.
    pub seed: u64,
    /// At which step; the steps of the generator, not the inputs.
    pub step: usize,
    /// Out of how many.
    pub steps: usize,
    broken: Broken,
    options: BridgeOptions,
    trace: Vec<Moment>,
}

/// Walks `steps` steps from a seed.
///
/// A panic of the bridge counts as a broken promise; whoever does not want to see its message sets a panic hook.
pub fn run(seed: u64, steps: usize) -> Result<Report, Box<Failure>> {
    let mut walk = Walk::new(seed);
    let mut broken = None;
    for step in 1..=steps {
        if let Err(found) = walk.random_step() {
            broken = Some((step, found));
            break;
        }
    }
    let end = match broken {
        Some(broken) => Err(broken),
        None => walk.finish().map_err(|found| (steps, found)),
    };
    match end {
        Ok(()) => Ok(Report { inputs: walk.trace.len(), reached: walk.judge.into_reached() }),
        Err((step, broken)) => {
            Err(Box::new(Failure { seed, step, steps, broken, options: walk.options, trace: walk.trace }))
        }
    }
}

/// What a list of inputs breaks, if anything.
fn replay(options: &BridgeOptions, trace: &[Moment]) -> Option<Broken> {
    let mut judge = Judge::new(options.clone());
    for (now, input) in trace {
        if let Err(broken) = judge.apply(*now, input.clone()) {
            return Some(broken);
        }
    }
    judge.finish().err()
}

impl Failure {
    /// Most replays that a shortening may cost.
    const REPLAYS: usize = 4000;

    /// The same failure with as few inputs as can be found: leaves out ever smaller pieces as long as the same promise
    /// breaks.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        let mut piece = self.trace.len() / 2;
        let mut replays = 0;
        while piece > 0 && replays < Self::REPLAYS {
            let (mut from, mut left_out) = (0, false);
            while from < self.trace.len() && replays < Self::REPLAYS {
                let mut shorter = self.trace.clone();
                shorter.drain(from..(from + piece).min(self.trace.len()));
                replays += 1;
                match replay(&self.options, &shorter) {
                    Some(broken) if broken.rule == self.broken.rule => {
                        (self.trace, self.broken, left_out) = (shorter, broken, true);
                    }
                    Some(_) | None => from += piece,
                }
            }
            if piece > 1 || !left_out {
                piece /= 2;
            }
        }
        self
    }

    /// How many inputs it takes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.trace.len()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, step {} of {}: {}: {}",
            self.seed, self.step, self.steps, self.broken.rule, self.broken.what
        )?;
        writeln!(f, "with {:?}", self.options)?;
        for (now, input) in &self.trace {
            writeln!(f, "{:>8} ms  {input:?}", now.tick.0)?;
        }
        write!(f, "again: cargo xtask sim --seed {} --steps {}", self.seed, self.steps)
    }
}
