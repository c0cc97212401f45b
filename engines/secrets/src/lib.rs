//! Masks secrets: keys, tokens, passwords, cookies and card numbers.
//!
//! Start with [`mask_secrets`]. It is conservative, because text that is masked by mistake is lost:
//! git hashes, UUIDs and ordinary names stay.
//!
//! One pass over the text finds candidates by their cues (`rules`, `cues`, `keys.txt`). A check at
//! each candidate then decides (`shape`, `notation`, `value`). Keys that look like any random text
//! are recognised by the name they are assigned to (`assigned`, `providers.txt`). JSON is searched
//! string by string, each without its escapes, and stays valid JSON (`json`). Other text with
//! escapes is also searched as it reads without them (`escaped`). The time is proportional to the
//! length of the text, even if the text was made to be slow.

mod assigned;
mod cards;
mod charset;
mod cues;
mod escaped;
mod headers;
mod json;
mod keys;
mod names;
mod notation;
mod rules;
mod scan;
mod shape;
mod steps;
mod tables;
mod value;

use std::borrow::Cow;
use std::ops::Range;

pub use escaped::unicode_escape;

use escaped::Decoded;

/// The text that [`mask_secrets`] puts in place of a secret, unless the secret is a number of JSON.
pub const SECRET_MASK: &str = "[secret masked]";

/// How many levels of JSON inside strings of JSON are read, and how many layers of escapes are
/// resolved in other text.
const JSON_DEPTH: usize = 6;
const ESCAPES: usize = 4;

/// How many bytes before an escape, and before something invisible, a name may begin whose value
/// contains it.
const ESCAPE: usize = 64;
const HIDDEN: usize = 256;

/// How often a text with a secret is searched. Once a secret is masked, the text around it may read
/// as another one.
const PASSES: usize = 8;

/// The bytes of a secret. If it is a number of JSON, a text in its place would not be JSON, so it
/// becomes 0.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Secret {
    place: Range<usize>,
    is_number: bool,
}

impl Secret {
    fn text(place: Range<usize>) -> Self {
        Self {
            place,
            is_number: false,
        }
    }
}

/// Returns `text` with every secret replaced by `[secret masked]`: the keys of providers, JSON web
/// tokens, bearer tokens, the values of passwords and keys, cookies, private key blocks, the
/// passwords of connection strings, and card numbers. The text is borrowed if it has none. Masking
/// the result again changes nothing.
///
/// JSON stays JSON of the same shape, and its other bytes stay as they are. A zero replaces a secret
/// number. If JSON was escaped or cut off, the text is also searched with its escapes resolved.
///
/// ```
/// use contexture_secrets::mask_secrets;
///
/// assert_eq!(mask_secrets("password=hunter2!"), "password=[secret masked]");
/// assert_eq!(mask_secrets(r#"{"pass": "a\"b12"}"#), r#"{"pass": "[secret masked]"}"#);
/// assert_eq!(mask_secrets("commit 3f2a9c1d"), "commit 3f2a9c1d");
/// ```
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    let mut masked = masked_once(text);
    // If a pass changes nothing, no later pass can.
    for _ in 1..PASSES {
        let Cow::Owned(before) = &masked else { break };
        match masked_once(before) {
            Cow::Owned(after) if after != *before => masked = Cow::Owned(after),
            _ => break,
        }
    }
    masked
}

/// Searches and masks the text once. The result may still contain secrets that only appear now.
fn masked_once(text: &str) -> Cow<'_, str> {
    let mut secrets = Vec::new();
    secrets_in(text, JSON_DEPTH, &mut secrets);
    masked(text, secrets)
}

/// Whether a name is that of a key, a token or a password: `api_key`, `dbPassword`,
/// `OPENAI-API-KEY`. Use it if the value is not at hand.
pub fn is_secret_name(name: &str) -> bool {
    names::ends_in_the_name_of_a_secret(name)
}

/// Replaces these secrets in the text. They may overlap and need not be sorted.
fn masked(text: &str, mut secrets: Vec<Secret>) -> Cow<'_, str> {
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    secrets.sort_by_key(|secret| (secret.place.start, secret.place.end));
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    for Secret { place, is_number } in secrets {
        // If a secret begins inside another one, its rest is masked together with that.
        if place.start >= copied {
            masked.push_str(&text[copied..place.start]);
            masked.push_str(if is_number { "0" } else { SECRET_MASK });
        }
        copied = copied.max(place.end);
    }
    masked.push_str(&text[copied..]);
    Cow::Owned(masked)
}

