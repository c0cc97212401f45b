//! Sentences as words, and lists of words.

/// Returns the words of a text in one line, each with a space on both sides. Punctuation that ends
/// a clause becomes a bar.
pub(super) fn flat(text: &str) -> String {
    let mut flat = String::from(" ");
    let mut word = String::new();
    let end = |word: &mut String, flat: &mut String| {
        let trimmed = word.trim_matches(['\'', '-']);
        if !trimmed.is_empty() {
            flat.push_str(trimmed);
            flat.push(' ');
        }
        word.clear();
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // A point inside a word is part of it: `legacy.css`.
        let is_inside = c == '.' && chars.peek().is_some_and(|next| next.is_alphanumeric());
        if c.is_alphanumeric() || c == '\'' || c == '-' || c == '_' || is_inside {
            word.push(c);
            continue;
        }
        end(&mut word, &mut flat);
        if matches!(
            c,
            ',' | ';' | ':' | '—' | '–' | '(' | ')' | '[' | ']' | '!' | '¡' | '…' | '.' | '?'
        ) && !flat.ends_with("| ")
        {
            flat.push_str("| ");
        }
    }
    end(&mut word, &mut flat);
    flat
}

pub(super) fn clauses(flat: &str) -> impl Iterator<Item = &str> {
    flat.split('|')
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
}

/// Returns the words of a clause behind those at its beginning that `fillers` lists, such as *and*.
pub(super) fn behind<'a>(clause: &'a str, fillers: &str) -> Vec<&'a str> {
    clause
        .split_whitespace()
        .skip_while(|word| lists(fillers, word))
        .collect()
}

/// Whether a list with bars between its words has this word.
pub(super) fn lists(list: &str, word: &str) -> bool {
    list.split('|').any(|one| one == word)
}

/// Whether a sentence or a clause of [`flat`] words has one of a list with bars between them.
pub(super) fn has(flat: &str, list: &str) -> bool {
    places(flat, list).next().is_some()
}

/// Returns the places in a sentence or a clause of [`flat`] words of those that a list has, at most one
/// for each.
pub(super) fn places<'a>(flat: &'a str, list: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_whole = |at: usize, part: &str| {
        let (before, after) = (&flat[..at], &flat[at + part.len()..]);
        (before.is_empty() || before.ends_with(' ')) && (after.is_empty() || after.starts_with(' '))
    };
    list.split('|').filter_map(move |part| {
        let mut found = flat.match_indices(part).map(|(at, _)| at);
        found.find(|at| is_whole(*at, part))
    })
}

/// Whether a text of a language without spaces has one of a list with bars between them.
pub(super) fn contains(text: &str, list: &str) -> bool {
    list.split('|').any(|part| text.contains(part))
}
