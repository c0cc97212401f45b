//! What a rule is about: its [`topic`], and what two topics have in [`Common`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use hashbrown::HashSet;

use super::directive::{self, LanguageNumber};
use super::words::{WORDS, lowered, rows};
use crate::text::chars;

/// What a rule is about: words, and how many words each of them counts for.
pub(super) type Topic = BTreeMap<String, f32>;

/// How much two topics have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    pub(super) shared: f32,
    /// The number of words that only the one has, and only the other.
    pub(super) own: f32,
    pub(super) other: f32,
}

impl Common {
    pub(super) fn of(one: &Topic, other: &Topic) -> Self {
        // A character of Chinese alone may stand for a word: 改 for 修改.
        let is_short_for =
            |short: &str, word: &str| chars(short) == 1 && chars(word) == 2 && word.contains(short);
        let is_in = |word: &str, topic: &Topic| {
            let mut others = topic.keys().filter(|_| !word.is_ascii());
            topic.contains_key(word)
                || others.any(|other| is_short_for(word, other) || is_short_for(other, word))
        };
        let is_number = |word: &str| slot(word) == Some(NUMBERS);
        let has_number = |topic: &Topic| topic.keys().any(|word| is_number(word));
        let have_numbers = has_number(one) && has_number(other);
        // Such a character may be any verb. A number that only one of them has tells no more.
        let counts =
            |word: &str| (chars(word) > 1 || word.is_ascii()) && (have_numbers || !is_number(word));
        let only = |one: &Topic, other: &Topic| -> f32 {
            let words = one.iter();
            let only = words.filter(|(word, _)| !is_in(word, other) && counts(word));
            only.map(|(_, weight)| weight).sum()
        };
        let shared = one.iter().filter(|(word, _)| is_in(word, other));
        Self {
            shared: shared.map(|(_, weight)| weight).sum(),
            own: only(one, other),
            other: only(other, one),
        }
    }

    /// The share of the larger topic that both have.
    pub(super) fn least(self) -> f32 {
        self.shared / (self.shared + self.own.max(self.other)).max(1.0)
    }

    /// The share of the smaller topic that both have.
    pub(super) fn most(self) -> f32 {
        self.shared / (self.shared + self.own.min(self.other)).max(1.0)
    }

    pub(super) fn is_all(self) -> bool {
        self.shared > 0.0 && self.own + self.other == 0.0
    }

    /// Whether each has a word that the other has not, as patients' names and patients' ages have.
    pub(super) fn differs(self) -> bool {
        self.own > 0.0 && self.other > 0.0
    }
}

/// The words of a rule, without quotes and punctuation of sentences around them.
pub(super) fn words(rule: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &[char] = &[
        '"', '\'', '`', '“', '”', '„', '‘', '’', '«', '»', '(', '¡', '¿',
    ];
    const END: &[char] = &[
        '"', '\'', '`', '“', '”', '‘', '’', '«', '»', ')', '.', ',', ';', ':', '!', '?', '…',
    ];
    const BETWEEN: &[char] = &[
        '，', '。', '、', '！', '？', '；', '：', '「', '」', '『', '』', '（', '）', '《', '》',
        '—',
    ];
    let words = rule.split(|c: char| c.is_whitespace() || BETWEEN.contains(&c));
    let words = words.map(|word| {
        let bare = word.trim_start_matches(BEGIN).trim_end_matches(END);
        // `..` is a path, and a mark that stands alone ends a sentence.
        match bare.is_empty() && word.starts_with('.') {
            true => word,
            false => bare,
        }
    });
    words.filter(|word| !word.is_empty())
}

/// Whether a word is a path, a command, a number or a name.
pub(super) fn is_name(word: &str) -> bool {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let has_hump = inner.chars().skip(1).any(char::is_uppercase);
    inner.contains(['/', '_', '.', '`'])
        || word.contains('`')
        || has_hump
        || inner.contains(|c: char| c.is_ascii_digit())
}

