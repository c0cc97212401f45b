//! Chooses the nodes to condense next when all together are too long.

use std::ops::Range;

/// The most children of a condensed node.
pub(crate) const FANOUT: usize = 6;
/// The fewest neighbours of one depth that are condensed, if there is another choice.
const GOOD_GROUP: usize = 3;

/// The nodes of a run to condense next, given the depth of each: the oldest group of the lowest depth
/// that has enough neighbours, else the oldest pair. None for fewer than two nodes.
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
