//! Tells which number of an error is the limit and which is the size of the request.

use super::Overflow;
use super::words::Word;

/// No window is smaller, and error codes inside texts are.
const LEAST: u64 = 1_000;
/// No window is larger, and dates in model names are.
const MOST: u64 = 16_000_000;

/// Words before a limit.
const LIMIT: &[&str] = &[
    "maximum", "max", "limit", "most", "only", "allowed", "allow", "<=", ">", "supports", "than",
    "window", "size", "should", "up", "context", "cannot", "maximal", "capacity", "under", "below",
];
/// Words before the size of the request.
const ASKED: &[&str] = &[
    "requested",
    "request",
    "contain",
    "has",
    "have",
    "resulted",
    "given",
    "got",
    "actual",
    "count",
    "current",
    "passed",
    "sent",
    "received",
    "used",
    "provided",
    "need",
    "require",
    "total",
    "estimated",
    "value",
];
/// Words for the input.
const INPUT: &[&str] = &["prompt", "input", "message", "text", "conversation"];
/// Words for the answer.
const ANSWER: &[&str] = &[
    "completion",
    "output",
    "generated",
    "generation",
    "new",
    "draft",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Limit,
    Asked,
    /// The size of the input alone.
    Input,
    Unknown,
}

/// The limit and the size that the numbers give.
pub(super) fn of(words: &[Word]) -> Overflow {
    if let Some(compared) = compared(words) {
        return compared;
    }
    let is_number = |word: &&Word| matches!(word, Word::Number { value, .. } if *value >= LEAST);
    let is_alone = words.iter().filter(is_number).count() == 1;
    let has_unit = words.iter().any(|word| word.text() == "token");
    let mut found: Vec<(u64, Kind)> = Vec::new();
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
        if !(LEAST..=MOST).contains(&value)
            || (*in_parentheses && is_alone && !has_unit && value < 10_000)
        {
            continue;
        }
        if let Some(kind) = kind_of(words, at) {
            found.push((value, kind));
        }
    }
    let all = |kind: Kind| {
        let own = found.iter().filter(move |(_, own)| *own == kind);
        own.map(|(value, _)| *value)
    };
    let mut limit = all(Kind::Limit).min();
    let mut asked = all(Kind::Input).max().or_else(|| all(Kind::Asked).max());
    if asked.is_none() {
        // The word for a limit precedes both numbers, or neither.
        let largest = found.iter().map(|(value, _)| *value).max();
        asked = largest.filter(|largest| limit.is_some_and(|limit| *largest > limit));
    }
    if limit.is_none() {
        let smallest = all(Kind::Unknown).min();
        limit = smallest.filter(|smallest| asked.is_some_and(|asked| *smallest < asked));
    }
    if limit.is_none() && asked.is_none() {
        let mut unknown: Vec<u64> = all(Kind::Unknown).collect();
        unknown.sort_unstable();
        if let [small, .., large] = unknown.as_slice()
            && small < large
        {
            (limit, asked) = (Some(*small), Some(*large));
        }
    }
    Overflow { limit, asked }
}

/// Reads comparisons such as `213462 > 200000` and `190000 + 20000 > 200000`. The first number is the input, the last
/// one the limit.
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
    let (place, mut asked) = before?;
    let limit = number(at + 1)?;
    // In `9000 > 8192 - 500`, the first number is the requested answer.
    if text(Some(at + 2)) == "-" {
        return None;
    }
    if text(place.checked_sub(1)) == "+" {
        let first = (2..=4).find_map(|back| number(place.checked_sub(back)?));
        asked = first.unwrap_or(asked);
    }
    let fits = |value: u64| (LEAST..=MOST).contains(&value);
    fits(limit).then_some(Overflow {
        limit: Some(limit),
        asked: Some(asked).filter(|asked| fits(*asked)),
    })
}

/// The meaning of a number; `None` if it is about something else.
fn kind_of(words: &[Word], at: usize) -> Option<Kind> {
    let text = |at: usize| words.get(at).map_or("", Word::text);
    let goes_on =
        |at: &usize| !matches!(words.get(*at), Some(Word::Number { value, .. }) if *value >= LEAST);
    let before: Vec<&str> = (at.saturating_sub(7)..at)
        .rev()
        .take_while(goes_on)
        .map(text)
        .collect();
    let after: Vec<&str> = (at + 1..at + 6).take_while(goes_on).map(text).collect();
    let has = |part: &[&str], any: &[&str]| part.iter().any(|word| any.contains(word));
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
    let kind = match (nearest(LIMIT), nearest(ASKED)) {
        (Some(limit), Some(asked)) if asked < limit => Kind::Asked,
        (Some(_), _) => Kind::Limit,
        (None, Some(_)) => Kind::Asked,
        (None, None) if has(near_after, &["maximum", "limit", "max"]) => Kind::Limit,
        (None, None) if has(&before, INPUT) => Kind::Asked,
        (None, None) => Kind::Unknown,
    };
    let is_input = has(near_after, INPUT) || (has(&before, INPUT) && kind == Kind::Asked);
    Some(match kind {
        Kind::Asked | Kind::Unknown if is_input => Kind::Input,
        other => other,
    })
}
