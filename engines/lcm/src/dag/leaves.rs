//! Cuts a span of messages into leaves.
//!
//! The units to distribute are indivisible, because a tool call stays together with its results.
//! Units are taken in order until a leaf is full. Which messages form a unit is decided by the
//! caller.

use std::ops::Range;

/// The smallest share of a leaf's span that gets a leaf of its own. A smaller rest joins the leaf
/// before.
const LEAST_SHARE: f64 = 0.25;

/// Cuts units into leaves of about `span` tokens each, in order. `tokens` holds the size of each
/// unit. A unit larger than `span` gets a leaf of its own, and a small rest at the end joins the
/// leaf before it. Returns the ranges of units, which are empty only if there are no units.
pub(crate) fn leaf_ranges(tokens: &[u64], span: u64) -> Vec<Range<usize>> {
    let mut leaves: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (at, unit) in tokens.iter().enumerate() {
        match leaves.last_mut() {
            Some(leaf) if used + unit <= span => {
                leaf.end = at + 1;
                used += unit;
            }
            _ => {
                leaves.push(at..at + 1);
                used = *unit;
            }
        }
    }
    // A tiny leaf would cost a heading and a model call for very little.
    if used < (span as f64 * LEAST_SHARE) as u64
        && let Some(rest) = leaves.pop()
    {
        match leaves.last_mut() {
            Some(before) => before.end = rest.end,
            None => leaves.push(rest),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_partition_the_units(tokens in prop::collection::vec(0_u64..300, 0..60), span in 1_u64..500) {
            let leaves = leaf_ranges(&tokens, span);
            let flat: Vec<usize> = leaves.iter().cloned().flatten().collect();
            prop_assert_eq!(flat, (0..tokens.len()).collect::<Vec<_>>());
            for leaf in &leaves {
                let sum: u64 = tokens[leaf.clone()].iter().sum();
                prop_assert!(sum <= span + span / 4 || leaf.len() == 1 || tokens[leaf.clone()].iter().any(|unit| *unit > span));
            }
        }
    }
}
