//! What a question asks for, and whether a text contains something of that kind.
//!
//! A question that begins with "when" is answered by a text with a time in it. Texts that contain
//! the kind of thing that is asked for are more likely to answer ("predictive annotation", Prager
//! et al. 2000). [`AnswerKind::of`] recognises the kind from the question words, and [`AnswerKind::is_in`]
//! looks for it in a text.
//!
//! Both use word lists and simple patterns. They are mostly English, with the question words and
//! number words of some other languages. A wrong guess only shifts the ranking a little.

use crate::search::lexicon::lexicon;
use crate::text::terms::{Class, class, runs};

/// The kind of thing that a question asks for, which a text that answers it should contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// A date, a day or a time of day.
    Time,
    /// A number, with or without a unit.
    Number,
    /// A place, such as a city or a street.
    Place,
    /// A person, by name.
    Person,
    /// A reason, as in "why".
    Reason,
}

const MEASURES: &str = "many much long old far often tall big large high heavy \
    wide deep fast expensive pricey small frequently";
const PLACES: &str =
    "city town country place state location street village island region address continent";

/// Question words in languages without spaces, and words that ask for a number in some other
/// languages, in which the digits of the answer are the same. The words have no accents, because a
/// folded text has none.
const ASKED_ELSEWHERE: [(AnswerKind, &str); 4] = [
    (
        AnswerKind::Time,
        "什么时候 何时 哪天 几点 几号 几月 哪年 哪一年 いつ 何時",
    ),
    (AnswerKind::Reason, "为什么 为何 なぜ どうして"),
    (
        AnswerKind::Number,
        "多少 几 多长 多久 多大 多高 号码 いくつ いくら combien cuanto cuanta cuantos cuantas quanto quanti \
         quante wieviel hoeveel сколько",
    ),
    (
        AnswerKind::Place,
        "哪里 哪儿 在哪 什么地方 什么路 哪个城市 どこ",
    ),
];

/// The characters that a time contains in a Chinese or Japanese text.
const TIMES: [char; 7] = ['年', '月', '日', '号', '点', '周', '天'];
/// The characters that a number contains in such a text, if it is not written in digits.
const NUMBERS: [char; 13] = [
    '二', '三', '四', '五', '六', '七', '八', '九', '十', '百', '千', '万', '两',
];
/// The characters that a place or an address contains in a Chinese or Japanese text.
const ADDRESSES: [char; 11] = [
    '省', '市', '区', '县', '路', '街', '镇', '村', '楼', '駅', '町',
];

/// Returns whether "how" and this word together ask for a number, as in "how many". The word itself
/// is then not searched for.
pub(super) fn is_measure(word: &str) -> bool {
    is_among(word, MEASURES)
}

fn is_among(word: &str, list: &str) -> bool {
    list.split(' ').any(|other| other == word)
}

impl AnswerKind {
    /// Returns what a question asks for. `words` are the words of the question, and `folded` is all
    /// of it in folded form. Returns None if it has no known question word.
    pub(super) fn of(words: &[&str], folded: &str) -> Option<Self> {
        // Scripts without spaces have no words to compare, so their question words may be anywhere.
        let is_asked = |asked: &str| match asked.starts_with(|c| class(c) == Class::Gram) {
            true => folded.contains(asked),
            false => words.contains(&asked),
        };
        Self::of_english(words).or_else(|| {
            let mut elsewhere = ASKED_ELSEWHERE.iter();
            let found = elsewhere.find(|(_, list)| list.split_whitespace().any(is_asked));
            found.map(|(wanted, _)| *wanted)
        })
    }

    fn of_english(words: &[&str]) -> Option<Self> {
        for (at, word) in words.iter().enumerate() {
            // Look at the next word, and at the few words after "what" or "which" that may name the
            // kind, as in "which Italian city".
            let next = words.get(at + 1).copied().unwrap_or_default();
            let soon = &words[(at + 1).min(words.len())..(at + 5).min(words.len())];
            let soon_has = |list| soon.iter().any(|word| is_among(word, list));
            match *word {
                "when" => return Some(Self::Time),
                "where" => return Some(Self::Place),
                "who" | "whom" | "whose" => return Some(Self::Person),
                "why" => return Some(Self::Reason),
                "how" if is_measure(next) => return Some(Self::Number),
                "what" | "which" if soon_has(PLACES) => return Some(Self::Place),
                "what" if soon_has("reason") => return Some(Self::Reason),
                _ => {}
            }
        }
        None
    }

    /// Returns whether a text contains something of this kind. `folded` must be the same text in
    /// folded form. Names are recognised by their capital letters and everything else without them.
    pub(super) fn is_in(self, text: &str, folded: &str) -> bool {
        let has_sign = |of| words(folded).any(|word| lexicon().is_sign(of, word));
        match self {
            Self::Time => has_time(folded) || folded.contains(TIMES),
            Self::Number => {
                folded.bytes().any(|byte| byte.is_ascii_digit())
                    || folded.contains(NUMBERS)
                    || has_sign("number")
            }
            Self::Place => {
                has_name(text, Some("in at to from near into around")) || folded.contains(ADDRESSES)
            }
            Self::Person => has_name(text, None),
            Self::Reason => has_sign("reason") || folded.contains("因为"),
        }
    }
}

fn words(folded: &str) -> impl Iterator<Item = &str> {
    runs(folded)
        .filter(|run| run.class == Class::Word)
        .map(|run| &folded[run.range])
}

fn has_time(folded: &str) -> bool {
    let mut before = "";
    words(folded).any(|word| {
        let is_time = lexicon().is_sign("time", word)
            || lexicon().is_sign("span", word) && is_among(before, "last next this past")
            || is_year(word);
        before = word;
        is_time
    })
}

fn is_year(word: &str) -> bool {
    word.len() == 4
        && (word.starts_with("19") || word.starts_with("20"))
        && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a word in the middle of a sentence is capitalised, as a name is. If `leads` is
/// given, the word before it must be one of them.
fn has_name(text: &str, leads: Option<&str>) -> bool {
    let mut before: Option<&str> = None;
    text.split_whitespace().any(|token| {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        let is_capital =
            word.starts_with(char::is_uppercase) && word != "I" && !word.starts_with("I'");
        let is_name = is_capital
            && before.is_some_and(|before| {
                leads.is_none_or(|leads| is_among(&before.to_lowercase(), leads))
            });
        // At the beginning of a sentence every word has a capital letter, so it says nothing there.
        before = Some(word).filter(|_| !token.ends_with(['.', '!', '?', ':', '"']));
        is_name
    })
}

#[cfg(test)]
mod tests;
