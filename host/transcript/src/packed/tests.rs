#![allow(clippy::unwrap_used)]
use super::*;

/// Texts that are alike, the `series` of each kind apart.
fn texts(series: usize) -> Vec<String> {
    let text = |at: usize| {
        let lines = 0..10 + at % 20;
        let line = |line| format!("series {series} writes line {line} of text {at}\n");
        lines.map(line).collect()
    };
    (0..200).map(text).collect()
}

fn dictionary(series: usize) -> Dictionary {
    let mut samples = Samples::default();
    assert!(texts(series).iter().any(|text| samples.add(text)));
    samples.dictionary().unwrap()
}

#[test]
fn a_text_is_read_with_its_dictionary_and_never_with_another() {
    let (own, other) = (dictionary(1), dictionary(2));
    let encoder = own.encoder().unwrap();
    for text in texts(1) {
        let plain = Packed::of(text.as_bytes(), None).unwrap();
        let packed = Packed::of(text.as_bytes(), Some(&encoder)).unwrap();
        assert_eq!((plain.needs(), packed.needs()), (None, own.id()));
        assert_eq!(plain.text(None).as_ref(), Some(&text));
        assert_eq!(plain.text(Some(&other)).as_ref(), Some(&text));
        assert_eq!(packed.text(Some(&own)).as_ref(), Some(&text));
        assert_eq!(packed.text(Some(&other)), None);
        assert_eq!(packed.text(None), None);
        assert!(packed.data.len() < plain.data.len());
    }
}

#[test]
fn damage_is_never_taken_for_text() {
    let own = dictionary(1);
    let encoder = own.encoder().unwrap();
    let text = &texts(1)[7];
    let whole = Packed::of(text.as_bytes(), Some(&encoder)).unwrap();
    for at in 0..whole.data.len() {
        for by in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged.data[at] ^= by;
            let read = damaged.text(Some(&own));
            assert!(read.is_none_or(|read| read == *text), "{at}");
        }
    }
}

#[test]
fn texts_that_have_nothing_in_common_give_no_dictionary_or_one_that_works() {
    let mut samples = Samples::default();
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from_u32(0x4e00 + (state >> 50) as u32).unwrap_or_default()
    };
    let texts: Vec<String> = (0..80)
        .map(|_| (0..400).map(|_| noise()).collect())
        .collect();
    assert!(texts.iter().any(|text| samples.add(text)));
    if let Some(dictionary) = samples.dictionary() {
        let encoder = dictionary.encoder().unwrap();
        for text in texts {
            let packed = Packed::of(text.as_bytes(), Some(&encoder)).unwrap();
            assert_eq!(packed.text(Some(&dictionary)), Some(text));
        }
    }
}
