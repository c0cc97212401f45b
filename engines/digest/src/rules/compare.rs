//! Compares rules: which say the same, and which later one replaces an earlier one.
//!
//! Two rules with the same [`key`] are one. [`About`] says what a rule is about. A later rule about
//! the same replaces an earlier one if one of the two forbids what the other demands, or if the user
//! says that something changes.

use std::collections::BTreeSet;

use super::permission::Ending;
use super::{declared, directive};
use crate::text::chars;

/// What a rule, or a sentence that ends one, is about.
pub(super) struct About {
    topic: BTreeSet<String>,
    names: BTreeSet<String>,
    is_negative: bool,
    changes: bool,
    ending: Option<Ending>,
}

impl About {
    pub(super) fn of(text: &str) -> Self {
        Self {
            topic: topic(text),
            names: names(text),
            is_negative: directive::is_negative(text),
            changes: directive::changes_course(text),
            ending: Ending::of(text),
        }
    }

    /// Whether what is said now contradicts an earlier rule. Two rules about the same thing are
    /// compatible, unless one forbids what the other demands or the user says that something
    /// changes. If they do, the rules need less in common.
    pub(super) fn replaces(&self, earlier: &Self) -> bool {
        let is_opposite = self.is_negative != earlier.is_negative;
        // What holds for one file or language does not contradict what holds for another.
        let have_names = !self.names.is_empty() && !earlier.names.is_empty();
        if is_opposite && have_names && self.names.is_disjoint(&earlier.names) {
            return false;
        }
        let (least, most) = self.in_common(earlier);
        is_opposite && least >= 0.7
            || self.changes && most >= 0.5 && least >= 0.4
            || self.ends(earlier)
    }

    /// Whether what is said now ends an earlier rule.
    fn ends(&self, earlier: &Self) -> bool {
        let (least, most) = self.in_common(earlier);
        match self.ending {
            None => false,
            // Who withdraws a rule names it by a word or two.
            Some(Ending::Withdraws) => most >= 0.5 && least >= 0.25,
            Some(Ending::Permits) => earlier.is_negative && least >= 0.7,
            Some(Ending::Releases) => least >= 0.7,
        }
    }

    /// The shares of the larger and of the smaller topic that both have.
    fn in_common(&self, other: &Self) -> (f32, f32) {
        let shared = self.topic.intersection(&other.topic).count() as f32;
        let (a, b) = (self.topic.len() as f32, other.topic.len() as f32);
        (shared / a.max(b), shared / a.min(b))
    }
}

/// The key by which two rules are the same: their words without the case of plain words, quotes, and
/// punctuation of sentences. What else stands in a word may tell two rules apart: `-f`, `C#`, `< 3`.
pub(super) fn key(rule: &str) -> String {
    let words: Vec<String> = words(rule)
        .map(|word| match word.chars().all(is_letter) {
            true => word.to_lowercase().replace('’', "'"),
            false => word.to_owned(),
        })
        .collect();
    // A rule is said in letters.
    match rule.contains(char::is_alphanumeric) {
        true => words.join(" "),
        false => String::new(),
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '\'' | '’')
}

