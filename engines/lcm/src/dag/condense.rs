//! Chooses the nodes to condense next if all summaries together are too long.
//!
//! The choice depends on the depths of the nodes only. It prefers nodes of low depth, so that the
//! DAG stays balanced, and old ones, so that recent summaries stay detailed. Writing the text of
//! the new node is left to the compaction.

use std::ops::Range;

/// The maximum number of children of a condensed node.
pub(crate) const FANOUT: usize = 6;
/// The number of neighbours of one depth that a group should have. Smaller groups are condensed
/// only if there is no other.
pub(crate) const GOOD_GROUP: usize = 3;

/// Returns the nodes of a run to condense next, given the depth of each. It is the oldest group of
/// the lowest depth that has at least three neighbours. If there is none, it is such a group of
/// two, and then the first two nodes whatever their depths. Returns None if there are fewer than
/// two nodes.
pub(crate) fn next_group(depths: &[u32]) -> Option<Range<usize>> {
    let mut groups: Vec<(u32, Range<usize>)> = Vec::new();
    for (at, depth) in depths.iter().enumerate() {
        match groups.last_mut() {
            Some((of, group)) if of == depth && group.len() < FANOUT => group.end = at + 1,
            _ => groups.push((*depth, at..at + 1)),
        }
    }
    let best = |least: usize| {
        groups
            .iter()
            .filter(|(_, group)| group.len() >= least)
            .min_by_key(|(depth, group)| (*depth, group.start))
            .map(|(_, group)| group.clone())
    };
    // A condensed node over few children saves little, so larger groups come first.
    best(GOOD_GROUP)
        .or_else(|| best(2))
        .or_else(|| (depths.len() >= 2).then_some(0..2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_group_of_the_lowest_depth_comes_first() {
        assert_eq!(next_group(&[2, 1, 1, 0, 0, 0]), Some(3..6));
        assert_eq!(next_group(&[1, 1, 1, 0]), Some(0..3));
        assert_eq!(next_group(&[2, 1, 0]), Some(0..2));
        assert_eq!(next_group(&[0]), None);
        assert_eq!(next_group(&[0; 20]), Some(0..FANOUT));
    }

    proptest! {
        #[test]
        fn condensing_always_ends_in_one_node(mut depths in prop::collection::vec(0_u32..4, 1..200)) {
            let mut rounds = 0;
            while let Some(group) = next_group(&depths) {
                let depth = depths[group.clone()].iter().max().map_or(0, |depth| depth + 1);
                depths.splice(group, [depth]);
                rounds += 1;
                prop_assert!(rounds < 200);
            }
            prop_assert_eq!(depths.len(), 1);
        }
    }
}
