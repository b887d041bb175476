//! Runs the seeded simulators: does any of many walks break a promise?
//!
//! One walk is one seed; the walks of a run are shared out among the processors. The first failure, by its seed, is
//! shortened and shown with everything that it takes to see it again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, bail};
use convoke_bridge::sim::{self, Failure};

pub(crate) const USAGE: &str = "sim [--seed N | --seeds COUNT] [--steps M]";

/// Walks of a run that names no number, as in CI.
const SEEDS: u64 = 1000;

/// Steps of a walk that names no number: enough for a session to be made, filled, left and closed a few times over.
const STEPS: usize = 250;

/// Which walks.
#[derive(Debug, PartialEq, Eq)]
struct Walks {
    first: u64,
    count: u64,
    steps: usize,
}

/// Walks as `args` say.
pub(crate) fn run(args: &[&str]) -> anyhow::Result<()> {
    let walks = parse(args)?;
    // Panics of the bridge are findings; thousands of them come by while one is shortened.
    let talkative = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let end = walk(&walks);
    std::panic::set_hook(talkative);
    match end {
        Ok(inputs) => {
            println!("sim: {} walks of {} steps, {inputs} inputs, every promise kept", walks.count, walks.steps);
            Ok(())
        }
        Err(failure) => bail!("{failure}"),
    }
}

fn parse(args: &[&str]) -> anyhow::Result<Walks> {
    let mut walks = Walks { first: 1, count: SEEDS, steps: STEPS };
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut number = || -> anyhow::Result<u64> {
            let text = args.next().with_context(|| format!("{flag} needs a number"))?;
            text.parse().with_context(|| format!("read {flag} {text:?}"))
        };
        match *flag {
            "--seed" => (walks.first, walks.count) = (number()?, 1),
            "--seeds" => walks.count = number()?,
            "--steps" => walks.steps = usize::try_from(number()?)?,
            _ => bail!("unknown flag {flag:?}\nusage: cargo xtask {USAGE}"),
        }
    }
    Ok(walks)
}

/// All walks; how many inputs they had, or the failure with the lowest seed, shortened.
fn walk(walks: &Walks) -> Result<usize, Box<Failure>> {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let (mut inputs, mut failed) = (0, None);
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= walks.count {
                return (inputs, failed);
            }
            match sim::run(walks.first.wrapping_add(n), walks.steps) {
                Ok(report) => inputs += report.inputs,
                Err(failure) => {
                    // Nobody begins another one; those who are at a lower seed finish theirs.
                    next.store(walks.count, Ordering::Relaxed);
                    failed = Some(failure);
                }
            }
        }
    };
    let ends: Vec<(usize, Option<Box<Failure>>)> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().filter_map(|other| other.join().ok()).chain([own]).collect()
    });
    let inputs = ends.iter().map(|(inputs, _)| inputs).sum();
    match ends.into_iter().filter_map(|(_, failed)| failed).min_by_key(|failure| failure.seed) {
        Some(failure) => Err(Box::new(failure.shortened())),
        None => Ok(inputs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_are_chosen_by_flags() {
        let walks = |first, count, steps| Walks { first, count, steps };
        assert_eq!(parse(&[]).unwrap(), walks(1, SEEDS, STEPS));
        assert_eq!(parse(&["--seed", "7", "--steps", "20"]).unwrap(), walks(7, 1, 20));
        assert_eq!(parse(&["--seeds", "12"]).unwrap(), walks(1, 12, STEPS));
        for (args, text) in [
            (&["--seed"][..], "--seed needs a number"),
            (&["--steps", "many"], "read --steps \"many\""),
            (&["--fast"], "unknown flag \"--fast\""),
        ] {
            let error = parse(args).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn a_few_walks_keep_every_promise() {
        assert!(walk(&Walks { first: 90_000, count: 3, steps: 60 }).is_ok_and(|inputs| inputs > 180));
    }
}