/// Appends the secrets in a text to `secrets`. They may overlap. JSON inside its strings is read up
/// to `depth` levels deep.
fn secrets_in(text: &str, depth: usize, secrets: &mut Vec<Secret>) {
    // If the depth is used up, JSON is searched like any other text with escapes.
    if depth > 0 && json::is_json(text) {
        return json::scan(text, depth - 1, false, secrets);
    }
    let mut places = Vec::new();
    shape::scan(text, &mut places);
    secrets.extend(places.drain(..).map(Secret::text));
    if let Some(depth) = depth.checked_sub(1) {
        for json in json::embedded(text) {
            let of_json = secrets.len();
            json::scan(json, depth, true, secrets);
            let start = json.as_ptr() as usize - text.as_ptr() as usize;
            for secret in &mut secrets[of_json..] {
                secret.place = start + secret.place.start..start + secret.place.end;
            }
        }
    }
    // An escape may be a part of a name or a value, so its surroundings are searched as they read
    // without it.
    for region in regions(text, ESCAPE, escape(text)) {
        in_escapes(&text[region.clone()], region.start, secrets);
    }
    // Search again as a reader sees the text, because colours, zero-width characters and the like
    // may split a secret.
    let hidden = escaped::hidden(text);
    let next = |from| hidden.get(hidden.partition_point(|at| *at < from)).copied();
    for region in regions(text, HIDDEN, next) {
        let part = &text[region.clone()];
        let Some(visible) = Decoded::visible(part) else {
            continue;
        };
        let of_region = secrets.len();
        shape::scan(&visible.text, &mut places);
        secrets.extend(places.drain(..).map(Secret::text));
        for region in regions(&visible.text, ESCAPE, escape(&visible.text)) {
            in_escapes(&visible.text[region.clone()], region.start, secrets);
        }
        for secret in &mut secrets[of_region..] {
            let place = visible.original(part, &secret.place);
            secret.place = region.start + place.start..region.start + place.end;
        }
    }
}

/// Returns a function that finds the next escape at or after a byte.
fn escape(text: &str) -> impl Fn(usize) -> Option<usize> {
    move |from| Some(from + memchr::memchr(b'\\', text.as_bytes().get(from..)?)?)
}

/// Appends the secrets of a part of a text as it reads without its escapes, and again without those
/// that appear then. `offset` is the position of the part.
fn in_escapes(text: &str, offset: usize, secrets: &mut Vec<Secret>) {
    let mut layers: Vec<Decoded> = Vec::new();
    let mut places = Vec::new();
    for _ in 0..ESCAPES {
        let layer = layers.last().map_or(text, |layer| &layer.text);
        let Some(decoded) = Decoded::of(layer).or_else(|| Decoded::visible(layer)) else {
            return;
        };
        shape::scan(&decoded.text, &mut places);
        layers.push(decoded);
        // The secret was found in the innermost layer, so its position is mapped outwards layer by
        // layer.
        for place in places.drain(..) {
            let place = (0..layers.len()).rev().fold(place, |place, at| {
                let outer = at.checked_sub(1).map_or(text, |outer| &layers[outer].text);
                layers[at].original(outer, &place)
            });
            secrets.push(Secret::text(offset + place.start..offset + place.end));
        }
    }
}

