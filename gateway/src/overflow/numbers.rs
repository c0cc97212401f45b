//! Tells which number of an error is the limit and which is the size of the request.
//!
//! Providers put both numbers into sentences of every shape, so [`of`] judges each number by the
//! words around it. A word for a limit before it makes it the limit, a word such as "requested"
//! makes it the size of the request. If the words do not tell, the sizes do: a request that is
//! refused is larger than its limit. Comparisons such as `213462 > 200000` are read by [`compared`]
//! first, because they are unambiguous.
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
    "maximum", "max", "limit", "most", "only", "allowed", "allow", "<=", ">", "supports", "than",
    "window", "size", "should", "up", "context", "cannot", "maximal", "capacity", "under", "below",
];
const SIZE: &[&str] = &[
    "requested", "request", "contain", "has", "have", "resulted", "given", "got", "actual",
    "count", "current", "passed", "sent", "received", "used", "provided", "need", "require",
    "total", "estimated", "value",
];
const INPUT: &[&str] = &["prompt", "input", "message", "text", "conversation"];
/// Words for the answer of the model. Numbers next to them are ignored.
const ANSWER: &[&str] = &[
    "completion", "output", "generated", "generation", "new", "draft",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberKind {
    Limit,
    Size,
    /// The size of the input alone. Preferred over `Size`, which may include the answer.
    Input,
    Unknown,
}

/// The limit and the size that the numbers of an error give. Both may be None. If both are known,
/// the size is usually larger than the limit.
pub(super) fn of(words: &[Word]) -> Overflow {
    if let Some(compared) = compared(words) {
        return compared;
    }
    let is_number =
        |word: &&Word| matches!(word, Word::Number { value, .. } if *value >= MIN_TOKENS);
    let is_alone = words.iter().filter(is_number).count() == 1;
    let has_unit = words.iter().any(|word| word.text() == "token");
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
            || (*in_parentheses && is_alone && !has_unit && value < 10_000)
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
    let mut limit = all(NumberKind::Limit).min();
    let mut size = all(NumberKind::Input)
        .max()
        .or_else(|| all(NumberKind::Size).max());
    if size.is_none() {
        // The word for a limit may precede both numbers or neither, so the larger one is the size.
        let largest = found.iter().map(|(value, _)| *value).max();
        size = largest.filter(|largest| limit.is_some_and(|limit| *largest > limit));
    }
    if limit.is_none() {
        let smallest = all(NumberKind::Unknown).min();
        limit = smallest.filter(|smallest| size.is_some_and(|size| *smallest < size));
    }
    if limit.is_none() && size.is_none() {
        let mut unknown: Vec<u64> = all(NumberKind::Unknown).collect();
        unknown.sort_unstable();
        if let [small, .., large] = unknown.as_slice()
            && small < large
        {
            (limit, size) = (Some(*small), Some(*large));
        }
    }
    Overflow { limit, size }
}

/// Reads comparisons such as `213462 > 200000` and `190000 + 20000 > 200000`. The first number is
/// the input, the last one the limit. Returns None if there is no comparison, or if it is not about
/// the window.
fn compared(words: &[Word]) -> Option<Overflow> {
    let at = words.iter().position(|word| word.text() == ">")?;
    let number = |at: usize| match words.get(at) {
        Some(Word::Number { value, .. }) => Some(*value),
        _ => None,
    };
    let text = |at: Option<usize>| at.and_then(|at| words.get(at)).map_or("", Word::text);
    // A unit may stand between the number and the sign.
    let before =
        (1..=2).find_map(|back| Some((at.checked_sub(back)?, number(at.checked_sub(back)?)?)));
    let (position, mut size) = before?;
    let limit = number(at + 1)?;
    // In `9000 > 8192 - 500`, the first number is the requested answer.
    if text(Some(at + 2)) == "-" {
        return None;
    }
    if text(position.checked_sub(1)) == "+" {
        let first = (2..=4).find_map(|back| number(position.checked_sub(back)?));
        size = first.unwrap_or(size);
    }
    let fits = |value: u64| (MIN_TOKENS..=MAX_TOKENS).contains(&value);
    fits(limit).then_some(Overflow {
        limit: Some(limit),
        size: Some(size).filter(|size| fits(*size)),
    })
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
    let after: Vec<&str> = (at + 1..at + 6).take_while(continues).map(text).collect();
    let has = |part: &[&str], any: &[&str]| part.iter().any(|word| any.contains(word));
    // "Reduce it by 500" and "error 4001" give neither a limit nor a size.
    if before.first() == Some(&"by")
        || matches!(
            before.first(),
            Some(&("code" | "status" | "error" | "http"))
        )
    {
        return None;
    }
    let near_after = after.get(..after.len().min(4)).unwrap_or_default();
    let end = near_after.iter().position(|word| {
        matches!(
            *word,
            ">" | "and" | "but" | "exceed" | "while" | ";" | "however" | "which"
        )
    });
    let near_after = near_after
        .get(..end.unwrap_or(near_after.len()))
        .unwrap_or_default();
    let is_answer = has(near_after, ANSWER) && !has(near_after, INPUT);
    let near_before = before.get(..before.len().min(3)).unwrap_or_default();
    let is_max_tokens = matches!(
        near_before,
        [_, "token", "max" | "output" | "completion" | "new", ..]
            | ["token", "max" | "output" | "completion" | "new", ..]
    ) && !has(&before, &["input"]);
    if is_answer || is_max_tokens {
        return None;
    }
    let nearest = |any: &[&str]| before.iter().position(|word| any.contains(word));
    let kind = match (nearest(LIMIT), nearest(SIZE)) {
        (Some(limit), Some(size)) if size < limit => NumberKind::Size,
        (Some(_), _) => NumberKind::Limit,
        (None, Some(_)) => NumberKind::Size,
        (None, None) if has(near_after, &["maximum", "limit", "max"]) => NumberKind::Limit,
        (None, None) if has(&before, INPUT) => NumberKind::Size,
        (None, None) => NumberKind::Unknown,
    };
    let is_input = has(near_after, INPUT) || (has(&before, INPUT) && kind == NumberKind::Size);
    Some(match kind {
        NumberKind::Size | NumberKind::Unknown if is_input => NumberKind::Input,
        other => other,
    })
}