/// Phrases that say what becomes of a rule, or that any rule may have, in [`parts`]. Those of Chinese and
/// Japanese are whole, and the longest come first.
static FRAMES: LazyLock<(HashSet<Vec<String>>, Vec<&str>)> = LazyLock::new(|| {
    let sections = [
        "in any rule", "in any end", "changes", "takes back", "permits", "states", "new",
        "reverses", "lifts", "releases", "needs", "no more", "withdraws", "switches", "rules",
        "said", "without", "not what follows", "not what precedes",
    ];
    let (mut frames, mut whole): (_, Vec<&str>) = (HashSet::new(), Vec::new());
    for name in sections {
        let phrases = WORDS.all_if_any(name).iter();
        frames.extend(phrases.map(|phrase| phrase.split(' ').flat_map(parts).collect()));
        whole.extend(WORDS.all_if_any(&format!("{name} cjk")));
    }
    whole.sort_by_key(|phrase| Reverse(phrase.len()));
    (frames, whole)
});
/// No phrase has more words than this.
const FRAME_WORDS: usize = 5;

/// The words of topics that stand for values, by the stems of their forms.
static VALUES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let mut values = BTreeMap::new();
    for (slot, row) in rows("values").iter().enumerate() {
        for value in row.split('|') {
            for form in value.split('/') {
                let word = format!("{slot} {}", value.split('/').next().unwrap_or_default());
                match form.chars().any(directive::is_cjk) {
                    true => values.extend([(form.to_owned(), word)]),
                    false => {
                        let all = [[false, false], [false, true], [true, false], [true, true]];
                        values.extend(all.map(|tongues| (stem(form, tongues), word.clone())));
                    }
                }
            }
        }
    }
    values
});
/// The slot of numbers, which is the first one.
pub(super) const NUMBERS: usize = 0;

/// The slot of which a word of a topic is a value. Two values of a slot exclude each other.
pub(super) fn slot(word: &str) -> Option<usize> {
    word.split_once(' ')?.0.parse().ok()
}

/// The parts of a word in lower case. French joins short words to the next one: "n'utilise".
fn parts(word: &str) -> Vec<String> {
    let joined = ["n'", "l'", "d'", "j'", "s'", "qu'"];
    let lower = lowered(word);
    let parts = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let bare = parts.map(|part| {
        let mut joined = joined.iter();
        let bare = joined.find_map(|short| part.strip_prefix(short));
        bare.unwrap_or(part).to_owned()
    });
    bare.filter(|part| !part.is_empty()).collect()
}

/// What a rule is about: its words without those that any rule may have. Names and paths are whole.
/// Other words are cut, so that their forms are equal.
pub(super) fn topic(rule: &str) -> Topic {
    if rule.chars().any(directive::is_cjk) {
        return topic_cjk(lowered(rule));
    }
    let tongues = tongues(rule);
    let is_whole = |word: &&str| is_name(word) && !word.bytes().all(|byte| byte.is_ascii_digit());
    let (names, plain): (Vec<&str>, Vec<&str>) = words(rule).partition(is_whole);
    let mut topic: Topic = names
        .iter()
        .map(|name| (name.to_lowercase(), 1.0))
        .collect();
    let plain: Vec<String> = plain.into_iter().flat_map(parts).collect();
    let mut rest = plain.as_slice();
    while let Some((first, behind)) = rest.split_first() {
        let mut lengths = (1..=rest.len().min(FRAME_WORDS)).rev();
        let frame = lengths.find(|length| FRAMES.0.contains(&rest[..*length]));
        rest = match frame {
            Some(length) => &rest[length..],
            None => {
                topic.insert(topic_word(first, tongues), 1.0);
                behind
            }
        };
    }
    topic
}

