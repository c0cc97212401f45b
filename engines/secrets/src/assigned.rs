//! Finds keys that look like any random text, by the name that they are assigned to.
//!
//! Many providers have keys without a recognisable beginning, for instance 32 hexadecimal digits.
//! Such a value is a key if the name in front of it contains the name of the provider, as in
//! `ADAFRUIT_IO_KEY=…`. The table `providers.txt` lists for each provider the characters and the
//! length of its keys. A provider whose name is also an ordinary word needs a further word such as
//! "key" in the name, and so does a value that could be a hash. [`scan`] reads text, and
//! [`is_key_of`] judges a single pair.

use std::ops::Range;
use std::sync::LazyLock;

use hashbrown::HashMap;

use crate::SECRET_MASK;
use crate::charset::{TOKEN, is_in};
use crate::keys;
use crate::steps;
use crate::value::{is_placeholder, is_uuid};

/// How many bytes before its value a name may begin, how many bytes may be between them, and the
/// shortest and longest key.
const NAME: usize = 48;
const GAP: usize = 8;
const LEAST: usize = 12;
const MOST: usize = 1_024;
/// The largest number of words in the name of a provider.
const WORDS: usize = 3;

/// The form of a provider's keys. If a provider has several kinds of keys, it has several forms.
struct KeyForm {
    /// The characters of the key, or `None` if it is a UUID.
    set: Option<u16>,
    least: usize,
    most: usize,
    /// Whether the provider's name is also an ordinary word, which then proves little.
    is_word: bool,
}

static PROVIDERS: LazyLock<HashMap<&'static str, Vec<KeyForm>>> = LazyLock::new(|| {
    let mut providers: HashMap<_, Vec<_>> = HashMap::new();
    for line in keys::rows(include_str!("providers.txt")) {
        let mut columns = line.split(' ');
        let set = columns.next().and_then(|letter| letter.chars().next());
        let Some((least, most)) = columns.next().and_then(keys::lengths) else {
            continue;
        };
        let set = set.filter(|letter| *letter != 'u').and_then(keys::set);
        for name in columns {
            let is_word = name.ends_with('?');
            let shape = KeyForm {
                set,
                least,
                most,
                is_word,
            };
            providers
                .entry(name.trim_end_matches('?'))
                .or_default()
                .push(shape);
        }
    }
    providers
});

/// Appends the keys in a text that follow the name of a provider and an equals sign or a colon.
pub(crate) fn scan(text: &str, secrets: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    // The last run of characters of a key, and its end without the punctuation of a sentence.
    // Several operators may stand in one run, and it is read only once.
    let (mut last, mut end) = (0..0, 0);
    for operator in memchr::memchr2_iter(b'=', b':', bytes) {
        let ahead = &bytes[operator + 1..bytes.len().min(operator + 1 + GAP)];
        let gap = ahead
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'"' | b'\'' | b'`' | b'=' | b'>'))
            .count();
        let start = operator + 1 + gap;
        let is_part = |byte: &u8| is_in(*byte, TOKEN);
        let begins = bytes
            .get(start..start + LEAST)
            .is_some_and(|value| value.iter().all(is_part));
        if !begins {
            continue;
        }
        if !last.contains(&start) {
            let len = bytes[start..]
                .iter()
                .take_while(|byte| is_part(byte))
                .count();
            steps::add(len);
            last = start..start + len;
            end = start + text[last.clone()].trim_end_matches(['.', ':', '!']).len();
        }
        let value = &text[start..end.max(start)];
        let from = text.ceil_char_boundary(operator.saturating_sub(NAME));
        steps::add(NAME);
        if value.len() <= MOST
            && value != SECRET_MASK
            && from <= operator
            && is_key_of(&text[from..operator], value)
        {
            secrets.push(start..start + value.len());
        }
    }
}

/// Whether a value is a key of a provider whose name stands at the end of `name`, as in `export
/// ADAFRUIT_IO_KEY`.
pub(crate) fn is_key_of(name: &str, value: &str) -> bool {
    let bytes = value.as_bytes();
    let has = |test: fn(&u8) -> bool| bytes.iter().any(test);
    if !(LEAST..=MOST).contains(&value.len())
        || !has(u8::is_ascii_digit)
        || !has(u8::is_ascii_alphabetic)
        || !bytes.iter().all(|byte| is_in(*byte, TOKEN))
        || is_placeholder(value)
    {
        return false;
    }
    // If a value is hexadecimal, it may as well be a checksum.
    let is_hash = bytes.iter().all(u8::is_ascii_hexdigit);
    let fits = |shape: &KeyForm| {
        (shape.least..=shape.most).contains(&value.len())
            && match shape.set {
                Some(set) => bytes.iter().all(|byte| is_in(*byte, set)),
                None => is_uuid(bytes),
            }
    };
    let words = words(name);
    let says_key = words.iter().any(|word| is_key_word(word));
    let is_of_another_thing = words.iter().any(|word| is_of_another_thing(word));
    (0..words.len()).any(|from| {
        (1..=WORDS.min(words.len() - from)).any(|count| {
            let shapes = PROVIDERS.get(words[from..from + count].concat().as_str());
            shapes.into_iter().flatten().any(|shape| {
                // If the evidence is weak, the name has to say that it is about a key.
                let is_plain = shape.is_word || shape.set.is_none() || is_hash || value.len() < 20;
                fits(shape) && (says_key || !(is_plain || is_of_another_thing))
            })
        })
    })
}

fn is_key_word(word: &str) -> bool {
    const WORDS: [&str; 21] = [
        "key", "keys", "token", "tokens", "secret", "secrets", "api", "apikey", "auth", "access",
        "password", "pass", "credential", "credentials", "client", "pat", "license", "sid", "cred",
        "creds", "pwd",
    ];
    WORDS.contains(&word)
}

/// Whether a word says that the value is something else that looks like a key, such as a hash.
fn is_of_another_thing(word: &str) -> bool {
    const WORDS: [&str; 19] = [
        "hash", "commit", "sha", "sha1", "sha256", "digest", "checksum", "revision", "rev", "ref",
        "etag", "md5", "version", "url", "path", "image", "id", "uuid", "integrity",
    ];
    WORDS.contains(&word)
}

/// Returns the words of the name at the end of a text, in small letters: `adafruit`, `io` and `key`
/// for `ADAFRUIT_IO_KEY` or `adafruitIoKey`.
fn words(name: &str) -> Vec<String> {
    let name = name.trim_end_matches([' ', '"', '\'', '`', ']', '\t', ':', '?', '|']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
    let start = name.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name[name.ceil_char_boundary(start)..].chars() {
        let begins = c.is_ascii_uppercase() && before.is_ascii_lowercase();
        if (begins || !is_in_word(c)) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if is_in_word(c)
            && let Some(word) = words.last_mut()
        {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric()
}
