use super::*;

fn terms(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    for_each_term(text, |term, _| out.push(term.to_owned()));
    out
}

#[test]
fn neighbouring_pairs_have_neighbouring_places() {
    let mut places = Vec::new();
    for_each_term("索引重建 索引x索引", |term, place| {
        places.extend(place.map(|place| format!("{term} {place}")));
    });
    assert_eq!(places, ["索引 2", "引重 3", "重建 4", "索引 7", "索引 10"]);
}

#[test]
fn words_and_grams() {
    assert_eq!(
        terms("src/epoch.rs:412 a_b naïve"),
        ["src", "epoch", "rs", "412", "a_b", "naïve"]
    );
    assert_eq!(terms("db索引x한"), ["db", "索", "引", "索引", "x", "한"]);
}

#[test]
fn long_words_are_noted() {
    let long = "é".repeat(40);
    assert_eq!(terms(&long), [LONG_WORD.to_owned(), "é".repeat(32)]);
}

#[test]
fn every_word_character_is_one_to_regular_expressions() {
    let word = regex::Regex::new(r"^[\w]$").map_err(|error| error.to_string());
    for c in '\0'..=char::MAX {
        if class(c) == Class::Word {
            assert!(
                word.as_ref()
                    .is_ok_and(|word| word.is_match(&c.to_string())),
                "{c:?}"
            );
        }
    }
}
