//! Keys that must not stand in a file.

use serde_json::Value;

use super::schema::{Found, Problem};
use super::yaml::KeyPath;

/// How the keys of known providers begin, and the variable that each is read from.
const PREFIXES: [(&str, &str); 8] = [
    ("sk-ant-", "ANTHROPIC_API_KEY"),
    ("sk-or-", "OPENROUTER_API_KEY"),
    ("sk-", "OPENAI_API_KEY"),
    ("gsk_", "OPENAI_API_KEY"),
    ("xai-", "OPENAI_API_KEY"),
    ("AIza", "OPENAI_API_KEY"),
    ("hf_", "OPENAI_API_KEY"),
    ("ghp_", "OPENAI_API_KEY"),
];

/// Shorter values with such a beginning are words.
const LEAST_KEY_CHARS: usize = 20;

/// Every value that is an API key, by the name it stands under or by its looks.
pub(crate) fn find(value: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    walk(value, &KeyPath::default(), &mut found);
    found
}

fn walk(value: &Value, at: &KeyPath, found: &mut Vec<Found>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = at.key(key);
                let is_set =
                    value.is_number() || value.as_str().is_some_and(|text| !text.trim().is_empty());
                if is_set && names_a_key(key) {
                    let variable = value.as_str().and_then(variable_for);
                    found.push(secret(path, "an API key or password", variable));
                } else {
                    walk(value, &path, found);
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                walk(value, &at.index(index), found);
            }
        }
        Value::String(text) => {
            if let Some(variable) = variable_for(text) {
                found.push(secret(at.clone(), "an API key", Some(variable)));
            } else if address_holds_a_key(text) {
                found.push(secret(
                    at.clone(),
                    "an address with a user or a key in it",
                    None,
                ));
            }
        }
        _ => {}
    }
}

fn secret(key: KeyPath, what: &str, variable: Option<&str>) -> Found {
    let problem = Problem::Secret {
        key: key.clone(),
        what: what.into(),
        variable: variable.unwrap_or("OPENAI_API_KEY").into(),
    };
    (key, problem)
}

fn names_a_key(key: &str) -> bool {
    let name = key.to_ascii_lowercase().replace(['-', '_'], "");
    [
        "apikey",
        "password",
        "secret",
        "accesstoken",
        "authtoken",
        "secretkey",
    ]
    .iter()
    .any(|ending| name.ends_with(ending))
}

fn address_holds_a_key(text: &str) -> bool {
    text.contains("://")
        && reqwest::Url::parse(text).is_ok_and(|url| {
            !url.username().is_empty()
                || url.password().is_some()
                || url
                    .query_pairs()
                    .any(|(name, _)| name == "key" || names_a_key(&name))
        })
}

fn variable_for(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let text = text.strip_prefix("Bearer ").unwrap_or(text);
    let one_word = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !one_word || text.len() < LEAST_KEY_CHARS || !text.bytes().any(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    PREFIXES
        .iter()
        .find_map(|(prefix, variable)| text.starts_with(prefix).then_some(*variable))
}

/// A value as one short line, for a message.
pub(crate) fn shorten(value: &Value) -> String {
    const MOST_CHARS: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_found_by_name_and_by_looks_and_never_shown() {
        let value = json!({
            "auxiliary": {"compression": {"api_key": "letmein", "base_url": "http://localhost"}},
            "context": {"engines": {"lcm": {"list": [format!("sk-ant-{}", "a1".repeat(20))]}}},
            "OPENAI-API-KEY": 5,
            "user": "https://me:letmein@example.com", "query": "https://example.com/?api_key=letmein",
        });
        let found = find(&value);
        let keys: Vec<_> = found.iter().map(|(path, _)| path.to_string()).collect();
        assert_eq!(
            keys,
            [
                "auxiliary.compression.api_key",
                "context.engines.lcm.list[0]",
                "OPENAI-API-KEY",
                "user",
                "query",
            ]
        );
        for (_, problem) in &found {
            let message = problem.to_string();
            assert!(
                !message.contains("letmein") && !message.contains("a1a1"),
                "{message}"
            );
        }
        assert!(found[1].1.to_string().contains("ANTHROPIC_API_KEY"));
    }

    #[test]
    fn ordinary_settings_are_no_keys() {
        let value = json!({
            "api_key": null, "token_budget": 5, "max_threshold_tokens": 100_000, "secret": "",
            "model": "sk-model", "name": "sk-a-long-name-of-a-model-without-digits", "api_key_set": true,
            "base_url": "https://example.com/v1?version=2",
        });
        assert_eq!(find(&value), []);
    }
}
