//! What a row of numbers says: median, extremes, percentiles.

/// Median, extremes and number of some values of one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Summary {
    /// `None` of no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self { median: median(&sorted)?, min: *sorted.first()?, max: *sorted.last()?, count: sorted.len() })
    }
}

/// The nearest-rank percentile, `percent` in 0–100: the smallest value that at least so many percent do not exceed.
/// `None` of no values.
pub(crate) fn percentile(values: &[f64], percent: u32) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (sorted.len() * usize::try_from(percent).ok()?).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let of = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[4.0]), Some(4.0));
        assert_eq!(of(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(of(&[9.0, 1.0, 4.0, 6.0]), Some(5.0));
    }

    #[test]
    fn a_summary_keeps_extremes_and_number() {
        let summary = Summary::of(&[3.0, -1.0, 2.0]).unwrap();
        assert_eq!((summary.min, summary.max, summary.count), (-1.0, 3.0, 3));
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 50), Some(100.0));
        assert_eq!(percentile(&values, 99), Some(198.0));
        assert_eq!(percentile(&values, 100), Some(200.0));
        assert_eq!(percentile(&values, 0), Some(1.0));
        assert_eq!(percentile(&[7.0], 99), Some(7.0));
        assert_eq!(percentile(&[], 50), None);
    }
}
