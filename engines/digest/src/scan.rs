//! Finds facts in text: in one pass over the bytes, driven by a table and without allocating.
//!
//! [`scan`] splits a text into tokens at every byte that cannot be part of a name or a path. Most
//! tokens are plain words and cost one table look-up per byte. Only those with a slash, a dot, an
//! underscore, a digit beside letters, or a capital after a small letter are examined again, by
//! [`word`] and [`token`]. The time is linear in the text, however repetitive it is. Facts are
//! recognised by their form alone, so ordinary words are never facts, and encoded data is rejected
//! by [`looks_encoded`].

use std::ops::Range;

use crate::steps;

/// The kind of a fact, which its form determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A path, or a file name with a known extension.
    Path,
    /// A hexadecimal hash or number of 7 to 64 digits, with at least one letter and one decimal
    /// digit.
    Hash,
    Uuid,
    /// A name in camelCase, PascalCase or snake_case, such as that of a function.
    Name,
    /// The name of a test, which begins with `test_` or ends with `_test`.
    Test,
    Url,
    /// A word of capitals and digits, such as `HAT083`: a booking, a flight or a ticket.
    Code,
}

/// A word that reports an outcome. Such words are not facts, but they locate the line that says how
/// a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Error,
    /// A word of the result line of a test run, such as `passed` or `failures`.
    Outcome,
}

/// A match, by its bytes in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Find {
    Fact(Kind, Range<usize>),
    /// A word that reports an outcome, at the byte at which it begins.
    Signal(Signal, usize),
}

const LOWER: u16 = 1;
const UPPER: u16 = 1 << 1;
const DIGIT: u16 = 1 << 2;
const UNDERSCORE: u16 = 1 << 3;
const DASH: u16 = 1 << 4;
const DOT: u16 = 1 << 5;
const SLASH: u16 = 1 << 6;
const OTHER: u16 = 1 << 7;
/// A capital right after a small letter. The table never contains it, since it depends on two
/// bytes.
const HUMP: u16 = 1 << 8;

const ESCAPE: u8 = 0x1b;

/// A token with more bytes than this is taken for encoded data.
const MAX_TOKEN: usize = 240;
const MAX_NAME: usize = 80;

static CLASS: [u16; 256] = classes();

const fn classes() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' => LOWER,
            b'A'..=b'Z' => UPPER,
            b'0'..=b'9' => DIGIT,
            b'_' => UNDERSCORE,
            b'-' => DASH,
            b'.' => DOT,
            b'/' => SLASH,
            b'~' | b'@' | b'+' => OTHER,
            _ => 0,
        };
        byte += 1;
    }
    table
}

/// Calls `found` for every fact and signal in `text`, in order. Ranges do not overlap.
pub(crate) fn scan(text: &str, mut found: impl FnMut(Find)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let (len, flags) = run(&bytes[start..]);
        if len == 0 {
            at += match bytes[at] {
                b'\\' | ESCAPE => separator_len(&bytes[at..]),
                _ => 1,
            };
            continue;
        }
        at += len;
        steps::add(len);
        if bytes.get(at) == Some(&b':')
            && let Some((kind, end)) = behind_colon(bytes, start, at)
        {
            found(Find::Fact(kind, start..end));
            at = end;
        // Plain words are by far the most frequent, and can only be signals.
        } else if flags & !(LOWER | UPPER) == 0 {
            if let Some(signal) = signal(&bytes[start..at]) {
                found(Find::Signal(signal, start));
            }
        } else if flags & !(LOWER | UPPER | DIGIT | UNDERSCORE | HUMP) == 0 {
            if let Some(kind) = word(&bytes[start..at], flags) {
                found(Find::Fact(kind, start..at));
            }
        } else if flags & (LOWER | UPPER) != 0 && at - start <= MAX_TOKEN {
            token(bytes, start, at, &mut found);
        }
    }
}

/// Returns the length of the token at the front, in bytes, and the classes of its bytes.
fn run(bytes: &[u8]) -> (usize, u16) {
    let mut flags = 0;
    let mut previous = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let class = CLASS[usize::from(*byte)];
        if class == 0 {
            return (at, flags);
        }
        flags |= class | hump(previous, class);
        previous = class;
    }
    (bytes.len(), flags)
}

/// Returns [`HUMP`] if a capital follows a small letter, given the classes of both. It has no
/// branch, because it runs for every byte.
const fn hump(previous: u16, class: u16) -> u16 {
    (previous << 8) & (class << 7) & HUMP
}

