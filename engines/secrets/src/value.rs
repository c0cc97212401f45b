//! Distinguishes a secret value from code, prose, placeholders and ordinary names.
//!
//! The name in front of a value decides how strict its check is. After `password` almost anything
//! is one ([`is_password`]), after `api_key` it has to look random ([`is_key`]), and after a name
//! that says little it has to be long and very random ([`is_random`]). In a sentence a word must
//! look like a password by itself ([`is_spoken`]). All checks are about the form of the value: how
//! many kinds of characters it has, how often they change, and whether it looks like a path, a
//! variable or a template.

use crate::charset::{ALNUM, TOKEN, WORD, is_in};
use crate::rules::Value;

/// Only this many bytes of a long value are examined, so that a long text after a name does not
/// take long.
const LOOKED_AT: usize = 192;

fn beginning(value: &str) -> &str {
    &value[..value.floor_char_boundary(LOOKED_AT)]
}

/// Whether a text is a secret of this kind. In quotes, a value may have more signs, since it is not
/// code.
pub(crate) fn is_secret(text: &str, value: Value, quoted: bool) -> bool {
    match value {
        Value::Password => is_password(text, quoted),
        Value::Random => is_random(text),
        Value::Key | Value::Api | Value::Short if is_key(text) => true,
        Value::Key | Value::Api | Value::Short if quoted && is_random_with_signs(text) => true,
        Value::Key => false,
        Value::Api => is_uuid(text.as_bytes()),
        Value::Short => is_short_key(text) || is_user_info(text) || is_uuid(text.as_bytes()),
        Value::Jwk => text.len() >= 22 && is_key(text) && !text.contains(['.', '/', '%']),
        Value::Header | Value::Cookie => false,
    }
}

/// Whether a string within the object of a secret's name is the secret. If `holds` is false, the
/// string's own name does not say that it holds the value, so it has to look like a secret by
/// itself. Words, hashes and UUIDs then stay.
pub(crate) fn is_inner_secret(text: &str, value: Value, holds: bool) -> bool {
    is_secret(text, value, true)
        && (holds
            || (looks_secret(text) && kinds(beginning(text)) >= 3 && !is_method(beginning(text))))
}

/// Whether the characters after a known beginning are those of a key, rather than of a placeholder
/// or a name.
pub(crate) fn is_plausible(body: &str) -> bool {
    let bytes = &body.as_bytes()[..body.len().min(256)];
    let Some(first) = bytes.iter().find(|byte| is_in(**byte, ALNUM)) else {
        return false;
    };
    let varied = bytes
        .iter()
        .any(|b| is_in(*b, ALNUM) && !b.eq_ignore_ascii_case(first));
    let has = |test: fn(&u8) -> bool| bytes.iter().any(test);
    let digit = has(u8::is_ascii_digit);
    let (lower, upper) = (has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase));
    varied && (digit || upper) && !(bytes.len() < 12 && !digit && lower)
}

/// Whether a value only stands for one: a variable, a template, a masked value or a shortened one.
pub(crate) fn is_placeholder(value: &str) -> bool {
    const WORDS: [&str; 8] = [
        "your_", "your-", "yourpass", "yoursecret", "example_", "changeme", "redacted",
        "placeholder",
    ];
    const OPENINGS: [&str; 6] = ["<", "{", "[", "(", "${", "$("];
    let value = beginning(value);
    let lower = value.to_ascii_lowercase();
    let is_variable = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    OPENINGS.iter().any(|opening| value.starts_with(opening))
        || value
            .strip_prefix(['$', '%'])
            .is_some_and(|name| is_variable(name.trim_end_matches('%')))
        || value.starts_with("%(")
        || value.contains("...")
        || value.contains('…')
        || WORDS.iter().any(|word| lower.contains(word))
        || value
            .bytes()
            .all(|byte| matches!(byte, b'x' | b'X' | b'.' | b'*' | b'-' | b'_' | b'#' | b'?'))
}

/// Whether a value without quotes is code, such as the name of a variable, a number or a call.
fn is_code(value: &str) -> bool {
    let is_name = value
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'.'))
        && value.contains(['_', '.']);
    let lower = value.to_ascii_lowercase();
    let number = lower.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = number.len() < lower.len()
        && (lower.strip_prefix("0x")).map_or(
            number.trim_end_matches(char::is_numeric) == "u",
            |digits| {
                digits
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || byte == b'_')
            },
        );
    is_name
        || is_number
        || value.starts_with(['*', '&', '@'])
        || value
            .strip_prefix('!')
            .is_some_and(|tag| tag.bytes().all(|byte| byte.is_ascii_alphabetic()))
        || value.contains(['(', '[', '{'])
        || value.contains("::")
        || ["os.", "process.", "env.", "env:"]
            .iter()
            .any(|start| lower.starts_with(start))
}

