//! Cutting a span of messages into leaves.

use std::ops::Range;

/// The least share of a leaf's span that a leaf of its own is made for.
const LEAST_SHARE: f64 = 0.25;

/// Cuts units, of which none may be parted, into chunks of about `span` tokens each, in order. A small
/// rest joins the chunk before it. `tokens` are those of each unit.
pub(crate) fn chunks(tokens: &[u64], span: u64) -> Vec<Range<usize>> {
    let mut chunks: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (at, unit) in tokens.iter().enumerate() {
        match chunks.last_mut() {
            Some(chunk) if used + unit <= span => {
                chunk.end = at + 1;
                used += unit;
            }
            _ => {
                chunks.push(at..at + 1);
                used = *unit;
            }
        }
    }
    if used < (span as f64 * LEAST_SHARE) as u64
        && let Some(rest) = chunks.pop()
    {
        match chunks.last_mut() {
            Some(before) => before.end = rest.end,
            None => chunks.push(rest),
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_partition_the_units(tokens in prop::collection::vec(0_u64..300, 0..60), span in 1_u64..500) {
            let chunks = chunks(&tokens, span);
            let flat: Vec<usize> = chunks.iter().cloned().flatten().collect();
            prop_assert_eq!(flat, (0..tokens.len()).collect::<Vec<_>>());
            for chunk in &chunks {
                let sum: u64 = tokens[chunk.clone()].iter().sum();
                prop_assert!(sum <= span + span / 4 || chunk.len() == 1 || tokens[chunk.clone()].iter().any(|unit| *unit > span));
            }
        }
    }
}