/// Returns how many bytes to skip at a byte outside tokens. An escape (`\n`, `\u00e9`, a terminal
/// colour) is skipped as a whole, so that its letter is not read as part of the next word.
fn separator_len(bytes: &[u8]) -> usize {
    match bytes {
        [b'\\', b'n' | b'r' | b't' | b'b' | b'f' | b'"' | b'\\', ..] => 2,
        [b'\\', b'u', a, b, c, d, ..]
            if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) =>
        {
            6
        }
        [ESCAPE, b'[', rest @ ..] => {
            // If a sequence has no end within 16 bytes, it is not a colour or a cursor movement.
            let letter = rest.iter().take(16).position(u8::is_ascii_alphabetic);
            2 + letter.map_or(0, |letter| letter + 1)
        }
        _ => 1,
    }
}

/// Returns the kind and the end of the URL or Windows path whose scheme or drive is `start..colon`,
/// if there is one.
fn behind_colon(bytes: &[u8], start: usize, colon: usize) -> Option<(Kind, usize)> {
    // Anything longer is encoded data. Without a limit, every byte of it could begin another scan
    // to its end.
    let rest = &bytes[colon..bytes.len().min(colon + MAX_TOKEN + 2)];
    let kind = if rest.starts_with(b"://") && bytes[start].is_ascii_alphabetic() {
        Kind::Url
    } else if rest.starts_with(b":\\")
        && colon - start == 1
        && rest.get(2).is_some_and(u8::is_ascii_alphanumeric)
    {
        Kind::Path
    } else {
        return None;
    };
    let ends = |byte: &u8| {
        !byte.is_ascii_graphic()
            || b"\"'<>`)]}|*".contains(byte)
            || (*byte == b'\\' && kind == Kind::Url)
    };
    let mut len = rest.iter().position(ends).unwrap_or(rest.len());
    steps::add(len);
    // Punctuation at the end belongs to the sentence, not to the URL.
    while len > 3 && b".,;:!?".contains(&rest[len - 1]) {
        len -= 1;
    }
    (len > 4 && len <= MAX_TOKEN).then_some((kind, colon + len))
}

/// Returns the outcome that a plain word reports, if any. The first checks reject most words
/// quickly.
fn signal(word: &[u8]) -> Option<Signal> {
    if !(4..=9).contains(&word.len()) || !b"eEfFpPTdcC".contains(&word[0]) {
        return None;
    }
    match word {
        b"error" | b"Error" | b"ERROR" | b"errors" | b"failed" | b"FAILED" | b"Failed"
        | b"FAIL" | b"fatal" | b"panicked" | b"Traceback" | b"denied" | b"Exception"
        | b"cannot" | b"Cannot" => Some(Signal::Error),
        b"passed" | b"PASSED" | b"failures" | b"passing" | b"failing" => Some(Signal::Outcome),
        _ => None,
    }
}

/// Classifies a token that is more than a plain word, after removing punctuation around it. A token
/// that is no fact as a whole may contain names.
fn token(bytes: &[u8], mut start: usize, mut end: usize, found: &mut impl FnMut(Find)) {
    // An option such as `-p/--print` keeps its dash.
    let is_slashed = memchr::memchr(b'/', &bytes[start..end]).is_some();
    while start < end
        && (matches!(bytes[start], b'+' | b'@') || bytes[start] == b'-' && !is_slashed)
    {
        start += 1;
    }
    while start < end && matches!(bytes[end - 1], b'-' | b'+' | b'@' | b'.') {
        end -= 1;
    }
    if bytes[start..end].starts_with(b"//") {
        start += 2;
    }
    let token = &bytes[start..end];
    if token.len() < 3 || looks_encoded(token) {
        return;
    }
    let closes_a_tag = token[0] == b'/' && start > 0 && bytes[start - 1] == b'<';
    if closes_a_tag {
        return;
    }
    if is_slashed {
        if let Some(kind) = slashed(token) {
            found(Find::Fact(kind, start..end));
        }
    } else if is_uuid(token) {
        found(Find::Fact(Kind::Uuid, start..end));
    } else if is_file_name(token) {
        found(Find::Fact(Kind::Path, start..end));
    } else {
        for part in token.split(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_')) {
            let from = start + (part.as_ptr() as usize - token.as_ptr() as usize);
            if let Some(kind) = word(part, run(part).1) {
                found(Find::Fact(kind, from..from + part.len()));
            } else if let Some(signal) = signal(part) {
                found(Find::Signal(signal, from));
            }
        }
    }
}

/// Returns the kind of a token with a slash. Dates, fractions and alternatives such as
/// `import/export` are not facts.
fn slashed(token: &[u8]) -> Option<Kind> {
    let segments = || {
        token
            .split(|byte| *byte == b'/')
            .filter(|segment| !segment.is_empty())
    };
    if !segments().any(|segment| segment.iter().any(u8::is_ascii_alphabetic)) {
        return None;
    }
    let plain = |segment: &[u8]| {
        segment
            .iter()
            .all(|byte| byte.is_ascii_alphabetic() || *byte == b'-')
    };
    // A root, a third segment or a final slash makes it a path, even if all segments are plain
    // words.
    let rooted = matches!(token[0], b'/' | b'~' | b'.');
    if !rooted && segments().count() <= 2 && token.last() != Some(&b'/') && segments().all(plain) {
        return None;
    }
    Some(Kind::Path)
}

