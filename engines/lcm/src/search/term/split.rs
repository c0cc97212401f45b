//! Splits a full-text query into its terms.
//!
//! Terms are separated by spaces, and phrases are in quotes of any kind. Punctuation around a term
//! is removed: quotes, enclosing brackets, and stops after it. Punctuation inside a term or a
//! quoted phrase counts.
//!
//! People and models quote in many ways and paste text with punctuation around it. The rules aim at
//! what they most likely mean. Only an unclosed double quote is an error, because it could mean too
//! many things. [`split`] is the only entry point.

use crate::error::StoreError;

/// The quotes that open a phrase, each with those that may close it. Languages differ in their use,
/// so some characters do both.
const QUOTES: [(char, &[char]); 14] = [
    ('"', &['"']),
    ('\'', &['\'']),
    ('`', &['`']),
    ('＂', &['＂']),
    ('“', &['”', '“']),
    ('”', &['”']),
    ('„', &['“', '”']),
    ('‘', &['’', '‘']),
    ('’', &['’']),
    ('‚', &['‘', '’']),
    ('«', &['»']),
    ('»', &['«', '»']),
    ('「', &['」']),
    ('『', &['』']),
];

/// The pairs of brackets that may enclose a term.
const BRACKETS: [(char, char); 9] = [
    ('(', ')'),
    ('[', ']'),
    ('{', '}'),
    ('（', '）'),
    ('［', '］'),
    ('【', '】'),
    ('〔', '〕'),
    ('《', '》'),
    ('〈', '〉'),
];

/// The marks that end a clause, a sentence or a question, in several scripts.
const STOPS: [char; 20] = [
    ',', '.', ';', ':', '!', '?', '…', '、', '。', '，', '．', '；', '：', '！', '？', '｡', '､',
    '،', '؛', '؟',
];

/// Splits a query into its terms, in order. Phrases come without their quotes.
///
/// # Errors
/// Returns an error if a double quote is never closed.
pub(super) fn split(query: &str) -> Result<Vec<&str>, StoreError> {
    let mut terms = Vec::new();
    let mut rest = query.trim_start();
    while !rest.is_empty() {
        // A phrase may be in brackets, which are not part of it.
        let inside = rest.trim_start_matches(|c| BRACKETS.iter().any(|(open, _)| *open == c));
        if let Some((phrase, after)) = phrase(inside) {
            terms.push(phrase);
            rest = &after[end_of_word(after)..];
        } else if inside
            .strip_prefix('"')
            .is_some_and(|rest| !rest.contains('"'))
        {
            // Only a double quote is an error. An apostrophe at the start of a word is common in text.
            return Err(never_closed(query, query.len() - inside.len()));
        } else {
            let (term, after) = rest.split_at(end_of_word(rest));
            terms.push(bare(term));
            rest = after;
        }
        rest = rest.trim_start();
    }
    terms.retain(|term| !term.is_empty());
    Ok(terms)
}

fn end_of_word(text: &str) -> usize {
    text.find(char::is_whitespace).unwrap_or(text.len())
}

fn never_closed(query: &str, at: usize) -> StoreError {
    StoreError::Query(format!(
        "a quote is opened and never closed:\n    {}\n    {}^\nclose it, or use mode `literal` to find a quotation \
         mark",
        query.replace(char::is_whitespace, " "),
        " ".repeat(query[..at].chars().count())
    ))
}

/// Returns the phrase at the start of a text, and the rest after its closing quote. A closing quote
/// is at the end of a word, which tells it from an apostrophe. Returns None if the text does not
/// begin with a phrase.
fn phrase(text: &str) -> Option<(&str, &str)> {
    let open = text.chars().next()?;
    let (_, closing) = QUOTES.iter().find(|(quote, _)| *quote == open)?;
    let inside = &text[open.len_utf8()..];
    inside.match_indices(*closing).find_map(|(at, quote)| {
        let after = &inside[at + quote.len()..];
        // An apostrophe within a word has letters after it, so it does not close the phrase.
        let only_surrounds = after[..end_of_word(after)].chars().all(surrounds);
        only_surrounds.then_some((&inside[..at], after))
    })
}

fn surrounds(c: char) -> bool {
    is_quote(c) || STOPS.contains(&c) || BRACKETS.iter().any(|(_, close)| *close == c)
}

fn is_quote(c: char) -> bool {
    QUOTES
        .iter()
        .any(|(open, closing)| *open == c || closing.contains(&c))
}

/// Removes the punctuation around a term, repeatedly, since quotes and brackets may be nested.
fn bare(term: &str) -> &str {
    let inside = term
        .trim_start_matches(|c| is_quote(c) || matches!(c, '¿' | '¡'))
        .trim_end_matches(|c| is_quote(c) || STOPS.contains(&c));
    let inside = without_brackets(inside);
    match inside.len() == term.len() {
        true => inside,
        // Removing brackets may have uncovered quotes or stops.
        false => bare(inside),
    }
}

/// Removes brackets at the ends of a term that enclose all of it or have no partner in it. `f(x)`
/// stays as it is.
fn without_brackets(term: &str) -> &str {
    let mut ends = term.char_indices();
    let Some((_, first)) = ends.next() else {
        return term;
    };
    if let Some((open, close)) = pair_of(first) {
        let partner = match first == open {
            true => partner(term.char_indices(), open, close),
            false => None,
        };
        let behind = &term[first.len_utf8()..];
        match partner {
            None => return behind,
            Some(at) if at + close.len_utf8() == term.len() => {
                return &term[first.len_utf8()..at];
            }
            Some(_) => {}
        }
    }
    if let Some((at, last)) = ends.next_back()
        && let Some((open, close)) = pair_of(last)
        && (last == open || partner(term.char_indices().rev(), close, open).is_none())
    {
        return &term[..at];
    }
    term
}

fn pair_of(c: char) -> Option<(char, char)> {
    let mut pairs = BRACKETS.iter().copied();
    pairs.find(|(open, close)| *open == c || *close == c)
}

/// Returns the position of the bracket that matches the first one. `own` is that kind of bracket
/// and `other` its counterpart. None if there is none.
fn partner(chars: impl Iterator<Item = (usize, char)>, own: char, other: char) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in chars {
        if c == own {
            depth += 1;
        } else if c == other {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_lose_what_surrounds_them() {
        for (query, expected) in [
            ("a, b. (c)", &["a", "b", "c"][..]),
            ("f(x) g() (h())", &["f(x)", "g()", "h()"]),
            ("(a)(b) a) (b", &["(a)(b)", "a", "b"]),
            (
                "C++, C#. .env --flag $HOME",
                &["C++", "C#", ".env", "--flag", "$HOME"],
            ),
            ("x = 5;", &["x", "=", "5"]),
            ("¿Qué? 5'", &["Qué", "5"]),
            ("(\"a b.\"), c", &["a b.", "c"]),
            ("\"say \"hi\" now\"", &["say \"hi", "now"]),
            ("‘the dog’s bone’ 'tis", &["the dog’s bone", "tis"]),
            ("don't", &["don't"]),
            ("\"a\"b", &["a\"b"]),
            ("\"key\": [\"v w\"]", &["key", "v w"]),
            ("… () , “”", &[]),
        ] {
            assert_eq!(split(query).unwrap(), expected, "{query}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_split_or_refused(query in "([a-c ]|[\"'`“”„(){}、.:?]|\\PC){0,20}") {
            if let Ok(terms) = split(&query) {
                let words = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
                prop_assert_eq!(words(&terms.concat()), words(&query));
            }
        }
    }
}