/// The topic of a Chinese or Japanese rule: its runs of letters, and its Han characters by pairs, which
/// together count for half as many words as the run has characters. Hiragana count if there is nothing else.
fn topic_cjk(mut text: String) -> Topic {
    let mut topic = Topic::new();
    for (form, word) in VALUES.iter() {
        if form.chars().any(directive::is_cjk) && text.contains(form) {
            text = text.replace(form, " ");
            topic.insert(word.clone(), 1.0);
        }
    }
    let bare = FRAMES
        .1
        .iter()
        .fold(text, |text, phrase| text.replace(phrase, " "));
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    let is_hiragana = |c: char| ('\u{3041}'..='\u{309f}').contains(&c);
    let kind = |c: char| (is_part(c), directive::is_han(c), is_hiragana(c));
    let letters: Vec<char> = bare.chars().collect();
    let mut runs = letters
        .chunk_by(|one, next| kind(*one) == kind(*next))
        .peekable();
    let mut hiragana = Topic::new();
    while let Some(run) = runs.next() {
        let word: String = run.iter().collect();
        if is_hiragana(run[0]) {
            hiragana.insert(word, 1.0);
        } else if !directive::is_han(run[0]) {
            topic.extend(is_part(run[0]).then(|| (topic_word(&word, [false; 2]), 1.0)));
        } else if run.len() > 1 {
            let weight = (run.len() / 2) as f32 / (run.len() - 1) as f32;
            topic.extend(run.windows(2).map(|two| (two.iter().collect(), weight)));
        } else {
            // With its ending behind it, a character is a word: 読 in 読んで.
            let has_ending = runs.peek().is_some_and(|next| is_hiragana(next[0]));
            topic.insert(word + if has_ending { "~" } else { "" }, 1.0);
        }
    }
    match topic.is_empty() {
        true => hiragana,
        false => topic,
    }
}

/// Whether a rule reads as German, and as Spanish, whose words change in ways of their own.
pub(super) fn tongues(rule: &str) -> [bool; 2] {
    [LanguageNumber::German, LanguageNumber::Spanish]
        .map(|tongue| directive::reads_as(rule, tongue))
}

/// What a topic has for a word: its stem, or what stands for the value that it is a form of.
pub(super) fn topic_word(word: &str, tongues: [bool; 2]) -> String {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{NUMBERS} {word}");
    }
    let stem = stem(word, tongues);
    VALUES.get(&stem).cloned().unwrap_or(stem)
}

/// A word without its ending, such as that of a verb or a plural.
fn stem(word: &str, [is_german, is_spanish]: [bool; 2]) -> String {
    /// Particles that German separates from a verb: "Fass es nicht an."
    const PARTICLES: [&str; 9] = ["an", "ab", "auf", "aus", "ein", "mit", "vor", "zu", "um"];
    let long = |short: &&str| chars(short) >= 4;
    // *Abrechnung* is no form of *Rechnung*.
    let is_verb = |whole: &&str| chars(whole) >= 5 && !whole.contains("ung");
    let mut particles = PARTICLES.iter().filter(|_| is_german);
    let whole = particles.find_map(|particle| word.strip_prefix(particle).filter(is_verb));
    let word = whole.unwrap_or(word);
    let word = (word.strip_suffix("ing").filter(long)).unwrap_or(word);
    // Six letters are enough to tell most words apart, and most endings come after them. An accent may
    // move with the ending: "pregunta" and "pregúntame".
    let letters = word.chars().take(6);
    let stem: String = match is_german {
        true => letters.collect(),
        false => letters.map(without_accent).collect(),
    };
    let stem = match stem.ends_with("ss") {
        true => &stem,
        false => stem.trim_end_matches('s'),
    };
    if is_spanish {
        return spanish_stem(stem);
    }
    let endings = ["en", "er", "e"];
    let mut short = endings.iter().filter_map(|end| stem.strip_suffix(end));
    let stem = short.find(long).unwrap_or(stem);
    // "Ändern" and "ändere".
    let is_verb = is_german && chars(stem) == 6 && stem.ends_with("rn");
    stem[..stem.len() - usize::from(is_verb)].to_owned()
}

fn without_accent(c: char) -> char {
    match c {
        'á' | 'à' | 'â' => 'a',
        'é' | 'è' | 'ê' => 'e',
        'í' | 'î' => 'i',
        'ó' | 'ô' => 'o',
        'ú' | 'û' => 'u',
        _ => c,
    }
}

/// The stem of a Spanish word, of which the last vowel decides how a consonant is written: "toca" and
/// "toque", "paga" and "pague".
fn spanish_stem(word: &str) -> String {
    let long = |short: &&str| chars(short) >= 2;
    let endings = ["ar", "er", "ir", "a", "e", "o"];
    let mut short = endings.iter().filter_map(|end| word.strip_suffix(end));
    let stem = short.find(long).unwrap_or(word);
    match (stem.strip_suffix("qu"), stem.strip_suffix("gu")) {
        (Some(stem), _) => format!("{stem}c"),
        (_, Some(stem)) => format!("{stem}g"),
        _ => stem.to_owned(),
    }
}
