//! Which secrets are masked, where they may stand, and what masking costs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "support/secrets.rs"]
mod corpus;

use contexture_secrets::mask_secrets;
use corpus::{
    Case, Random, assigned, blocks, keys, leak, look_alikes, notations, placements, secrets, seven,
};

#[test]
fn every_kind_is_masked_in_every_place_and_json_stays_json() {
    let mut leaks = Vec::new();
    for case in secrets(1, 3) {
        for placed in placements(&case.text) {
            for text in [
                Some(&placed.text),
                placed.arguments.as_ref(),
                Some(&placed.raw),
            ] {
                let Some(text) = text else { continue };
                let masked = mask_secrets(text);
                if leak(&masked, std::slice::from_ref(&case)).is_some() {
                    leaks.push(format!("{} in {}: {masked}", case.kind, placed.place));
                }
                assert_eq!(
                    mask_secrets(&masked),
                    masked,
                    "{} in {}",
                    case.kind,
                    placed.place
                );
                let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
                assert!(!is_json(text) || is_json(&masked), "{text} became {masked}");
            }
        }
    }
    assert!(
        leaks.is_empty(),
        "{} leaks: {:#?}",
        leaks.len(),
        &leaks[..leaks.len().min(20)]
    );
}

/// The kinds that leak in one of the seven places, of all that there are.
fn leaks_in_seven(cases: &[Case]) -> (Vec<String>, usize) {
    let mut leaks = Vec::new();
    let mut tried = 0;
    for case in cases {
        for (place, text) in seven(case) {
            tried += 1;
            let masked = mask_secrets(&text);
            if leak(&masked, std::slice::from_ref(case)).is_some() {
                leaks.push(format!(
                    "{} in {place}: {text:?} became {masked:?}",
                    case.kind
                ));
            }
        }
    }
    (leaks, tried)
}

#[test]
fn every_row_of_the_tables_and_every_notation_is_masked_in_seven_places() {
    let random = &mut Random(5);
    let mut all = Vec::new();
    for (what, cases) in [
        ("keys", keys(random)),
        ("providers", assigned(random)),
        ("notations", notations(random)),
    ] {
        let (leaks, tried) = leaks_in_seven(&cases);
        println!(
            "{what}: {} kinds, {tried} places, {} leaks",
            cases.len(),
            leaks.len()
        );
        all.extend(leaks);
    }
    assert!(
        all.is_empty(),
        "{} leaks: {:#?}",
        all.len(),
        &all[..all.len().min(400)]
    );
}

#[test]
fn a_secret_in_two_blocks_of_a_message_is_masked() {
    for (kind, [first, second], secret) in blocks(&mut Random(6)) {
        let part = |text: &str| serde_json::json!({"type": "text", "text": text});
        let raw = serde_json::json!([{"role": "user", "content": [part(&first), part(&second)]}])
            .to_string();
        for text in [raw, format!("{first}\n{second}")] {
            let masked = mask_secrets(&text);
            assert!(!masked.contains(&secret), "{kind}: {text} became {masked}");
        }
    }
}

#[test]
fn look_alikes_stay() {
    let mut lost = Vec::new();
    for (kind, text) in look_alikes(2, 5) {
        for text in [
            text.clone(),
            serde_json::json!({"stdout": text}).to_string(),
        ] {
            if mask_secrets(&text) != text {
                lost.push(format!("{kind}: {text} became {}", mask_secrets(&text)));
            }
        }
    }
    lost.dedup();
    assert!(
        lost.is_empty(),
        "{} lost: {:#?}",
        lost.len(),
        &lost[..lost.len().min(300)]
    );
}
