//! The table that a run ends with: what was measured, against which floor, and is it what was promised?

use std::fmt;

use crate::stats::Summary;

/// What a figure should be, in the row's unit, and the floor that was measured when that was decided.
///
/// A figure is compared twice: with the limit, and, as near to the floor of its own run, with how near the limit was to
/// the floor of that day, since a slow hour or a slower machine slows both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    limit: f64,
    /// `limit ÷ floor` of that day.
    ratio: f64,
    /// Whether less is better.
    ceiling: bool,
}

impl Target {
    pub(crate) fn at_most(limit: f64, floor_then: f64) -> Self {
        Self { limit, ratio: limit / floor_then, ceiling: true }
    }

    pub(crate) fn at_least(limit: f64, floor_then: f64) -> Self {
        Self { limit, ratio: limit / floor_then, ceiling: false }
    }

    fn keeps(self, value: f64, limit: f64) -> bool {
        if self.ceiling { value <= limit } else { value >= limit }
    }

    /// Both halves, because either alone misleads: a harness cheaper than that day's keeps every limit, and a slow hour
    /// keeps none.
    fn verdict(self, ours: f64, ratio: Option<f64>) -> &'static str {
        let near_floor = ratio.map(|ratio| self.keeps(ratio, self.ratio));
        match (self.keeps(ours, self.limit), near_floor) {
            (true, Some(true) | None) => "yes",
            (true, Some(false)) => "yes, but ratio over",
            (false, Some(true)) => "as a ratio",
            (false, Some(false) | None) => "**no**",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.ceiling { '≤' } else { '≥' };
        write!(f, "{sign} {}; {:.2} × floor", figure(self.limit), self.ratio)
    }
}

/// One measure, with its unit in its name.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) measure: String,
    pub(crate) ours: Option<Summary>,
    pub(crate) floor: Option<Summary>,
    pub(crate) target: Option<Target>,
}

impl Row {
    pub(crate) fn new(measure: impl Into<String>, ours: &[f64], floor: &[f64], target: Option<Target>) -> Self {
        let (ours, floor) = (Summary::of(ours), Summary::of(floor));
        Self { measure: measure.into(), ours, floor, target }
    }

    fn verdict(&self) -> &'static str {
        match (self.target, &self.ours) {
            (None, _) => "–",
            (Some(_), None) => "**no**",
            (Some(target), Some(ours)) => target.verdict(ours.median, self.ratio()),
        }
    }

    fn ratio(&self) -> Option<f64> {
        let floor = self.floor.filter(|floor| floor.median > 0.0)?;
        Some(self.ours?.median / floor.median)
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
        let ratio = self.ratio().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        write!(f, "| {} | {ours} | {floor} | {ratio} | {target} | {} |", self.measure, self.verdict())
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
        let row = Row::new("wall, ms", &[4.0, 6.0, 5.0], &[2.0], Some(Target::at_most(5.0, 4.0)));
        assert_eq!(
            row.to_string(),
            "| wall, ms | 5 (4–6, 3) | 2 (2–2, 1) | 2.50 | ≤ 5; 1.25 × floor | yes, but ratio over |"
        );
        let row = Row::new("frames/s", &[99.0], &[], Some(Target::at_least(100.0, 200.0)));
        assert_eq!(row.to_string(), "| frames/s | 99 (99–99, 1) | – | – | ≥ 100; 0.50 × floor | **no** |");
    }

    #[test]
    fn a_slow_hour_is_told_from_a_slow_program() {
        let verdict = |ours, floor, target| Row::new("a", &[ours], &[floor], Some(target)).verdict();
        assert_eq!(verdict(50.0, 37.0, Target::at_most(55.0, 37.0)), "yes");
        assert_eq!(verdict(50.0, 10.0, Target::at_most(55.0, 37.0)), "yes, but ratio over");
        assert_eq!(verdict(140.0, 120.0, Target::at_most(55.0, 37.0)), "as a ratio");
        assert_eq!(verdict(140.0, 37.0, Target::at_most(55.0, 37.0)), "**no**");
        assert_eq!(verdict(8_000.0, 9_000.0, Target::at_least(25_000.0, 40_000.0)), "as a ratio");
        assert_eq!(verdict(8_000.0, 40_000.0, Target::at_least(25_000.0, 40_000.0)), "**no**");
    }

    #[test]
    fn a_row_without_figures_meets_nothing() {
        let target = Some(Target::at_most(5.0, 1.0));
        assert_eq!(Row::new("a", &[], &[], target).verdict(), "**no**");
        assert_eq!(Row::new("a", &[1.0], &[], None).verdict(), "–");
    }
}