/// Whether the value after the name of a password is a password, rather than code, prose or a
/// placeholder. With quotes around it, fewer things can be code.
pub(crate) fn is_password(value: &str, quoted: bool) -> bool {
    const DECLARED: [&str; 33] = [
        "await", "new", "options", "str", "string", "none", "null", "nil", "true", "false",
        "password", "passwd", "option", "optional", "bytes", "bool", "boolean", "int", "integer",
        "secret", "secretstr", "text", "varchar", "any", "undefined", "required", "optional",
        "hidden", "prompt", "default", "empty", "unknown", "disabled",
    ];
    const PROSE: [&str; 16] = [
        "the", "your", "a", "is", "are", "must", "enter", "please", "of", "for", "to", "be",
        "password", "with", "and", "or",
    ];
    let full = beginning(value)
        .trim_end_matches([')', '?', '.', '!', ':'])
        .trim();
    if full.len() < 4 || is_placeholder(full) || is_path(full) {
        return false;
    }
    let lower = full.to_ascii_lowercase();
    // If the value is a type or a constant, the name is only declared.
    if DECLARED.contains(&lower.as_str()) {
        return false;
    }
    let has_digit = full.bytes().any(|byte| byte.is_ascii_digit());
    if quoted {
        // Such as `"password": "The user's password"`, which is a description.
        return !(full.contains(' ') && lower.split(' ').any(|word| PROSE.contains(&word)));
    }
    !is_code(full) && (has_digit || !(lower.contains("password") || lower.contains("passwd")))
}

/// Returns how many kinds of characters a value has: small letters, capitals, digits and signs.
pub(crate) fn kinds(value: &str) -> usize {
    let has = |test: fn(&u8) -> bool| usize::from(value.as_bytes().iter().any(test));
    has(u8::is_ascii_lowercase)
        + has(u8::is_ascii_uppercase)
        + has(u8::is_ascii_digit)
        + has(|byte| b"!@#$%^&*+=~".contains(byte))
}

/// Whether a short value looks like a password: letters with digits, or with a sign and in both
/// cases.
pub(crate) fn is_strong(value: &str) -> bool {
    let value = beginning(value).trim_end_matches(['.', ',', '!', '?', ')', ';']);
    value.len() >= 6
        && value.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !value.contains([' ', '-', '.', '/', '_', ':', '(', '"'])
        && !value.starts_with(['&', '*'])
        && (kinds(value) >= 3
            || (kinds(value) == 2 && value.bytes().any(|byte| byte.is_ascii_digit())))
}

const METHODS: [&str; 12] = [
    "base64", "base32", "sha256", "sha512", "sha224", "sha384", "sha1", "md5", "argon2",
    "argon2id", "pbkdf2", "oauth2",
];

/// Whether a word begins with the name of an encoding or of a hash function. Such names contain
/// digits like a password.
pub(crate) fn is_method(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    METHODS.iter().any(|method| word.starts_with(method))
}

/// Whether a word of a sentence looks like a password: strong, or of three kinds of characters with
/// a dash or a dot in it.
pub(crate) fn is_spoken(value: &str) -> bool {
    let value = beginning(value);
    !METHODS.contains(&value.to_ascii_lowercase().as_str())
        && (is_strong(value)
            || (value.len() >= 8
                && kinds(value) >= 3
                && value.bytes().any(|byte| byte.is_ascii_digit())
                && !value.contains([' ', '/', ':', '(', '[', '{'])))
}

/// Whether a word looks like a password or a key, without any name in front of it.
pub(crate) fn looks_secret(value: &str) -> bool {
    is_spoken(value) || is_key(value)
}

/// Whether a value after the name of a secret is one, even if it is short.
pub(crate) fn is_short_key(value: &str) -> bool {
    value.len() >= 8 && is_strong(value) && !is_placeholder(value)
}

/// Whether a value looks random enough for a name that says little. It needs letters of both cases
/// and digits in a good mix, and must not be encoded text.
pub(crate) fn is_random(value: &str) -> bool {
    value.len() >= 30
        && is_key(value)
        && kinds(value) == 3
        && value.bytes().all(|byte| is_in(byte, WORD))
        && is_mixed(beginning(value).as_bytes())
}

