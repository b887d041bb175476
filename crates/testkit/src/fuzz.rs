//! What does a decoder do with bytes that nobody meant to send? A corpus, and mutations of it from a fixed seed.
//!
//! A target is a plain function that panics where a promise is broken. The run is the same on every machine; what fails
//! once belongs into the corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Mutations of one run. A decoder takes microseconds, so this is well under a second.
const ROUNDS: u32 = 20_000;

/// An input grows to this at most: decoders are bounded elsewhere, here it is their states that count.
const BYTES_MAX: usize = 4096;

/// Calls `target` with each file of the corpus and with mutations of them. Panics with the input that broke it.
pub fn fuzz(corpus: &Path, dictionary: &[&str], target: impl Fn(&[u8])) {
    let inputs = read(corpus);
    assert!(!inputs.is_empty(), "no corpus in {}", corpus.display());
    for input in &inputs {
        attempt(&target, input);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut pool = inputs;
    for _ in 0..ROUNDS {
        let mut input = random.pick(&pool).cloned().unwrap_or_default();
        for _ in 0..=random.below(4) {
            mutate(&mut input, &pool, dictionary, &mut random);
        }
        input.truncate(BYTES_MAX);
        attempt(&target, &input);
        // Some go on from here: two changes reach further than one.
        if pool.len() < 256 && random.below(64) == 0 {
            pool.push(input);
        }
    }
}

fn read(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    // The order of a folder is not the same everywhere.
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

fn attempt(target: &impl Fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let why = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let why = format!("{} with the input b\"{}\"", why.unwrap_or("a panic"), input.escape_ascii());
        std::panic::resume_unwind(Box::new(why));
    }
}

fn mutate(input: &mut Vec<u8>, pool: &[Vec<u8>], dictionary: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(7) {
        0 => input.truncate(at),
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        2 => insert(input, at, &[random.byte()]),
        3 => {
            let end = (at + random.below(16)).min(input.len());
            input.drain(at..end);
        }
        4 => {
            let end = (at + random.below(64)).min(input.len());
            let again = input.get(at..end).unwrap_or_default().to_vec();
            insert(input, at, &again);
        }
        5 => {
            let other = random.pick(pool).cloned().unwrap_or_default();
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(other.get(from..).unwrap_or_default());
        }
        _ => {
            let word = random.pick(dictionary).copied().unwrap_or_default();
            insert(input, at, word.as_bytes());
        }
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}

/// Xorshift: good enough to wander, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % bound).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one"), "a tree, a wall").unwrap();
        folder
    }

    #[test]
    fn finds_what_is_a_few_changes_away() {
        let folder = corpus();
        let found = catch_unwind(|| {
            fuzz(folder.path(), &["fence"], |input| {
                assert!(!input.windows(8).any(|part| part == b" a fence"), "it broke");
            });
        });
        let why = found.unwrap_err().downcast_ref::<String>().cloned().unwrap();
        assert!(why.starts_with("it broke with the input b\"") && why.contains(" a fence"), "{why}");
    }

    #[test]
    fn is_the_same_every_time() {
        let folder = corpus();
        let run = || {
            let seen = std::cell::RefCell::new((0_usize, 0_u64));
            fuzz(folder.path(), &[], |input| {
                let mut seen = seen.borrow_mut();
                seen.0 += 1;
                seen.1 = input.iter().fold(seen.1, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
            });
            seen.into_inner()
        };
        let first = run();
        assert_eq!(first, run());
        assert!(first.0 > 20_000);
    }
}
