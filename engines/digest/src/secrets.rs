//! Masks secrets: keys, tokens, passwords.
//!
//! Conservative on purpose: text masked by mistake is lost, so git hashes, UUIDs and ordinary names stay.
//! One pass finds candidates; a check at each decides.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use crate::words::Words;

/// What [`mask_secrets`] puts in place of a secret.
pub const SECRET_MASK: &str = "[secret masked]";

/// What makes a position a candidate.
#[derive(Clone, Copy)]
enum Cue {
    /// A key with a provider's fixed prefix, followed by at least this many characters.
    Prefix(usize),
    /// `eyJ`: a JSON web token.
    Jwt,
    /// A PEM block.
    Pem,
    /// `Bearer` or `Basic`.
    Scheme,
    /// A name like `password`: every value is secret.
    Password,
    /// A name like `api_key`: a value is secret if it looks random.
    KeyName,
    /// `://`, possibly followed by a user and a password.
    Authority,
}

static CUES: &[(&str, Cue)] = &[
    ("sk-", Cue::Prefix(16)),
    ("sk_live_", Cue::Prefix(10)),
    ("sk_test_", Cue::Prefix(10)),
    ("rk_live_", Cue::Prefix(10)),
    ("ghp_", Cue::Prefix(20)),
    ("gho_", Cue::Prefix(20)),
    ("ghu_", Cue::Prefix(20)),
    ("ghs_", Cue::Prefix(20)),
    ("ghr_", Cue::Prefix(20)),
    ("github_pat_", Cue::Prefix(20)),
    ("glpat-", Cue::Prefix(16)),
    ("xoxb-", Cue::Prefix(10)),
    ("xoxp-", Cue::Prefix(10)),
    ("xoxa-", Cue::Prefix(10)),
    ("xoxs-", Cue::Prefix(10)),
    ("gsk_", Cue::Prefix(30)),
    ("xai-", Cue::Prefix(30)),
    ("AKIA", Cue::Prefix(16)),
    ("ASIA", Cue::Prefix(16)),
    ("AIza", Cue::Prefix(30)),
    ("hf_", Cue::Prefix(30)),
    ("npm_", Cue::Prefix(30)),
    ("eyJ", Cue::Jwt),
    ("-----BEGIN ", Cue::Pem),
    ("bearer ", Cue::Scheme),
    ("basic ", Cue::Scheme),
    ("password", Cue::Password),
    ("passwd", Cue::Password),
    ("pwd", Cue::Password),
    ("passphrase", Cue::Password),
    ("secret", Cue::KeyName),
    ("token", Cue::KeyName),
    ("api_key", Cue::KeyName),
    ("api-key", Cue::KeyName),
    ("apikey", Cue::KeyName),
    ("access_key", Cue::KeyName),
    ("accesskey", Cue::KeyName),
    ("private_key", Cue::KeyName),
    ("密码", Cue::Password),
    ("://", Cue::Authority),
];

static CUE_WORDS: LazyLock<Words> =
    LazyLock::new(|| Words::new(CUES.iter().map(|(text, _)| *text)));

