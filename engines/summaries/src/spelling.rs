//! Settings whose keys may be spelled in two ways.

use serde_json::{Map, Value, json};

/// Adds camelCase spellings to a settings schema in snake_case, at every level: `keepRecentCount`
/// means the same as `keep_recent_count`. An added key has a `sameAs`, with which the host applies
/// the same rules to both keys and refuses settings that contain both. The settings type has to
/// read both, with `#[serde(alias = "…")]`.
pub fn both_spellings(mut schema: Value) -> Value {
    spell_both(&mut schema);
    schema
}

fn spell_both(schema: &mut Value) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    let mut others = Map::new();
    for (key, value) in properties.iter_mut() {
        spell_both(value);
        let camel = camel_case(key);
        if camel != *key {
            let mut other = value.clone();
            if let Some(other) = other.as_object_mut() {
                // The rules about other keys stay with the snake_case spelling, so that they are
                // checked only once.
                for keyword in ["default", "notBelow", "sumAtMost"] {
                    other.remove(keyword);
                }
                let description = json!(format!("The same as {key}"));
                other.insert("description".to_owned(), description);
                other.insert("sameAs".to_owned(), json!(key));
            }
            others.insert(camel, other);
        }
    }
    properties.extend(others);
}

fn camel_case(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
        name + &initial.into_iter().chain(letters).collect::<String>()
    })
}
