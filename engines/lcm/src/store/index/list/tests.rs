#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn growing(texts: &BTreeMap<u32, Vec<u32>>) -> ListBuilder {
    let mut list = ListBuilder::default();
    for (ordinal, places) in texts {
        for place in places {
            list.push(*ordinal, Some(*place));
        }
    }
    list
}

fn texts() -> impl Strategy<Value = BTreeMap<u32, Vec<u32>>> {
    let places = prop::collection::btree_set(0u32..5_000, 1..6);
    let places = places.prop_map(|places| places.into_iter().collect());
    prop::collection::btree_map(0u32..1_000, places, 1..20)
}

proptest! {
    #[test]
    fn ordinals_and_places_come_back_also_when_joined(early in texts(), late in texts()) {
        let (first, second) = (growing(&early), growing(&late));
        let mut written = Vec::new();
        second.write(&mut written);
        let mut joined = first;
        joined.append(List::read(&written).unwrap(), second.places(), 1_000);
        let mut written = Vec::new();
        joined.write(&mut written);
        let list = List::read(&written).unwrap();

        let late = late.into_iter().map(|(ordinal, places)| (ordinal + 1_000, places));
        let all: BTreeMap<u32, Vec<u32>> = early.into_iter().chain(late).collect();
        let mut ordinals = Vec::new();
        list.ordinals(7, &mut ordinals);
        prop_assert_eq!(ordinals, all.keys().map(|ordinal| ordinal + 7).collect::<Vec<_>>());
        let expected: Vec<(u32, u32)> = all
            .iter()
            .flat_map(|(ordinal, places)| places.iter().map(move |place| (ordinal + 7, *place)))
            .collect();
        prop_assert_eq!(list.places(7, joined.places()), Some(expected));
    }

    #[test]
    fn places_of_another_list_are_refused(texts in texts(), bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        let list = growing(&texts);
        let mut written = Vec::new();
        list.write(&mut written);
        if let Some(places) = List::read(&written).unwrap().places(0, &bytes) {
            let mut ordinals: Vec<u32> = places.iter().map(|(ordinal, _)| *ordinal).collect();
            ordinals.dedup();
            prop_assert_eq!(ordinals, texts.keys().copied().collect::<Vec<_>>());
        }
    }
}
