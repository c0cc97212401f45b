#![allow(clippy::unwrap_used)]
use super::*;
use crate::text::fold::fold;

fn of(pattern: &str) -> Need {
    Need::of_regex(&regex_syntax::parse(pattern).unwrap())
}

fn word(text: &str, starts: bool, ends: bool) -> Need {
    Need::Word {
        text: text.into(),
        starts,
        ends,
    }
}

#[test]
fn needs_of_regular_expressions() {
    assert_eq!(
        of(r"needle-[0-9]+-alpha"),
        Need::All(vec![
            word("needle", false, true),
            word("alpha", true, false)
        ])
    );
    assert_eq!(
        of(r"(?i)COPPER\s+LANTERN"),
        Need::All(vec![
            word("copper", false, true),
            word("lantern", true, false)
        ])
    );
    assert_eq!(of(r"\bepoch\b"), word("epoch", true, true));
    assert_eq!(of(r"(?-u:\b)epoch"), word("epoch", false, false));
    assert_eq!(
        of(r"Peregrine|epoch\.rs"),
        Need::Any(vec![
            word("peregrine", false, false),
            Need::All(vec![word("epoch", false, true), word("rs", true, false)])
        ])
    );
    assert_eq!(of("密碼是.{4}"), Need::Stretch("密碼是".into()));
    for anything in ["", "a*", "[a-z]+", "(foo|.)x?", "(a|b)+", r"\d{4}"] {
        assert_eq!(of(anything), Need::Anything, "{anything}");
    }
}

#[test]
fn classes_survive_folding() {
    for c in '\0'..=char::MAX {
        assert!(
            fold_char(c).is_none_or(|folded| class(c) == class(folded)),
            "{c:?}"
        );
    }
    assert_eq!(fold("ÀΣ"), "aσ");
}