/// Whether a value in quotes is random text with signs, like the secret keys of web frameworks.
/// Regular expressions and code have signs too, so typical parts of those are excluded.
pub(crate) fn is_random_with_signs(value: &str) -> bool {
    const CODE: [&str; 8] = ["a-z", "A-Z", "0-9", "${", "{{", "://", "()", "=>"];
    let value = beginning(value);
    let bytes = value.as_bytes();
    let count = |test: fn(&u8) -> bool| bytes.iter().filter(|byte| test(byte)).count();
    let signs = b"!@#$%^&*()=+[]{}|;,<>?~".iter();
    value.len() >= 24
        && bytes.iter().all(u8::is_ascii_graphic)
        && count(u8::is_ascii_digit) >= 2
        && count(u8::is_ascii_alphabetic) >= 6
        && signs.filter(|sign| bytes.contains(sign)).count() >= 4
        && !is_placeholder(value)
        && !CODE.iter().any(|code| value.contains(code))
}

/// Whether a value looks random: long, letters with digits, no path, no UUID, and no name made of
/// words.
pub(crate) fn is_key(value: &str) -> bool {
    let whole = value.len();
    let value = beginning(value);
    let bytes = value.as_bytes();
    if whole < 16
        // If a value is a UUID, it is usually an id. Only some names make it a secret, see
        // `is_secret`.
        || is_uuid(bytes)
        || is_placeholder(value)
        || is_path(value)
        || !bytes
            .iter()
            .all(|byte| is_in(*byte, TOKEN) || *byte == b'|')
    {
        return false;
    }
    let count = |test: fn(&u8) -> bool| bytes.iter().filter(|byte| test(byte)).count();
    let (digits, upper) = (count(u8::is_ascii_digit), count(u8::is_ascii_uppercase));
    let letters = upper + count(u8::is_ascii_lowercase);
    if digits >= 2 && letters >= 2 {
        return is_mixed(bytes) || has_long_piece(value);
    }
    // If there are letters alone, about as many must be capitals as small letters, which no name
    // has.
    let share = upper as f64 / letters.max(1) as f64;
    letters >= 20 && (0.3..=0.7).contains(&share) && is_mixed(bytes)
}

pub(crate) fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => is_in(*byte, ALNUM),
        })
}

/// Returns how often two characters of different kinds (digit, small letter, capital) stand side by
/// side.
pub(crate) fn changes(bytes: &[u8]) -> usize {
    let kind = |byte: &u8| match byte {
        b'0'..=b'9' => 1,
        b'a'..=b'z' => 2,
        b'A'..=b'Z' => 3,
        _ => 0,
    };
    bytes
        .windows(2)
        .filter(|pair| {
            let (first, second) = (kind(&pair[0]), kind(&pair[1]));
            first != 0 && second != 0 && first != second
        })
        .count()
}

/// Whether the kinds of characters change as often as in a random text, at least once in four
/// characters.
pub(crate) fn is_mixed(bytes: &[u8]) -> bool {
    changes(bytes) * 4 >= bytes.len()
}

/// Whether 16 letters and digits stand in one piece, with at least two of each. Names of words have
/// shorter pieces.
fn has_long_piece(value: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '=');
    value.split(|c| !is_part(c)).any(|piece| {
        let digits = piece.bytes().filter(u8::is_ascii_digit).count();
        let letters = piece.bytes().filter(u8::is_ascii_alphabetic).count();
        piece.len() >= 16 && digits >= 2 && letters >= 2
    })
}

fn is_path(value: &str) -> bool {
    value.starts_with("./")
        || value.starts_with("../")
        || value.starts_with("~/")
        // A key in Base64 can begin with a slash too, but changes its kind of character more often
        // than a path.
        || (value.starts_with('/') && value[1..].contains('/') && !is_mixed(value.as_bytes()))
        || value.contains("://")
}

/// Whether a value is a user and a password that are joined by a colon and encoded in Base64. The
/// decoded text has to be printable ASCII.
pub(crate) fn is_user_info(value: &str) -> bool {
    let value = beginning(value).trim_end_matches('=');
    let mut bits = 0_u32;
    let mut count = 0;
    let mut has_colon = false;
    for byte in value.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return false,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            let decoded = (bits >> count) as u8;
            if !(b' '..0x7f).contains(&decoded) {
                return false;
            }
            has_colon |= decoded == b':';
        }
    }
    value.len() >= 8 && has_colon
}