/// `text` with every secret replaced by `[secret masked]`: provider keys (`sk-…`, `ghp_…`, `AKIA…`), JSON
/// web tokens, bearer tokens, the values of passwords and keys, private key blocks and the passwords of
/// connection strings. Borrowed if there is none. Masking twice changes nothing.
///
/// ```
/// use contexture_digest::mask_secrets;
///
/// assert_eq!(mask_secrets("password=hunter2!"), "password=[secret masked]");
/// assert_eq!(mask_secrets("commit 3f2a9c1d"), "commit 3f2a9c1d");
/// ```
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    let mut masked = String::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some((which, place)) = CUE_WORDS.find(text, from) {
        let (cue_text, cue) = CUES[which];
        from = place.end;
        if let Some(secret) = secret_at(text, place, cue_text, cue) {
            masked.push_str(&text[copied..secret.start]);
            masked.push_str(SECRET_MASK);
            copied = secret.end;
            from = from.max(secret.end);
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(&text[copied..]);
    Cow::Owned(masked)
}

/// The secret indicated by the cue at `at`, if there is one.
fn secret_at(text: &str, at: Range<usize>, cue_text: &str, cue: Cue) -> Option<Range<usize>> {
    let before = text[..at.start].bytes().next_back();
    let inside_a_word =
        before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    let rest = &text[at.end..];
    match cue {
        Cue::Prefix(least) => {
            let len = word_len(rest);
            // The search ignores case; these prefixes are case-sensitive.
            let exact = &text[at.clone()] == cue_text;
            let random = rest[..len].bytes().any(|byte| byte.is_ascii_digit());
            (exact && !inside_a_word && len >= least && random).then_some(at.start..at.end + len)
        }
        Cue::Jwt => {
            let len = rest
                .bytes()
                .take_while(|byte| is_word(*byte) || *byte == b'.')
                .count();
            let parts = rest[..len]
                .split('.')
                .filter(|part| part.len() >= 4)
                .count();
            let exact = &text[at.clone()] == cue_text;
            (exact && !inside_a_word && len >= 20 && parts >= 2).then_some(at.start..at.end + len)
        }
        Cue::Pem => {
            let title = rest.split('\n').next()?;
            let title_end = title.find("PRIVATE KEY")?;
            let end = rest[title_end..]
                .find("-----END ")
                .map_or(rest.len(), |end| title_end + end);
            let after = rest[end..].strip_prefix("-----END ").map_or(0, |tail| {
                let line = tail.find("-----").map_or(tail.len(), |dashes| dashes + 5);
                "-----END ".len() + line
            });
            Some(at.start..at.end + end + after)
        }
        Cue::Scheme => {
            let len = rest
                .bytes()
                .take_while(|byte| is_word(*byte) || b".~+/=".contains(byte))
                .count();
            let random = rest[..len].bytes().any(|byte| byte.is_ascii_digit());
            (!inside_a_word && len >= 16 && random).then_some(at.end..at.end + len)
        }
        Cue::Password | Cue::KeyName => {
            let value = value_behind(text, at.end)?;
            let secret = match cue {
                Cue::Password => is_password(&text[value.clone()]),
                _ => is_random(&text[value.clone()]),
            };
            secret.then_some(value)
        }
        Cue::Authority => {
            let end = rest
                .bytes()
                .position(|byte| byte.is_ascii_whitespace() || b"/\"'`<>".contains(&byte))
                .unwrap_or(rest.len());
            let user_info = rest[..end].rfind('@')?;
            let colon = rest[..user_info].find(':')?;
            let password = &rest[colon + 1..user_info];
            (!password.is_empty() && password != SECRET_MASK && !is_placeholder(password))
                .then_some(at.end + colon + 1..at.end + user_info)
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn word_len(text: &str) -> usize {
    text.bytes().take_while(|byte| is_word(*byte)).count()
}

/// The value after a name that ends near `from`: `…_suffix"? = "value"`, or with a colon.
fn value_behind(text: &str, from: usize) -> Option<Range<usize>> {
    let mut at = from + word_len(&text[from..]);
    let skip = |at: usize, set: &[char]| text.len() - text[at..].trim_start_matches(set).len();
    at = skip(at, &['"', '\'', '\\', ' ']);
    let operator = text[at..]
        .chars()
        .next()
        .filter(|c| matches!(c, '=' | ':' | '：'))?;
    at = skip(at, &['=', ':', '：', '>', ' ']);
    let start = skip(at, &['\\', '"', '\'']);
    let quoted = start > at;
    let len = text[start..]
        .find(|c: char| {
            c.is_whitespace()
                || matches!(c, '"' | '\'' | '`' | ',' | ';' | '&' | '\\' | '<' | '|')
                || c == '，'
                || c == '。'
        })
        .unwrap_or(text.len() - start);
    let value = &text[start..start + len];
    // `password: the user must …` is prose.
    let prose = operator != '=' && !quoted && value.bytes().all(|byte| byte.is_ascii_lowercase());
    (len > 0 && !prose).then_some(start..start + len)
}

/// Whether the value after a password name is a password, rather than code or a placeholder.
fn is_password(value: &str) -> bool {
    let declared = [
        "str", "string", "String", "None", "null", "true", "false", "True", "False", "password",
    ];
    value.len() >= 4
        && !is_placeholder(value)
        && !declared.contains(&value.trim_end_matches([')', '?']))
}

fn is_placeholder(value: &str) -> bool {
    value.starts_with(['$', '<', '{', '[', '(', '%', '*', '&'])
        || value.contains(['(', '['])
        || value.starts_with("os.")
        || value.starts_with("process.")
        || value
            .bytes()
            .all(|byte| byte == b'x' || byte == b'X' || byte == b'.')
}

/// Whether a value looks random: long, letters with digits, no path, no UUID, no dotted name.
fn is_random(value: &str) -> bool {
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    value.len() >= 16
        && digits >= 2
        && letters >= 2
        && !is_placeholder(value)
        && value
            .bytes()
            .all(|byte| is_word(byte) || b"+/=.".contains(&byte))
        && !value.starts_with(['/', '.'])
        && !(value.len() == 36 && value.bytes().filter(|byte| *byte == b'-').count() == 4)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_what_is_secret() {
        let cases = [
            (
                "OPENAI sk-proj-abcDEF1234567890xyz ok",
                "OPENAI [secret masked] ok",
            ),
            (
                "ghp_0123456789abcdefghij0123456789abcdef",
                "[secret masked]",
            ),
            ("key AKIAIOSFODNN7EXAMPLE.", "key [secret masked]."),
            (
                "Authorization: Bearer abc123def456ghi789",
                "Authorization: Bearer [secret masked]",
            ),
            (
                "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN end",
                "jwt [secret masked] end",
            ),
            (
                r#"{"password": "hunter2!", "user": "bo"}"#,
                r#"{"password": "[secret masked]", "user": "bo"}"#,
            ),
            ("DB_PASSWORD=s3cr3t-x y", "DB_PASSWORD=[secret masked] y"),
            (
                "api_key = 'a1b2c3d4e5f6g7h8i9'",
                "api_key = '[secret masked]'",
            ),
            (
                "postgres://app:pa55@db:5432/x",
                "postgres://app:[secret masked]@db:5432/x",
            ),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nb",
                "a\n[secret masked]\nb",
            ),
            ("密码：abc12345。", "密码：[secret masked]。"),
        ];
        for (text, expected) in cases {
            assert_eq!(mask_secrets(text), expected);
        }
    }

    #[test]
    fn leaves_what_is_not() {
        for text in [
            "commit 3f2a9c1d5e6f708192a3b4c5d6e7f8091a2b3c4d",
            "session 132b2f66-ee5f-46f6-8904-32d9dc4d36c3",
            r#"{"token": "132b2f66-ee5f-46f6-8904-32d9dc4d36c3"}"#,
            "max_tokens: 12000, token_count=1500",
            "def login(user, password: str) -> Token:",
            "password: the user must choose one",
            "password=os.environ['DB_PASSWORD']",
            "password=${DB_PASSWORD}",
            "task-based-risk-assessment2024-plan",
            "https://example.com/a:b@c",
            "disk-1234567890123456",
            "cd $(pwd) && ls",
        ] {
            assert_eq!(mask_secrets(text), text);
        }
    }

    proptest! {
        #[test]
        fn masking_twice_changes_nothing(
            text in r#"((password|token|sk-|bearer |://u:|api_key|eyJ|pwd)?["' =:@]{0,3}[a-z0-9A-Z.\[\]密]{0,24}){0,6}"#
        ) {
            let once = mask_secrets(&text).into_owned();
            prop_assert_eq!(mask_secrets(&once).into_owned(), once);
        }
    }
}
