//! What a question asks for, and whether a text has such a thing. Texts in which something of the kind
//! stands are more likely to answer ("predictive annotation", Prager et al. 2000).

use crate::index::terms::{Class, runs};

/// What a question asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A date, a day, a time.
    Time,
    /// A number, with or without a unit.
    Number,
    /// A place.
    Place,
    /// A person.
    Person,
    /// A reason.
    Reason,
}

const DATES: [&str; 9] = [
    "date", "day", "days", "month", "year", "weekday", "time", "season", "week",
];
pub(super) const MEASURES: [&str; 18] = [
    "many",
    "much",
    "long",
    "old",
    "far",
    "often",
    "tall",
    "big",
    "large",
    "high",
    "heavy",
    "wide",
    "deep",
    "fast",
    "expensive",
    "pricey",
    "small",
    "frequently",
];
const NUMBERED: [&str; 14] = [
    "number",
    "percent",
    "percentage",
    "age",
    "price",
    "cost",
    "amount",
    "size",
    "weight",
    "height",
    "total",
    "score",
    "rent",
    "salary",
];
const PLACES: [&str; 12] = [
    "city",
    "town",
    "country",
    "place",
    "state",
    "location",
    "street",
    "village",
    "island",
    "region",
    "address",
    "continent",
];

impl Wanted {
    /// What a question with these folded words asks for.
    pub(super) fn of(words: &[&str]) -> Option<Self> {
        for (at, word) in words.iter().enumerate() {
            // What follows next, and what follows soon.
            let next = words.get(at + 1).copied().unwrap_or_default();
            let soon = &words[(at + 1).min(words.len())..(at + 4).min(words.len())];
            let soon_has = |list: &[&str]| soon.iter().any(|word| list.contains(word));
            match *word {
                "when" => return Some(Self::Time),
                "where" => return Some(Self::Place),
                "who" | "whom" | "whose" => return Some(Self::Person),
                "why" => return Some(Self::Reason),
                "how" if next == "long" && soon.get(1) == Some(&"ago") => return Some(Self::Time),
                "how" if MEASURES.contains(&next) => return Some(Self::Number),
                "what" | "which" if soon_has(&DATES) => return Some(Self::Time),
                "what" | "which" if soon_has(&NUMBERED) => return Some(Self::Number),
                "what" | "which" if soon_has(&PLACES) => return Some(Self::Place),
                "what" if soon_has(&["reason"]) => return Some(Self::Reason),
                _ => {}
            }
        }
        None
    }

    /// Whether a text has such a thing; `folded` is the same text, folded.
    pub(super) fn is_in(self, text: &str, folded: &str) -> bool {
        match self {
            Self::Time => has_time(folded),
            Self::Number => has_number(folded),
            Self::Place => {
                has_name_after(text, &["in", "at", "to", "from", "near", "into", "around"])
            }
            Self::Person => has_name(text) || has_word(folded, &KIN),
            Self::Reason => has_word(folded, &["because", "since", "cause", "cos", "so", "due"]),
        }
    }
}

fn words(folded: &str) -> impl Iterator<Item = &str> {
    runs(folded)
        .filter(|run| run.class == Class::Word)
        .map(|run| &folded[run.range])
}

fn has_word(folded: &str, list: &[&str]) -> bool {
    words(folded).any(|word| list.contains(&word))
}

const KIN: [&str; 26] = [
    "mother",
    "mom",
    "mum",
    "father",
    "dad",
    "brother",
    "sister",
    "son",
    "daughter",
    "wife",
    "husband",
    "friend",
    "friends",
    "cousin",
    "aunt",
    "uncle",
    "grandma",
    "grandpa",
    "grandmother",
    "grandfather",
    "boss",
    "neighbour",
    "neighbor",
    "colleague",
    "partner",
    "family",
];

const TIMES: [&str; 33] = [
    "yesterday",
    "today",
    "tonight",
    "tomorrow",
    "ago",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "january",
    "february",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "weekend",
    "midnight",
    "noon",
    "o'clock",
    "christmas",
    "easter",
    "recently",
    "spring",
    "summer",
    "autumn",
    "winter",
];
const SPANS: [&str; 13] = [
    "week",
    "month",
    "year",
    "night",
    "morning",
    "afternoon",
    "evening",
    "term",
    "century",
    "decade",
    "time",
    "fall",
    "semester",
];

fn has_time(folded: &str) -> bool {
    let mut before = "";
    words(folded).any(|word| {
        let is_time = TIMES.contains(&word)
            || SPANS.contains(&word) && matches!(before, "last" | "next" | "this" | "past")
            || matches!(word, "march" | "may")
                && matches!(
                    before,
                    "in" | "of" | "last" | "next" | "since" | "until" | "by"
                )
            || is_year(word)
            || is_ordinal(word);
        before = word;
        is_time
    })
}

fn is_year(word: &str) -> bool {
    word.len() == 4
        && (word.starts_with("19") || word.starts_with("20"))
        && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `1st`, `22nd`, `5th`; `5pm`.
fn is_ordinal(word: &str) -> bool {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    (1..=2).contains(&digits) && matches!(&word[digits..], "st" | "nd" | "rd" | "th" | "am" | "pm")
}

const NUMBERS: [&str; 32] = [
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
    "thirty",
    "forty",
    "fifty",
    "sixty",
    "seventy",
    "eighty",
    "ninety",
    "dozen",
    "hundred",
    "thousand",
    "million",
    "half",
    "couple",
];

fn has_number(folded: &str) -> bool {
    folded.bytes().any(|byte| byte.is_ascii_digit()) || has_word(folded, &NUMBERS)
}

/// Whether a word in the middle of a sentence is written with a capital letter.
fn has_name(text: &str) -> bool {
    has_name_after(text, &[])
}

/// The same, where it follows one of these words, if there are any.
fn has_name_after(text: &str, leads: &[&str]) -> bool {
    let mut before: Option<&str> = None;
    text.split_whitespace().any(|token| {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let is_name = word.starts_with(char::is_uppercase)
            && word != "I"
            && !word.starts_with("I'")
            && before.is_some_and(|before| {
                leads.is_empty() || leads.contains(&before.to_lowercase().as_str())
            });
        // After the end of a sentence every word has a capital letter.
        before = Some(word).filter(|_| !token.ends_with(['.', '!', '?', ':', '"']));
        is_name
    })
}
