//! Which records have been kept long enough?
//!
//! Source: runtime specification §11.4, `general.sessionRetention`.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::chats::{Records, entries};
use super::file::OpenError;
use super::rewinding::sweep_beside;

/// How long records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Older ones go.
    pub max_age: Option<Duration>,
    /// Of each project, at most so many stay, the newest.
    pub max_count: Option<usize>,
    /// Younger ones stay, whatever the other limits say.
    pub min_age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { max_age: Some(DAY * 30), max_count: None, min_age: DAY }
    }
}

impl Retention {
    /// Which of these go, by age; the newest first.
    fn expired(&self, ages: &[Duration]) -> Vec<bool> {
        let too_old = |age: &Duration| self.max_age.is_some_and(|max| *age > max);
        let too_many = |rank: usize| self.max_count.is_some_and(|max| rank >= max);
        ages.iter().enumerate().map(|(rank, age)| *age >= self.min_age && (too_old(age) || too_many(rank))).collect()
    }
}

impl Records {
    /// Removes what was kept long enough, with everything that belongs to it. Records that are open stay. Ends early,
    /// between two of them, once `stop` is set; the next one goes on.
    pub(crate) fn clean_up(&self, stop: &AtomicBool) {
        let Some(retention) = &self.options.retention else { return };
        for chats in self.own_chats() {
            let mut files: Vec<_> = entries(&chats).filter_map(|path| Some((age(&path)?, path))).collect();
            files.retain(|(_, path)| path.extension().is_some_and(|extension| extension == "jsonl"));
            files.sort();
            let mut removed = None;
            let ages: Vec<Duration> = files.iter().map(|(age, _)| *age).collect();
            for ((_, path), expired) in files.iter().zip(retention.expired(&ages)) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                if expired {
                    match self.remove_file(path) {
                        Ok(()) => removed = Some(path),
                        Err(OpenError::Locked) => {}
                        Err(OpenError::Io(error)) => tracing::warn!(path = %path.display(), %error, "a record stays"),
                    }
                }
            }
            if let Some(path) = removed {
                sweep_beside(path);
            }
        }
        self.clean_outputs(retention, stop);
    }

    /// Output of sessions that have no record any more.
    fn clean_outputs(&self, retention: &Retention, stop: &AtomicBool) {
        let Some(outputs) = &self.options.outputs else { return };
        let folders: Vec<_> = entries(outputs).collect();
        if folders.is_empty() {
            return;
        }
        let known: HashSet<_> = self
            .own_chats()
            .iter()
            .flat_map(|chats| entries(chats).collect::<Vec<_>>())
            .filter_map(|path| super::summary::summarize(&path))
            .map(|summary| self.outputs_of(&summary.id))
            .collect();
        let max_age = retention.max_age.unwrap_or(Duration::MAX).max(retention.min_age);
        for folder in folders.iter().filter(|folder| !known.contains(&Some((*folder).clone()))) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if age(folder).is_some_and(|age| age > max_age) {
                // Whatever is left behind is tried again next time.
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    }
}

/// How long ago it was written.
fn age(path: &Path) -> Option<Duration> {
    let modified = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_and_count_decide_and_the_young_stay() {
        let day = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        let ages = [Duration::ZERO, day(2), day(3), day(31)];
        assert_eq!(Retention::default().expired(&ages), [false, false, false, true]);
        let two = Retention { max_count: Some(2), ..Retention::default() };
        assert_eq!(two.expired(&ages), [false, false, true, true]);
        let none = Retention { max_count: Some(0), ..Retention::default() };
        assert_eq!(none.expired(&ages), [false, true, true, true]);
        assert_eq!(Retention { max_age: None, ..Retention::default() }.expired(&ages), [false; 4]);
    }
}
