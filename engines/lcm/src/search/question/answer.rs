//! Detects what a question asks for, and whether a text contains something of that kind. Such texts are
//! more likely to answer ("predictive annotation", Prager et al. 2000).

use crate::search::lexicon::lexicon;
use crate::text::terms::{Class, class, runs};

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

const DATES: &str = "date day days month year weekday time season week";
const MEASURES: &str = "many much long old far often tall big large high heavy \
    wide deep fast expensive pricey small frequently";
const NUMBERED: &str =
    "number percent percentage age price cost amount size weight height total score rent salary";
const PLACES: &str =
    "city town country place state location street village island region address continent";

/// Question words in languages without spaces, and words for a number in some other languages, because digits are the
/// same in all. Letters have no accents here, as in a folded text.
const ASKED_ELSEWHERE: [(Wanted, &str); 4] = [
    (
        Wanted::Time,
        "什么时候 何时 哪天 几点 几号 几月 哪年 哪一年 いつ 何時",
    ),
    (Wanted::Reason, "为什么 为何 なぜ どうして"),
    (
        Wanted::Number,
        "多少 几 多长 多久 多大 多高 号码 いくつ いくら combien cuanto cuanta cuantos cuantas quanto quanti \
         quante wieviel hoeveel сколько",
    ),
    (
        Wanted::Place,
        "哪里 哪儿 在哪 什么地方 什么路 哪个城市 どこ",
    ),
];

/// What a time, a number, a place and a reason contain in such texts.
const TIMES: [char; 7] = ['年', '月', '日', '号', '点', '周', '天'];
const NUMBERS: [char; 13] = [
    '二', '三', '四', '五', '六', '七', '八', '九', '十', '百', '千', '万', '两',
];
const ADDRESSES: [char; 11] = [
    '省', '市', '区', '县', '路', '街', '镇', '村', '楼', '駅', '町',
];

/// Whether "how" and this word together ask for a number, so that the word itself is not searched for.
pub(super) fn is_measure(word: &str) -> bool {
    is_among(word, MEASURES)
}

fn is_among(word: &str, list: &str) -> bool {
    list.split(' ').any(|other| other == word)
}

impl Wanted {
    /// What a folded question with these words asks for.
    pub(super) fn of(words: &[&str], folded: &str) -> Option<Self> {
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
            // The next word, and the words soon after.
            let next = words.get(at + 1).copied().unwrap_or_default();
            let soon = &words[(at + 1).min(words.len())..(at + 5).min(words.len())];
            let soon_has = |list| soon.iter().any(|word| is_among(word, list));
            match *word {
                "when" => return Some(Self::Time),
                "where" => return Some(Self::Place),
                "who" | "whom" | "whose" => return Some(Self::Person),
                "why" => return Some(Self::Reason),
                "how" if next == "long" && soon.get(1) == Some(&"ago") => return Some(Self::Time),
                "how" if is_measure(next) => return Some(Self::Number),
                "what" | "which" if soon_has(DATES) => return Some(Self::Time),
                "what" | "which" if soon_has(NUMBERED) => return Some(Self::Number),
                "what" | "which" if soon_has(PLACES) => return Some(Self::Place),
                "what" if soon_has("reason") => return Some(Self::Reason),
                _ => {}
            }
        }
        None
    }

    /// Whether a text contains such a thing; `folded` is the same text, folded.
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
            Self::Person => has_name(text, None) || has_sign("person"),
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
            // Both are also other words.
            || is_among(word, "march may")
                && (is_among(before, "in of last next since until by") || before.parse::<u8>().is_ok())
            || is_year(word)
            || is_ordinal_or_hour(word);
        before = word;
        is_time
    })
}

fn is_year(word: &str) -> bool {
    word.len() == 4
        && (word.starts_with("19") || word.starts_with("20"))
        && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// `1st`, `22nd`; `5pm`.
fn is_ordinal_or_hour(word: &str) -> bool {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    (1..=2).contains(&digits) && is_among(&word[digits..], "st nd rd th am pm")
}

/// Whether a word in the middle of a sentence is capitalised; if there are `leads`, after one of them.
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
        // At the beginning of a sentence every word has a capital letter.
        before = Some(word).filter(|_| !token.ends_with(['.', '!', '?', ':', '"']));
        is_name
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::fold::fold;

    fn wanted(question: &str) -> Option<Wanted> {
        let folded = fold(question);
        Wanted::of(&words(&folded).collect::<Vec<_>>(), &folded)
    }

    #[test]
    fn questions_say_what_they_want() {
        for (question, expected) in [
            ("When did Ana move?", Some(Wanted::Time)),
            ("How long ago did she move?", Some(Wanted::Time)),
            ("In which year did she move?", Some(Wanted::Time)),
            ("How many cats are there?", Some(Wanted::Number)),
            ("What is the monthly rent?", Some(Wanted::Number)),
            ("Where was she born?", Some(Wanted::Place)),
            ("Which Italian city did she like?", Some(Wanted::Place)),
            ("With whom did she go?", Some(Wanted::Person)),
            ("Why did she leave?", Some(Wanted::Reason)),
            ("她是什么时候搬家的？", Some(Wanted::Time)),
            ("房租多少钱？", Some(Wanted::Number)),
            ("Cuántos gatos hay?", Some(Wanted::Number)),
            ("她住在哪里？", Some(Wanted::Place)),
            ("What did she paint?", None),
            ("How did she get there?", None),
        ] {
            assert_eq!(wanted(question), expected, "{question}");
        }
    }

    #[test]
    fn texts_have_what_is_wanted() {
        for (text, wanted, expected) in [
            ("We went last week", Wanted::Time, true),
            ("See you on the 3rd", Wanted::Time, true),
            ("It was back in 2019", Wanted::Time, true),
            ("I may go and march on", Wanted::Time, false),
            ("We met in May", Wanted::Time, true),
            ("We met on 12 March", Wanted::Time, true),
            ("A dozen of them", Wanted::Number, true),
            ("Some of them", Wanted::Number, false),
            ("I grew up in Porto", Wanted::Place, true),
            ("Sunny here. Warm too", Wanted::Place, false),
            ("I met with Ben", Wanted::Person, true),
            ("My cousin came", Wanted::Person, true),
            ("Nothing. Really I can't", Wanted::Person, false),
            ("Because I was tired", Wanted::Reason, true),
            ("下周三开始", Wanted::Time, true),
            ("两只猫", Wanted::Number, true),
            ("在长安街上", Wanted::Place, true),
            ("好的", Wanted::Place, false),
        ] {
            assert_eq!(wanted.is_in(text, &fold(text)), expected, "{text}");
        }
    }
}
