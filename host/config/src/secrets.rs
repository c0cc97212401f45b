//! Finds secrets that do not belong in a config file.
//!
//! API keys and passwords are read from the environment. A config file is copied into backups,
//! repositories and bug reports, so a secret in it is an error. [`find`] looks at the name of each
//! key and at the form of each text.
//!
//! How a secret is recognised by its form is the task of the crate `contexture_secrets`.

use contexture_secrets::{SECRET_MASK, is_secret_name, mask_secrets};
use serde_json::Value;

use super::check::{Found, Problem, tokens};
use super::schema::Schema;
use super::yaml::KeyPath;

/// Finds every value that is a secret: by the name of its key, by its form, or because it is an
/// address with a user or an API key in it. The problems name only the path, never the value. The
/// name of a key does not count if the schema says that its value is true or false.
pub(crate) fn find(value: &Value, schema: &Schema) -> Vec<Found> {
    let mut found = Vec::new();
    walk(value, Some(schema), &KeyPath::default(), &mut found);
    found
}

fn walk(value: &Value, schema: Option<&Schema>, at: &KeyPath, found: &mut Vec<Found>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = at.key(key);
                let schema = schema.and_then(|schema| schema.property(key));
                let is_switch = schema.is_some_and(Schema::is_boolean);
                // An empty text or a null under such a name is a placeholder, which is fine to keep
                // in a file.
                let is_set =
                    value.is_number() || value.as_str().is_some_and(|text| !text.trim().is_empty());
                // A token is never a mere number. Such a key is one of the counts of tokens,
                // misspelled.
                let is_count = key.to_ascii_lowercase().ends_with("token") && is_number(value);
                if is_set && !is_count && !is_switch && is_secret_name(key) {
                    let variable = value.as_str().and_then(variable_for);
                    found.push(secret(path, "an API key or password", variable));
                } else {
                    walk(value, schema, &path, found);
                }
            }
        }
        Value::Array(list) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for (index, value) in list.iter().enumerate() {
                walk(value, schema, &at.index(index), found);
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

/// Returns whether this is a number, or one with a unit as numbers of tokens have it.
fn is_number(value: &Value) -> bool {
    value.is_number() || value.as_str().and_then(tokens).is_some()
}

fn secret(key: KeyPath, what: &str, variable: Option<&str>) -> Found {
    // The message needs some variable as an example if the form does not tell the provider.
    let variable = variable.unwrap_or("OPENAI_API_KEY");
    let message = format!(
        "`{key}` looks like {what}: remove it from the file and set it in the environment \
         (for example `export {variable}=…`)"
    );
    (key, Problem::wrong(message))
}

/// Returns whether a text is an address that holds a secret: a user name before the `@`, or a query
/// parameter such as `api_key`. A text without `://` is not an address.
fn address_holds_a_key(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    // The fragment never reaches the server, but a `?` or `@` in it must not be mistaken for the
    // query's.
    let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let host = place.split('/').next().unwrap_or_default();
    host.contains('@')
        || query
            .split('&')
            .map(|pair| pair.split('=').next().unwrap_or_default())
            .any(|name| name == "key" || is_secret_name(name))
}

/// Returns the environment variable to set instead, if the text as a whole is a key or token. The
/// prefix `Bearer ` is ignored. Keys of an unknown provider get the variable of OpenAI.
fn variable_for(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let text = text.strip_prefix("Bearer ").unwrap_or(text);
    (mask_secrets(text) == SECRET_MASK).then(|| match text {
        _ if text.starts_with("sk-ant-") => "ANTHROPIC_API_KEY",
        _ if text.starts_with("sk-or-") => "OPENROUTER_API_KEY",
        _ => "OPENAI_API_KEY",
    })
}

#[cfg(test)]
mod tests;
