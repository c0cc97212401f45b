//! Splits error messages into words, in a normal form that hides the differences between providers' wordings.

/// A word, a sign or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// In lower case and without a plural `s`; or one of `>`, `<`, `<=`, `>=`, `+`, `-`, or `;` for the end of a
    /// clause.
    Text(String),
    /// A number that is not part of a name such as `gpt-4.1`.
    Number {
        value: u64,
        /// Whether it stands in parentheses.
        in_parentheses: bool,
    },
}

impl Word {
    /// Its text; empty for a number.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Number { .. } => "",
        }
    }
}

/// Characters that separate groups of digits.
const SEPARATORS: [char; 7] = [',', '.', '_', '\'', '\u{2019}', '\u{a0}', '\u{202f}'];

/// Splits a text into words. `context_length_exceeded`, `ContextLengthExceeded` and "context length exceeded" give the
/// same words.
pub(super) fn words_of(text: &str) -> Vec<Word> {
    let chars: Vec<char> = text.chars().collect();
    let at = |place: usize| chars.get(place).copied().unwrap_or(' ');
    let mut words: Vec<Word> = Vec::new();
    let mut place = 0;
    while place < chars.len() {
        let c = at(place);
        if c.is_ascii_digit() {
            let before = place.checked_sub(1).map_or(' ', at);
            let two_before = place.checked_sub(2).map_or(' ', at);
            let (value, end) = number(&chars, place);
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
            let is_unit = at(end) == '-'
                && ["token", "Token"].iter().any(|unit| {
                    unit.chars()
                        .enumerate()
                        .all(|(more, c)| at(end + 1 + more) == c)
                });
            let is_ratio = at(end) == '/' && at(end + 1).is_ascii_digit();
            let is_head = at(end).is_alphanumeric()
                || (matches!(at(end), '-' | '.' | '_' | '/')
                    && at(end + 1).is_alphanumeric()
                    && !is_unit
                    && !is_ratio);
            match value.and_then(|value| value.checked_mul(factor)) {
                // "1261: Prompt exceeds …" begins with the provider's code.
                Some(_)
                    if at(end) == ':'
                        && matches!(words.last(), None | Some(Word::Text(_)))
                        && words.last().is_none_or(|last| last.text() == ";") => {}
                Some(value) if !is_tail && !is_head => words.push(Word::Number {
                    value,
                    in_parentheses: before == '(',
                }),
                _ => {}
            }
            place = end;
        } else if c.is_alphabetic() && c.is_ascii() {
            let mut word = String::new();
            while at(place).is_ascii_alphabetic() {
                let (this, next) = (at(place), at(place + 1));
                word.push(this.to_ascii_lowercase());
                place += 1;
                // The next word of a camel-case name begins.
                if this.is_ascii_lowercase() && next.is_ascii_uppercase() {
                    break;
                }
            }
            let is_key = matches!(at(place), '"' | '\'')
                && at(place + 1) == ':'
                && matches!(
                    word.as_str(),
                    "message" | "type" | "code" | "error" | "param"
                );
            if !is_key {
                words.push(Word::Text(plain(&word)));
            }
        } else {
            let sign = match c {
                '<' | '>' if at(place + 1) == '=' => {
                    place += 1;
                    Some(format!("{c}="))
                }
                '\u{2264}' => Some("<=".to_owned()),
                '>' | '<' | '+' => Some(c.to_string()),
                '-' if at(place + 1) == ' ' && place > 0 && at(place - 1) == ' ' => {
                    Some("-".to_owned())
                }
                ';' => Some(";".to_owned()),
                // The end of a member in JSON or in Python's output of it.
                '"' | '\'' if matches!(at(place + 1), ',' | '}') => Some(";".to_owned()),
                _ => None,
            };
            words.extend(sign.map(Word::Text));
            place += 1;
        }
    }
    words
}

/// The number that begins at a position, and where it ends.
fn number(chars: &[char], from: usize) -> (Option<u64>, usize) {
    let is_digit = |place: usize| chars.get(place).is_some_and(char::is_ascii_digit);
    let mut digits = String::new();
    let mut place = from;
    loop {
        while let Some(digit) = chars.get(place).filter(|c| c.is_ascii_digit()) {
            digits.push(*digit);
            place += 1;
        }
        let is_group = chars.get(place).is_some_and(|c| SEPARATORS.contains(c))
            && (1..=3).all(|more| is_digit(place + more))
            && !is_digit(place + 4)
            && place - from <= 12;
        if !is_group {
            return (digits.parse().ok(), place);
        }
        place += 1;
    }
}

/// Normalizes plural, tense and spelling.
fn plain(word: &str) -> String {
    match word {
        "tokens" | "token" => "token".to_owned(),
        "exceeds" | "exceeded" | "exceed" => "exceed".to_owned(),
        "overflows" => "overflow".to_owned(),
        "exceeding" => "exceeding".to_owned(),
        "this" | "is" | "its" | "has" | "was" | "status" => word.to_owned(),
        "surpasses" | "surpassed" => "surpass".to_owned(),
        "ctx" => "context".to_owned(),
        "queries" => "query".to_owned(),
        "fits" => "fit".to_owned(),
        "supports" | "supported" => "supports".to_owned(),
        other => other
            .strip_suffix('s')
            .filter(|rest| rest.len() > 2 && !rest.ends_with('s'))
            .unwrap_or(other)
            .to_owned(),
    }
}