/// Returns the parts of a text that may read differently without certain places, such as escapes.
/// `next` finds the next place at or after a byte. A part reaches as far around its places as a
/// name and a value may, from white space to white space. Parts do not overlap.
fn regions(
    text: &str,
    before: usize,
    next: impl Fn(usize) -> Option<usize>,
) -> impl Iterator<Item = Range<usize>> {
    const BEHIND: usize = 320;
    let bytes = text.as_bytes();
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    let mut from = 0;
    std::iter::from_fn(move || {
        let first = next(from)?;
        let earliest = first.saturating_sub(before).max(from);
        let start = bytes[from..earliest]
            .iter()
            .rposition(is_space)
            .map_or(from, |at| from + at);
        let mut end = first + 1;
        // Places that are close together share a part, so that no byte is searched twice.
        while let Some(at) = next(end).filter(|at| *at < end + BEHIND) {
            end = at + 1;
        }
        let rest = end.saturating_add(BEHIND).min(bytes.len());
        end = rest
            + bytes[rest..]
                .iter()
                .position(is_space)
                .unwrap_or(bytes.len() - rest);
        from = end;
        Some(start..end)
    })
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

    /// Test keys are assembled here, so that nothing in this file looks like a real one to other
    /// scanners.
    fn key(prefix: &str, len: usize) -> String {
        let body = "a7Kq2Zx9Lm4Pw8Rt3Vy6Bn1Cd5Fg0Hj";
        prefix
            .chars()
            .chain(body.chars().cycle().take(len))
            .collect()
    }

    #[test]
    fn escapes_hide_nothing_and_json_stays_json() {
        let key = key("sk-ant-api03-", 40);
        let text = format!("keys:\n{key}\nsay \"hi\"");
        let inner = serde_json::json!({"note": text, "n": 1.10}).to_string();
        let outer = serde_json::json!({"arguments": inner, "list": [[text]]}).to_string();
        let twice = serde_json::json!([outer]).to_string();
        for json in [&inner, &outer, &twice] {
            let masked = mask_secrets(json);
            assert!(!masked.contains(&key[14..30]), "{masked}");
            assert_eq!(masked, json.replace(&key, SECRET_MASK));
            // If the text is cut off or has words around it, it is not JSON.
            for text in [&json[..json.len() - 1], &format!("It says {json}.")] {
                assert_eq!(mask_secrets(text), text.replace(&key, SECRET_MASK));
            }
        }
        let lines = format!("{inner}\n{inner},\n  {inner}");
        assert_eq!(mask_secrets(&lines), lines.replace(&key, SECRET_MASK));
        let slash = r#"{"aws_secret_access_key":"wJa7rXUtnFEMI\/K7MDENG\/bPxRfiCY\u003d"}"#;
        assert_eq!(
            mask_secrets(slash),
            r#"{"aws_secret_access_key":"[secret masked]"}"#
        );
        let numbers =
            r#"{"password": 12345678, "card": [4111111111111111], "n": 4111111111111112}"#;
        assert_eq!(
            mask_secrets(numbers),
            r#"{"password": 0, "card": [0], "n": 4111111111111112}"#
        );
        let pair =
            r#"[{"name": "DB_PASSWORD", "value": "hunter two"}, {"name": "a", "value": "b"}]"#;
        assert_eq!(mask_secrets(pair), pair.replace("hunter two", SECRET_MASK));
    }

    #[test]
    fn an_object_below_the_name_of_a_secret_holds_it() {
        let secret = "Tr0ub4dor3xKq9zzW7";
        let encoded = "VHIwdWI0ZG9yM3hLcTl6elc3";
        let cases = [
            serde_json::json!({"db_password": {"sensitive": true, "type": "string", "value": secret}}),
            serde_json::json!({"password": {"current": secret, "previous": null}}),
            serde_json::json!({"password": {"plaintext": secret, "x": 1}}),
            serde_json::json!({"credentials": {"secret": {"key": secret}}}),
            serde_json::json!({"password": [{"v": 1, "value": secret}]}),
            serde_json::json!({"passwords": {"staging": {"a": secret}, "b": [secret]}}),
            serde_json::json!({"api_key": {"value": "3f2a9c1d5e6f708192a3b4c5d6e7f809"}}),
            serde_json::json!({"items": [{"kind": "Secret", "data": {"DB": encoded}}]}),
            serde_json::json!({"data": {"DB": encoded}, "kind": "Secret", "type": "Opaque"}),
        ];
        let values = [secret, encoded, "3f2a9c1d5e6f708192a3b4c5d6e7f809"];
        for json in cases {
            let compact = json.to_string();
            for json in [serde_json::to_string_pretty(&json).unwrap(), compact] {
                let expected = (values.iter())
                    .fold(json.clone(), |text, value| text.replace(value, SECRET_MASK));
                let around = |json: &str| format!("{{see}} [the] output\n$ show\n{json}\nand more");
                assert_eq!(mask_secrets(&json), expected);
                assert_eq!(mask_secrets(&around(&json)), around(&expected));
                // The output of a command may be cut off behind the secret.
                let cut = |json: &str| {
                    format!("Output: {}", json.trim_end_matches(['}', ']', '\n', ' ']))
                };
                assert_eq!(mask_secrets(&cut(&json)), cut(&expected));
            }
        }
        let yaml =
            format!("a: 1\ndb_password:\n  sensitive: true\n  type: string\n  value: {secret}\n");
        assert_eq!(mask_secrets(&yaml), yaml.replace(secret, SECRET_MASK));
        let uuid = "//registry.npmjs.org/:_authToken=3f2b1c4d-9a8e-4f7b-b6c5-1d2e3f4a5b6c";
        let masked = "//registry.npmjs.org/:_authToken=[secret masked]";
        assert_eq!(mask_secrets(uuid), masked);
    }

    #[test]
    fn what_an_object_says_about_a_secret_stays() {
        let hash = "sha512-45YvlxKq9zzW7Tr0ub4dor3xKq9zzW7Tr0ub4dor3xKq9zzW7dor3xK==";
        let uuid = "132b2f66-ee5f-46f6-8904-32d9dc4d36c3";
        let cases = [
            serde_json::json!({"password": {"type": "string", "format": "password", "minLength": 8,
                "description": "Your Passw0rd has 8 characters", "pattern": "^[A-Z]+[a-z0-9]{8}$"}}),
            serde_json::json!({"dependencies": {"jsonwebtoken": {"version": "9.0.2",
                "resolved": "https://registry.npmjs.org/jsonwebtoken/-/jsonwebtoken-9.0.2.tgz",
                "integrity": hash}, "js-tokens": {"integrity": hash}}}),
            serde_json::json!({"token": {"id": uuid, "kind": "Access2Token", "ref": uuid}}),
            serde_json::json!({"password": {"secretKeyRef": {"name": "db-Server01", "key": "db-pass"}}}),
            serde_json::json!({"auth": {"username": "John99Smith", "clientId": "aB3dE5fG7hI9jK1l",
                "type": "OAuth2", "scopes": ["read:org", "Repo1Write"]}}),
            serde_json::json!({"secrets": ["DB_PASSWORD", "API_KEY"], "tokens": {"total": 123456}}),
            serde_json::json!({"credentials": {"provider": "aws", "expires": "2026-01-01T00:00:00Z"}}),
        ];
        for json in cases {
            let compact = json.to_string();
            for json in [serde_json::to_string_pretty(&json).unwrap(), compact] {
                assert_eq!(mask_secrets(&json), json);
                let text = format!("It says {json}.");
                assert_eq!(mask_secrets(&text), text);
            }
        }
        let yaml = "password:\n  type: string\n  default: required\ntoken:\n  value: plain words\n";
        assert_eq!(mask_secrets(yaml), yaml);
    }

    #[test]
    fn what_stands_around_a_secret_is_looked_at_without_it() {
        for value in ["cookie='=://u:a.A", "password://u:a0A"] {
            let once =
                mask_secrets(&serde_json::json!({"password": value}).to_string()).into_owned();
            assert_eq!(once, r#"{"password":"[secret masked]"}"#);
        }
    }

    #[test]
    fn a_key_block_ends_where_it_ends() {
        let begin = ["-----BEGIN RSA ", "PRIVATE KEY-----"].concat();
        let said = serde_json::json!({"a": format!("grep for {begin} in it"), "b": ["rest"]});
        assert_eq!(mask_secrets(&said.to_string()), said.to_string());
        let line = key("", 64);
        let cut = serde_json::json!({"a": format!("{begin}\n{line}\n{line}"), "b": ["rest"]});
        assert_eq!(
            mask_secrets(&cut.to_string()),
            r#"{"a":"[secret masked]","b":["rest"]}"#
        );
        let headed = format!("{begin}\nProc-Type: 4,ENCRYPTED\n\n{line}\nthen prose");
        assert_eq!(mask_secrets(&headed), "[secret masked]\nthen prose");
    }

    /// Units of texts that might make a scan read the same bytes repeatedly. They consist of the
    /// cues of the rules, and of the beginnings and ends of values, names and escapes. One cue of
    /// each shape is combined with all of these, and every other cue with a few.
    fn hostile() -> impl Iterator<Item = String> {
        const BEFORE: [&str; 8] = ["", "a", "\"", " ", "\\", "1", "{\"", "[\\\""];
        const BEHIND: [&str; 48] = [
            "", "a", "=", "=a", "b:", ":b", "a@", "=\"", "=\\\"", "='", "(", ")", "=)", "\n", " ",
            "/", "\\n", "=a;", "\":\"", ".", "-", "4", "=*", "]", "密", " is ", "\\u003d", ":",
            "&#58;", "%3D", "key=", "a b:c@", "b:c@d/", ": A", ": |\n a", "\",value=\"", ",a\n",
            "|b|\n", "[a]=", " is A1b2c3d4", "\"\na\"", "\u{1b}[1m", "\u{200b}", "&quot;",
            " A1b2c3d4", "a1B2c3D4e5F6", ": str = \"", ">a<",
        ];
        let mut shapes: Vec<_> = Vec::new();
        let cues = rules::RULES
            .iter()
            .map(|rule| (&*rule.cue, std::mem::discriminant(&rule.shape)));
        let units = cues.enumerate().flat_map(move |(at, (cue, shape))| {
            let is_first = !shapes.contains(&shape);
            shapes.push(shape);
            let all = BEFORE[..4]
                .iter()
                .flat_map(|before| BEHIND.map(|behind| (*before, behind)));
            let few = [0, 11].map(|step| {
                (
                    BEFORE[(at + step) % 8],
                    BEHIND[(7 * at + step) % BEHIND.len()],
                )
            });
            let units = all.filter(|_| is_first).chain(few).collect::<Vec<_>>();
            units
                .into_iter()
                .map(move |(before, behind)| format!("{before}{cue}{behind}"))
        });
        units
            .chain(BEHIND.map(str::to_owned))
            .chain(
                [
                    "adafruit_key=a1B2c3D4e5F6g7H8",
                    "adafruit=",
                    "a1B2c3D4e5F6g7H8",
                    "{\"name\":\"token\",\"value\":\"",
                    "{\"value\":",
                    "{\"password\":{\"a\":",
                    "{\"password\":[{\"value\":\"a\"}]} ",
                    "[{\"a\":\"[{",
                    "password:\n  a: b\n  ",
                ]
                .map(str::to_owned),
            )
            .filter(|unit| !unit.is_empty())
    }

    #[test]
    fn any_repetition_takes_steps_in_proportion_to_its_length() {
        let steps_for = |unit: &str, len: usize| {
            let text = unit.repeat(len / unit.len());
            crate::steps::take();
            mask_secrets(&text);
            crate::steps::take()
        };
        for unit in hostile() {
            // The texts are longer than what is read around a cue. If a cue caused the rest of the
            // text to be read, twice the length would take four times the steps.
            let (small, large) = (steps_for(&unit, 4_000), steps_for(&unit, 8_000));
            assert!(
                large <= 3 * small + 50_000,
                "{large} steps, before {small}, for twice as much of {unit:?}"
            );
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Into::into),
            r#"((password|token|sk-|bearer |://u:|-----BEGIN PRIVATE KEY-----|eyJ|cookie)?["' =:@\n\\]{0,3}[a-z0-9A-Z.]{0,24}){0,6}"#
                .prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                inner.clone().prop_map(|inner| inner.to_string().into()),
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::vec(("(password|token|auth|name|value|x)", inner), 0..5)
                    .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    fn same_shape(one: &serde_json::Value, other: &serde_json::Value) -> bool {
        use serde_json::Value::{Array, Number, Object, String};
        match (one, other) {
            (String(_), String(_)) | (Number(_), Number(_)) => true,
            (Array(one), Array(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same_shape(a, b))
            }
            (Object(one), Object(other)) => {
                one.len() == other.len()
                    && one
                        .values()
                        .zip(other.values())
                        .all(|(a, b)| same_shape(a, b))
            }
            _ => one == other,
        }
    }

    proptest! {
        #[test]
        fn json_keeps_its_shape(value in any_json()) {
            let json = value.to_string();
            let masked = mask_secrets(&json);
            let read: serde_json::Value = serde_json::from_str(&masked).unwrap();
            prop_assert!(same_shape(&value, &read), "{json} {masked}");
            prop_assert_eq!(mask_secrets(&masked), &*masked);
        }

        #[test]
        fn any_text_can_be_masked(
            text in r#"((password|пароль|密码|token|api_key|\{"a": ?|\[\{"token":|login |cookie|authorization|" -p|echo |\| sudo -s|kind: secret|@tcp\(|:5432:|name|value|ghp_|sk-|<)?[-"' =:@>|\n\\,;.é密🙂“»\u{200b}\u{1b}&\[\]{}]{0,4}[a-z0-9A-Zя]{0,20}){0,8}"#
        ) {
            let once = mask_secrets(&text).into_owned();
            let json = serde_json::json!([{"text": text}, {"text": text}]).to_string();
            let masked = mask_secrets(&json);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&masked).is_ok(), "{masked}");
            prop_assert_eq!(mask_secrets(&once).into_owned(), once);
        }

        #[test]
        fn masking_twice_changes_nothing(
            text in r#"((password|token|sk-|bearer |://u:|api_key|eyJ|pwd)?["' =:@]{0,3}[a-z0-9A-Z.\[\]密]{0,24}){0,6}"#
        ) {
            let once = mask_secrets(&text).into_owned();
            prop_assert_eq!(mask_secrets(&once).into_owned(), once);
        }
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
