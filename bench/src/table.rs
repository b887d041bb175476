//! The table that a run ends with: what was measured, against which floor, and is it what was promised?

use std::fmt;

use crate::stats::Summary;

/// What a figure should be, in the row's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {}", figure(*limit)),
            Self::AtLeast(limit) => write!(f, "≥ {}", figure(*limit)),
        }
    }
}

/// One measure, with its unit in its name.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) ours: Option<Summary>,
    pub(crate) floor: Option<Summary>,
    pub(crate) target: Option<Target>,
    /// Why the target is missed whatever the figure says.
    pub(crate) spoilt: Option<String>,
}

impl Row {
    pub(crate) fn new(measure: impl Into<String>, ours: &[f64], floor: &[f64], target: Option<Target>) -> Self {
        let (ours, floor) = (Summary::of(ours), Summary::of(floor));
        Self { measure: measure.into(), ours, floor, target, spoilt: None }
    }

    pub(crate) fn spoilt(mut self, why: Option<String>) -> Self {
        self.spoilt = why;
        self
    }

    fn verdict(&self) -> String {
        match (&self.spoilt, self.target, &self.ours) {
            (Some(why), ..) => format!("**no**: {why}"),
            (None, None, _) => "–".to_owned(),
            (None, Some(target), Some(ours)) if target.met(ours.median) => "yes".to_owned(),
            (None, Some(_), _) => "**no**".to_owned(),
        }
    }

    fn ratio(&self) -> String {
        match (&self.ours, &self.floor) {
            (Some(ours), Some(floor)) if floor.median > 0.0 => format!("{:.2}", ours.median / floor.median),
            _ => "–".to_owned(),
        }
    }
}

/// The head of the table.
pub(crate) const HEAD: &str = "\
| measure | ours: median (min–max, n) | floor, same run | ours ÷ floor | target | met? |
| --- | --- | --- | --- | --- | --- |";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target.map_or_else(|| "–".to_owned(), |target| target.to_string());
        let (ours, floor) = (summary(self.ours), summary(self.floor));
        write!(f, "| {} | {ours} | {floor} | {} | {target} | {} |", self.measure, self.ratio(), self.verdict())
    }
}

fn summary(summary: Option<Summary>) -> String {
    summary.map_or_else(
        || "–".to_owned(),
        |s| format!("{} ({}–{}, {})", figure(s.median), figure(s.min), figure(s.max), s.count),
    )
}

/// Three figures that count; whole numbers from a hundred on.
fn figure(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 || size == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_what_counts() {
        for (value, text) in [(0.0, "0"), (0.04321, "0.043"), (1.5, "1.5"), (12.34, "12.3"), (135_000.4, "135000")] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn a_row_compares_its_median() {
        let row = Row::new("wall, ms", &[4.0, 6.0, 5.0], &[2.0], Some(Target::AtMost(5.0)));
        assert_eq!(row.to_string(), "| wall, ms | 5 (4–6, 3) | 2 (2–2, 1) | 2.50 | ≤ 5 | yes |");
        let row = Row::new("frames/s", &[99.0], &[], Some(Target::AtLeast(100.0)));
        assert_eq!(row.to_string(), "| frames/s | 99 (99–99, 1) | – | – | ≥ 100 | **no** |");
    }

    #[test]
    fn a_row_without_figures_or_with_a_fault_meets_nothing() {
        let target = Some(Target::AtMost(5.0));
        assert_eq!(Row::new("a", &[], &[], target).verdict(), "**no**");
        assert_eq!(Row::new("a", &[1.0], &[], None).verdict(), "–");
        let spoilt = Row::new("a", &[1.0], &[], target).spoilt(Some("64 of 200 admitted".to_owned()));
        assert_eq!(spoilt.verdict(), "**no**: 64 of 200 admitted");
    }
}