/// The words of a rule, without quotes and punctuation of sentences around them.
fn words(rule: &str) -> impl Iterator<Item = &str> {
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

/// A rule that names a path, a command, a number or a name is more specific than one that does not.
/// A declared one outlives all others, whatever its age.
pub(super) fn specificity(rule: &str) -> f32 {
    if declared::is_declared(rule) {
        return 2.0;
    }
    match rule.split_whitespace().any(is_name) {
        true => 0.3,
        false => 0.0,
    }
}

/// Whether a word is a path, a command, a number or a name.
fn is_name(word: &str) -> bool {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let has_hump = inner.chars().skip(1).any(char::is_uppercase);
    inner.contains(['/', '_', '.', '`'])
        || word.contains('`')
        || has_hump
        || inner.contains(|c: char| c.is_ascii_digit())
}

/// The names in a rule. A capital letter makes a word a name, except at the beginning.
fn names(rule: &str) -> BTreeSet<String> {
    let is_capital = |at: usize, word: &str| at > 0 && word.starts_with(char::is_uppercase);
    let words = words(rule).enumerate();
    let names = words.filter(|(at, word)| is_name(word) || is_capital(*at, word));
    names.map(|(_, word)| word.to_lowercase()).collect()
}

/// What a rule is about: its words without those that any rule may have. Names and paths are whole.
/// Other words are cut, so that their forms are equal. Chinese and Japanese count by pairs of
/// characters.
fn topic(rule: &str) -> BTreeSet<String> {
    const COMMON: &str = "never|always|must|only|please|the|and|not|don't|dont|use|from|now|you|that|make|sure|any|\
        all|every|are|for|with|may|can|again|instead|should|avoid|prefer|ever|without|this|its|into|when|also|plus|\
        anymore|nie|niemals|immer|nur|nicht|bitte|der|die|das|den|und|verwende|nutze|jetzt|sofort|kein|keine|ein|\
        eine|auf|verwenden|nutzen|statt|jamais|toujours|les|des|une|pas|utilise|utilisez|partir|maintenant|\
        désormais|dans|que|sur|nunca|siempre|los|las|una|usa|uses|ahora|por|favor|sin|\
        a|i|t|s|e|o|y|à|to|in|of|on|is|it|be|do|if|or|an|as|at|by|no|so|up|we|my|me|us|he|zu|im|am|um|ab|es|er|du|\
        la|le|un|de|en|au|ce|se|je|tu|il|et|ou|ne|si|el|lo|al|su|te|ya|it's|you're|hacer|hagas|haz";
    // What a sentence has that ends a rule.
    const ENDING: &str = "allowed|fine|okay|ok|free|feel|changed|mind|actually|forget|ignore|scrap|drop|disregard|lift|\
        cancel|rule|rules|restriction|constraint|instruction|about|earlier|longer|applies|apply|have|need|said|what|off|\
        limits|directly|darfst|kannst|doch|wieder|erlaubt|ordnung|ist|vergiss|ignoriere|regel|gilt|mehr|gesagt|peux|\
        pouvez|droit|finalement|autorisé|oublie|règle|applique|puedes|puede|permitido|olvida|regla|aplica|sí";
    const CUES: &str = "不要|必须|总是|始终|务必|禁止|不能|只能|从现在起|从现在开始|以后|今后|一律|请|\
        使用|用|都|现在|可以|允许|了|忘掉|忘记|忽略|作废|取消|规则|规定|关于|那条|之前|的|直接|してはいけ|\
        しないで|ないで|ください|必ず|絶対に|決して|常に|今後は|これからは|使って|使わ|してもかまいません|していい|\
        してもいい|てもかまいません|です|もう|忘れて|無効|ルール|ではなく|だけ|許可し|ます|を|は|て|に";
    let lower = rule.to_lowercase().replace('’', "'");
    if lower
        .chars()
        .any(|c| directive::is_han(c) || directive::is_kana(c))
    {
        let bare = CUES
            .split('|')
            .fold(lower, |text, cue| text.replace(cue, " "));
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
        let letters: Vec<char> = bare.chars().collect();
        let runs = letters.chunk_by(|one, next| {
            is_part(*one) && is_part(*next) && one.is_ascii() == next.is_ascii()
        });
        let mut pairs = BTreeSet::new();
        for run in runs.filter(|run| run[0].is_alphanumeric() || run.len() > 1) {
            match run[0].is_ascii() {
                true => pairs.extend([run.iter().collect::<String>()]),
                false => {
                    pairs.extend(run.windows(2).map(|two| two.iter().collect::<String>()));
                }
            }
        }
        return pairs;
    }
    let is_common = |word: &str| {
        [COMMON, ENDING]
            .iter()
            .any(|list| list.split('|').any(|one| one == word))
    };
    // French joins short words to the next one: "n'utilise".
    let joined = ["n'", "l'", "d'", "j'", "s'", "qu'"];
    let mut topic = BTreeSet::new();
    for word in words(rule) {
        if is_name(word) {
            topic.insert(word.to_lowercase());
            continue;
        }
        let lower = word.to_lowercase().replace('’', "'");
        let parts = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let parts = parts.map(|part| {
            let mut joined = joined.iter();
            joined
                .find_map(|short| part.strip_prefix(short))
                .unwrap_or(part)
        });
        let parts = parts.filter(|part| !part.is_empty() && !is_common(part));
        topic.extend(parts.map(stem));
    }
    topic
}

/// A word without its ending, such as that of a verb or a plural.
fn stem(word: &str) -> String {
    let long = |short: &&str| chars(short) >= 4;
    let word = (word.strip_suffix("ing").filter(long)).unwrap_or(word);
    // Six letters are enough to tell most words apart, and most endings come after them.
    let stem: String = word.chars().take(6).collect();
    let stem = stem.trim_end_matches('s');
    let endings = ["en", "e"];
    let mut short = endings.iter().filter_map(|end| stem.strip_suffix(end));
    short.find(long).unwrap_or(stem).to_owned()
}
