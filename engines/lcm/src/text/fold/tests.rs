#![allow(clippy::unwrap_used)]
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::*;

/// Otherwise `(?i)` could match texts that the index does not find.
#[test]
fn folds_together_whatever_a_regular_expression_does() {
    for c in '\0'..=char::MAX {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
        class.try_case_fold_simple().unwrap();
        for range in class.iter() {
            for other in range.start()..=range.end() {
                assert_eq!(fold_char(c), fold_char(other), "{c:?} and {other:?}");
                assert_eq!(
                    fold_case_char(c),
                    fold_case_char(other),
                    "{c:?} and {other:?}"
                );
            }
        }
    }
}

#[test]
fn offsets_lead_back() {
    let text = "aİK\u{212a}ß世B";
    let folded = fold(text);
    let mut places: Vec<Range<usize>> = text
        .char_indices()
        .map(|(at, c)| {
            let in_folded = fold(&text[..at]).len();
            assert!(folded[in_folded..].starts_with(fold_char(c).unwrap()));
            in_folded..folded.len()
        })
        .collect();
    // In any order, and more than once.
    places.reverse();
    places.push(places[0].clone());
    in_original(text, &mut places);
    let mut expected: Vec<Range<usize>> =
        text.char_indices().map(|(at, _)| at..text.len()).collect();
    expected.reverse();
    expected.push(expected[0].clone());
    assert_eq!(places, expected);
}

/// The characters that make up a letter: the composed and the decomposed form fold to the same
/// text, which equals what SQLite's tokenizer makes of the composed form.
#[test]
fn letters_are_folded_as_sqlite_folds_them() {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite
            .execute_batch(
                "CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
                 CREATE VIRTUAL TABLE terms USING fts5vocab(texts, instance);",
            )
            .unwrap();
    let letters = ('\u{c0}'..='\u{24f}').chain('\u{1e00}'..='\u{1eff}');
    let letters: Vec<char> = letters.filter(|c| c.is_alphabetic()).collect();
    let mut insert = sqlite
        .prepare("INSERT INTO texts(rowid, text) VALUES(?1, ?2)")
        .unwrap();
    for (at, c) in (1_i64..).zip(&letters) {
        insert.execute((at, format!("1{c}1"))).unwrap();
    }
    let mut terms = sqlite
        .prepare("SELECT doc, term FROM terms ORDER BY doc")
        .unwrap();
    let terms = terms
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    let mut compared = 0;
    for found in terms {
        let (at, term): (i64, String) = found.unwrap();
        let c = letters[at as usize - 1];
        // SQLite's tables are from an older Unicode version and lack the case of some letters.
        let theirs = term.trim_matches('1');
        compared += usize::from(theirs.is_ascii());
        assert!(
            !theirs.is_ascii() || fold(&c.to_string()) == theirs,
            "{c:?}: {theirs}"
        );
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn decomposed_texts_are_the_composed_ones() {
    let text = "Café ÅÄÖ ñandú Việt й ά 한국어 がぎ x\u{304} e\u{301}\u{323} q\u{301}";
    let decomposed: String = text.nfd().collect();
    assert_ne!(text, decomposed);
    assert_eq!(composed(&decomposed), text.nfc().collect::<String>());
    assert_eq!(fold(&decomposed), fold(text));
    assert_eq!(
        fold(&decomposed),
        "cafe aao nandu viet й ά 한국어 がぎ x e q"
    );
    for word in ["ñandú", "Việt", "한국어", "がぎ"] {
        for form in [Form::Composed, Form::OneCase, Form::Folded] {
            let (mut one, mut other) = (String::new(), String::new());
            let needle = form.of(word, &mut one);
            let at = form.of(&decomposed, &mut other).find(&*needle).unwrap();
            let mut place: [_; 1] = std::array::from_fn(|_| at..at + needle.len());
            form.in_original(&decomposed, &mut place);
            assert_eq!(decomposed[place[0].clone()].nfc().collect::<String>(), word);
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_composed_as_a_whole(text in "[a-céñ\u{300}-\u{345}가-각\u{1100}-\u{1105}\u{1161}-\u{1166}\u{11a8}-\u{11ad}か\u{3099}世\u{212b}]{0,12}") {
        proptest::prop_assert_eq!(composed(&text), text.nfc().collect::<String>());
    }
}
