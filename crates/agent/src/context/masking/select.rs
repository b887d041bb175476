//! Sans-IO: which outputs are old enough, and are they worth a pass?

/// Of candidates with their tokens, newest first, those beyond the protection; none if they come to less than
/// `min_prunable`. The one that crosses the line is beyond it.
pub(super) fn prunable<T>(
    newest_first: impl Iterator<Item = (T, u64)>,
    protection: u64,
    min_prunable: u64,
) -> Vec<(T, u64)> {
    let mut seen = 0_u64;
    let beyond = newest_first.skip_while(|(_, tokens)| {
        seen = seen.saturating_add(*tokens);
        seen <= protection
    });
    let beyond: Vec<(T, u64)> = beyond.collect();
    let total = beyond.iter().fold(0_u64, |sum, (_, tokens)| sum.saturating_add(*tokens));
    if total < min_prunable { Vec::new() } else { beyond }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(tokens: &[u64]) -> Vec<usize> {
        let numbered = tokens.iter().copied().enumerate();
        prunable(numbered, 50_000, 30_000).into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn the_scenarios_of_the_specification() {
        assert_eq!(chosen(&[20_000, 20_000, 15_000, 10_000, 10_000]), [2, 3, 4]);
        assert_eq!(chosen(&[20_000, 20_000, 15_000, 10_000]), [] as [usize; 0]);
        assert_eq!(chosen(&[]), [] as [usize; 0]);
        // Exactly the protection is protected; exactly the least is enough.
        assert_eq!(chosen(&[50_000, 30_000]), [1]);
        assert_eq!(chosen(&[50_000, 29_999]), [] as [usize; 0]);
        assert_eq!(chosen(&[90_000]), [0]);
    }

    proptest! {
        #[test]
        fn what_is_protected_is_never_chosen(tokens in prop::collection::vec(0..20_000_u64, 0..40)) {
            let chosen = chosen(&tokens);
            let first = chosen.first().copied().unwrap_or(tokens.len());
            // A suffix: nothing older than what is chosen is left out.
            prop_assert_eq!(&chosen, &(first..first + chosen.len()).collect::<Vec<_>>());
            prop_assert!(chosen.is_empty() || first + chosen.len() == tokens.len());
            prop_assert!(chosen.is_empty() || tokens[..first].iter().sum::<u64>() <= 50_000);
            prop_assert!(chosen.is_empty() || tokens[..=first].iter().sum::<u64>() > 50_000);
            let beyond: u64 = tokens[first..].iter().sum();
            prop_assert!(chosen.is_empty() || beyond >= 30_000);
        }
    }
}