/// Returns the kind of a word of letters, digits and underscores. `flags` are the classes of its
/// bytes.
fn word(word: &[u8], flags: u16) -> Option<Kind> {
    if word.len() < 3 || word.len() > MAX_NAME || flags & (LOWER | UPPER) == 0 {
        return None;
    }
    // An underscore counts only if it joins two parts, unlike those in `__init` or `a__b`.
    let joins = |three: &[u8]| three[1] == b'_' && three[0] != b'_' && three[2] != b'_';
    if flags & UNDERSCORE != 0 && word.windows(3).any(joins) {
        return Some(if word.starts_with(b"test_") || word.ends_with(b"_test") {
            Kind::Test
        } else {
            Kind::Name
        });
    }
    if flags & DIGIT != 0
        && (7..=64).contains(&word.len())
        && word.iter().all(u8::is_ascii_hexdigit)
    {
        return Some(Kind::Hash);
    }
    if flags & HUMP != 0 {
        return Some(Kind::Name);
    }
    let is_code = flags == UPPER | DIGIT && (5..=20).contains(&word.len()) && !is_measure(word);
    is_code.then_some(Kind::Code)
}

/// Whether a word of capitals and digits is a size or a time (`617MB`, `06T09`) rather than a code.
fn is_measure(word: &[u8]) -> bool {
    let letters = word.iter().filter(|byte| !byte.is_ascii_digit()).count();
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    letters < 2 || digits + letters == word.len() && digits > 0
}

fn is_uuid(token: &[u8]) -> bool {
    token.len() == 36
        && token.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Objects of common languages whose members look like file names, as in `console.log`.
const NOT_STEMS: [&[u8]; 10] = [
    b"console", b"self", b"this", b"logger", b"math", b"Math", b"np", b"process", b"window", b"e.g",
];

fn is_file_name(token: &[u8]) -> bool {
    let Some(dot) = memchr::memrchr(b'.', token) else {
        return false;
    };
    let (stem, extension) = (&token[..dot], &token[dot + 1..]);
    // In minified code, `n.c` is a member of an object.
    !stem.is_empty()
        && token.len() > "n.c".len()
        && !NOT_STEMS.contains(&stem)
        && stem.iter().any(u8::is_ascii_alphabetic)
        && EXTENSIONS.contains(&extension)
}

/// The extensions that make a word without a slash a file name.
static EXTENSIONS: [&[u8]; 84] = [
    b"py", b"pyi", b"rs", b"js", b"mjs", b"cjs", b"ts", b"tsx", b"jsx", b"vue", b"svelte", b"go",
    b"c", b"h", b"cc", b"cpp", b"hpp", b"cs", b"java", b"kt", b"swift", b"rb", b"php", b"pl",
    b"lua", b"r", b"scala", b"ex", b"exs", b"erl", b"hs", b"ml", b"zig", b"dart", b"sh", b"bash",
    b"zsh", b"ps1", b"bat", b"sql", b"html", b"htm", b"css", b"scss", b"md", b"mdx", b"rst",
    b"txt", b"json", b"jsonl", b"yaml", b"yml", b"toml", b"ini", b"cfg", b"conf", b"env", b"lock",
    b"xml", b"csv", b"tsv", b"log", b"db", b"sqlite", b"proto", b"graphql", b"tf", b"ipynb",
    b"pdf", b"png", b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"zip", b"gz", b"tar", b"whl", b"so",
    b"dll", b"exe", b"diff", b"patch",
];

/// Whether a token looks like encoded bytes: long, and with small letters, capitals and digits
/// mixed at random.
pub(crate) fn looks_encoded(token: &[u8]) -> bool {
    if token.len() < 40 {
        return false;
    }
    let class = |byte: &u8| match CLASS[usize::from(*byte)] {
        class @ (LOWER | UPPER | DIGIT) => class,
        _ => OTHER,
    };
    let classes = token.iter().fold(0, |classes, byte| classes | class(byte));
    if classes & (LOWER | UPPER | DIGIT) != LOWER | UPPER | DIGIT {
        return false;
    }
    let changes = token
        .windows(2)
        .filter(|pair| class(&pair[0]) != class(&pair[1]))
        .count();
    let separators = token.iter().filter(|byte| class(byte) == OTHER).count();
    // Encoded bytes have few separators. Each separator accounts for two changes of class, and the
    // rest measures disorder.
    separators * 10 <= token.len() && changes.saturating_sub(2 * separators) * 4 > token.len()
}

#[cfg(test)]
mod tests;
