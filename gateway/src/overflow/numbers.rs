//! Tells which number of an error is the limit and which is the size of the request.
//!
//! Providers put both numbers into sentences of every shape, so [`of`] judges each number by the
//! words around it. A word for a limit before it makes it the limit, a word for the input makes it
//! the size of the input. If the words do not tell, the sizes do: a request that is refused is
//! larger than its limit.
//!
//! Numbers that cannot be a count of tokens, such as error codes and dates, are ignored. Whether
//! the error is about the length of the request at all is decided by the parent module.

use super::Overflow;
use super::words::Word;

/// The smallest number that may be a count of tokens. No window is smaller, and error codes in
/// texts are.
const MIN_TOKENS: u64 = 1_000;
/// The largest number that may be a count of tokens. No window is larger, and dates in model names
/// are.
const MAX_TOKENS: u64 = 16_000_000;

const LIMIT: &[&str] = &[
    "maximum", "max", "limit", "most", "only", "allowed", "allow", ">", "support", "than",
    "window", "size", "should", "up", "context", "cannot", "maximal", "capacity", "under", "below",
    "exceed",
];
const INPUT: &[&str] = &["prompt", "input", "message", "text", "conversation"];
/// Words for the answer of the model. Numbers next to them are ignored.
const ANSWER: &[&str] = &[
    "completion", "output", "generated", "generation", "new", "draft",
];

/// Words before numbers that are neither a limit nor a size, as in "reduce it by 500". What is added
/// to the input, as in "190000 + 20000 > 200000", is the answer.
const IGNORED: &[&str] = &["by", "code", "status", "error", "http", "+"];
/// Words that end what belongs to the number before them.
const ENDS: &[&str] = &[
    ">", "and", "but", "exceed", "while", ";", "however", "which",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberKind {
    Limit,
    /// The size of the input.
    Input,
    /// A limit or a size. The size may include the answer.
    Unknown,
}

/// The limit and the size that the numbers of an error give. Both may be None. If both are known,
/// the size is usually larger than the limit.
pub(super) fn of(words: &[Word]) -> Overflow {
    let is_number =
        |word: &&Word| matches!(word, Word::Number { value, .. } if *value >= MIN_TOKENS);
    let is_alone = words.iter().filter(is_number).count() == 1;
    let mut found: Vec<(u64, NumberKind)> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Word::Number {
            value,
            in_parentheses,
        } = word
        else {
            continue;
        };
        let value = *value;
        // A number in parentheses may be the provider's error code.
        if !(MIN_TOKENS..=MAX_TOKENS).contains(&value)
            || (*in_parentheses && is_alone && value < 10_000)
        {
            continue;
        }
        if let Some(kind) = kind_of(words, at) {
            found.push((value, kind));
        }
    }
    let all = |kind: NumberKind| {
        let own = found.iter().filter(move |(_, own)| *own == kind);
        own.map(|(value, _)| *value)
    };
    let limit = all(NumberKind::Limit).min();
    let smallest = all(NumberKind::Unknown).min();
    let largest = found.iter().map(|(value, _)| *value).max();
    // The word for a limit may precede both numbers or neither, so the larger one is the size.
    let exceeded = limit.or(smallest);
    let size = all(NumberKind::Input)
        .max()
        .or(largest.filter(|largest| exceeded.is_some_and(|limit| *largest > limit)));
    let limit = limit.or(smallest.filter(|limit| size.is_some_and(|size| size > *limit)));
    Overflow { limit, size }
}

/// The meaning of the number at a position, by the words around it up to the next number. Returns
/// None if it counts something else, such as the answer's tokens.
fn kind_of(words: &[Word], at: usize) -> Option<NumberKind> {
    let text = |at: usize| words.get(at).map_or("", Word::text);
    let continues = |at: &usize| !matches!(words.get(*at), Some(Word::Number { value, .. }) if *value >= MIN_TOKENS);
    let before: Vec<&str> = (at.saturating_sub(7)..at)
        .rev()
        .take_while(continues)
        .map(text)
        .collect();
    let after: Vec<&str> = (at + 1..at + 5).take_while(continues).map(text).collect();
    let has = |part: &[&str], any: &[&str]| part.iter().any(|word| any.contains(word));
    let is_ignored = before.first().is_some_and(|word| IGNORED.contains(word));
    let near_after = after.split(|word| ENDS.contains(word)).next();
    let near_after = near_after.unwrap_or_default();
    if is_ignored || (has(near_after, ANSWER) && !has(near_after, INPUT)) {
        return None;
    }
    Some(if after.first() == Some(&"+") {
        NumberKind::Input
    } else if has(&before, LIMIT) {
        NumberKind::Limit
    } else if has(near_after, INPUT) || has(&before, INPUT) {
        NumberKind::Input
    } else {
        NumberKind::Unknown
    })
}
