//! How much a sentence looks like a rule, learned from examples.
//!
//! A model of logistic regression over hashed features (Weinberger and others, "Feature Hashing for
//! Large Scale Multitask Learning", 2009). The features are the words of a sentence, pairs and triples of
//! words, the beginnings and ends of words, and how the sentence begins and ends. In Chinese,
//! Japanese and Korean, characters take the place of words. The weights come from the sentences in
//! `engines/digest/sentences`, and `training` says how to make them anew.

use super::directive;

#[cfg(test)]
mod training;

/// The number of weights. Features with the same hash share one.
const BUCKETS: usize = 1 << 18;
/// The weight of each feature, a signed number of [`UNIT`]s.
static WEIGHTS: &[u8; BUCKETS] = include_bytes!("../../sentences/weights.bin");
const UNIT: f32 = 1.0 / 32.0;

/// A path, a name with a point or an underscore, or another piece of code.
const CODE: &str = "\u{1}";
const NUMBER: &str = "0";
/// What stands behind the last word.
const END: &str = "\u{2}";

/// The logarithm of the odds that a sentence states a rule: 0 if it is as likely as not.
/// The sentence is in lower case.
pub(super) fn score(sentence: &str) -> f32 {
    let weight = |feature: u32| f32::from(WEIGHTS[feature as usize].cast_signed()) * UNIT;
    sum(&features(sentence), weight)
}

/// The sum of the weights of features. Long sentences have more of them, and are no surer for it.
fn sum(features: &[u32], weight: impl Fn(u32) -> f32) -> f32 {
    let sum: f32 = features.iter().map(|feature| weight(*feature)).sum();
    sum * share(features)
}

/// What each feature of a sentence counts.
fn share(features: &[u32]) -> f32 {
    6.0 / (features.len() as f32).sqrt()
}

/// The features that a sentence in lower case has, each once, as places in [`WEIGHTS`].
fn features(sentence: &str) -> Vec<u32> {
    let bare = sentence
        .trim()
        .trim_end_matches(['.', '。', '!', '！', ' ']);
    let words = words(bare);
    let at = |index: usize| words.get(index).copied().unwrap_or(END);
    // The first one is there always.
    let mut found = vec![hash(b'1', &[])];
    for (index, word) in words.iter().enumerate() {
        let (next, third) = (at(index + 1), at(index + 2));
        found.push(hash(b'w', &[word]));
        found.push(hash(b'2', &[word, next]));
        match is_cjk_word(word) {
            true => found.push(hash(b'3', &[word, next, third])),
            false => found.push(hash(b'_', &[word, third])),
        }
        if word.chars().count() > 4 {
            let (begins, ends) = (ends_at(word, 4), ends_at(word, word.chars().count() - 3));
            found.push(hash(b'<', &[&word[..begins]]));
            found.push(hash(b'>', &[&word[ends..]]));
        }
    }
    for (place, word) in words.iter().take(4).enumerate() {
        found.push(hash(b'A' + place as u8, &[word]));
    }
    found.push(hash(b'^', &[at(0), at(1)]));
    for word in words.iter().rev().take(3) {
        found.push(hash(b'z', &[word]));
    }
    for last in 2..=3 {
        if let Some(from) = words.len().checked_sub(last) {
            found.push(hash(b'$', &words[from..]));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// FNV-1a over the kind of a feature and its words.
fn hash(kind: u8, words: &[&str]) -> u32 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([b' ']));
    let hash = [kind]
        .into_iter()
        .chain(bytes)
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
    (hash ^ hash >> 16) % BUCKETS as u32
}

/// Where the first `chars` characters of a word end, in bytes.
fn ends_at(word: &str, chars: usize) -> usize {
    word.char_indices()
        .nth(chars)
        .map_or(word.len(), |(at, _)| at)
}

/// The words of a text, its marks, and for pieces of code and for numbers a word that stands for all
/// of them.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for chunk in text.split_whitespace() {
        if is_code(chunk) {
            words.push(CODE);
            continue;
        }
        let mut rest = chunk;
        while let Some(first) = rest.chars().next() {
            let is_inner = |c: char| c.is_alphabetic() && !is_cjk(c) || c == '\'' || c == '-';
            let length = match first {
                _ if is_cjk(first) => first.len_utf8(),
                _ if first.is_alphabetic() => rest.find(|c| !is_inner(c)).unwrap_or(rest.len()),
                _ if first.is_numeric() => {
                    rest.find(|c: char| !c.is_numeric()).unwrap_or(rest.len())
                }
                _ => first.len_utf8(),
            };
            let (word, behind) = rest.split_at(length);
            words.push(match first.is_numeric() && !is_cjk(first) {
                true => NUMBER,
                false => word,
            });
            rest = behind;
        }
    }
    words
}

fn is_code(chunk: &str) -> bool {
    let bare = chunk.trim_matches(|c: char| "\"'`(),;:!?.…“”„«»".contains(c));
    let has_point = || {
        let mut parts = bare.split('.');
        bare.contains('.') && parts.all(|part| part.starts_with(char::is_alphanumeric))
    };
    let has_both =
        || bare.contains(|c: char| c.is_ascii_digit()) && bare.contains(char::is_alphabetic);
    !bare.contains(is_cjk)
        && (has_both()
            || bare.contains(['/', '_', '\\', '=', '<', '{', '#', '@', '$', '*'])
            || has_point())
}

fn is_cjk(c: char) -> bool {
    directive::is_cjk(c) || matches!(c, '々' | 'ー' | '\u{ac00}'..='\u{d7af}')
}

fn is_cjk_word(word: &str) -> bool {
    word.starts_with(is_cjk)
}
