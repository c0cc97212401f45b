//! Splits error messages into words, in a normal form that hides the differences between providers'
//! wordings.
//!
//! [`words_of`] returns a list of [`Word`]s. Words are in lower case, without plural and tense.
//! Identifiers such as `context_length_exceeded` are split at underscores and capitals, so that
//! they read like a sentence. Numbers keep their value: digit groups are joined, and `8k` becomes
//! 8000. Digits that belong to a name such as `gpt-4.1` are dropped, because they look like a
//! limit.
//!
//! The few signs that matter are kept as words of their own. What the words mean is decided by the
//! parent module and by [`numbers`](super::numbers).

/// A word, a sign or a number of an error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// A word in lower case and without a plural `s`. Also one of the signs `>`, `<` and `+`, or `;`
    /// for the end of a clause.
    Text(String),
    /// A number that is not part of a name such as `gpt-4.1`.
    Number {
        value: u64,
        /// Whether the number follows an opening parenthesis. It may be an error code then.
        in_parentheses: bool,
    },
}

impl Word {
    /// The text of a word or sign. Empty for a number.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Number { .. } => "",
        }
    }
}

/// Characters that may separate groups of three digits.
const SEPARATORS: [char; 7] = [',', '.', '_', '\'', '\u{2019}', '\u{a0}', '\u{202f}'];

/// Splits a text into words and numbers. `context_length_exceeded`, `ContextLengthExceeded` and
/// "context length exceeded" give the same words. Characters other than ASCII letters, digits and
/// the known signs only separate words.
pub(super) fn words_of(text: &str) -> Vec<Word> {
    let chars: Vec<char> = text.chars().collect();
    let at = |position: usize| chars.get(position).copied().unwrap_or(' ');
    let mut words: Vec<Word> = Vec::new();
    let mut position = 0;
    while position < chars.len() {
        let c = at(position);
        if c.is_ascii_digit() {
            let before = position.checked_sub(1).map_or(' ', at);
            let two_before = position.checked_sub(2).map_or(' ', at);
            let (value, end) = number(&chars, position);
            let (factor, end) = match at(end) {
                'k' | 'K' if !at(end + 1).is_alphanumeric() => (1_000, end + 1),
                'm' | 'M' if !at(end + 1).is_alphanumeric() => (1_000_000, end + 1),
                _ => (1, end),
            };
            let is_ratio = before == '/' && two_before.is_ascii_digit();
            let is_tail = before.is_alphanumeric()
                || (matches!(before, '-' | '.' | '_' | '/')
                    && two_before.is_alphanumeric()
                    && !is_ratio);
            match value.and_then(|value| value.checked_mul(factor)) {
                // "1261: Prompt exceeds …" begins with the provider's error code.
                Some(_)
                    if at(end) == ':'
                        && matches!(words.last(), None | Some(Word::Text(_)))
                        && words.last().is_none_or(|last| last.text() == ";") => {}
                Some(value) if !is_tail => words.push(Word::Number {
                    value,
                    in_parentheses: before == '(',
                }),
                _ => {}
            }
            position = end;
        } else if c.is_alphabetic() && c.is_ascii() {
            let mut word = String::new();
            while at(position).is_ascii_alphabetic() {
                let (this, next) = (at(position), at(position + 1));
                word.push(this.to_ascii_lowercase());
                position += 1;
                // A capital after a small letter begins the next word of a camel-case name.
                if this.is_ascii_lowercase() && next.is_ascii_uppercase() {
                    break;
                }
            }
            words.push(Word::Text(plain(&word)));
        } else {
            let sign = match c {
                '>' | '<' | '+' | ';' => Some(c.to_string()),
                // The end of a member in JSON, or in Python's notation for a dictionary.
                '"' | '\'' if matches!(at(position + 1), ',' | '}') => Some(";".to_owned()),
                _ => None,
            };
            words.extend(sign.map(Word::Text));
            position += 1;
        }
    }
    words
}

/// Reads the number that begins at a position, joining groups of three digits. Returns its value
/// and the position after it. The value is None if it exceeds 64 bits.
fn number(chars: &[char], from: usize) -> (Option<u64>, usize) {
    let is_digit = |position: usize| chars.get(position).is_some_and(char::is_ascii_digit);
    let mut digits = String::new();
    let mut position = from;
    loop {
        while let Some(digit) = chars.get(position).filter(|c| c.is_ascii_digit()) {
            digits.push(*digit);
            position += 1;
        }
        let is_group = chars.get(position).is_some_and(|c| SEPARATORS.contains(c))
            && (1..=3).all(|more| is_digit(position + more))
            && !is_digit(position + 4);
        if !is_group {
            return (digits.parse().ok(), position);
        }
        position += 1;
    }
}

/// Normalizes the plural, tense and spelling of a word in lower case. Words that only look like a
/// plural stay as they are.
fn plain(word: &str) -> String {
    match word {
        "exceeded" => "exceed".to_owned(),
        "surpasses" | "surpassed" => "surpass".to_owned(),
        "supported" => "support".to_owned(),
        "ctx" => "context".to_owned(),
        "queries" => "query".to_owned(),
        "this" | "status" => word.to_owned(),
        other => other
            .strip_suffix('s')
            .filter(|rest| rest.len() > 2 && !rest.ends_with('s'))
            .unwrap_or(other)
            .to_owned(),
    }
}
