//! The shape of a JSON value, for a preview.
//!
//! A shape shows the keys of objects and the types of values instead of the values themselves.
//! Large arrays are shown as their length and the shape of their first item. [`Shape::of`] reads it
//! with a streaming parser, which keeps no more of the value than is shown. A tool result can have
//! many megabytes, and building its whole tree would take several times as much memory.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The number of levels of arrays and objects that are shown. A preview of limited size shows
/// fewer.
const MAX_DEPTH: usize = 4;

/// The number of keys of an object that are shown. Of further keys only the number is.
const KEYS: usize = 24;

/// The length in characters up to which a string is shown as it is. A longer one is shown as its
/// length.
const STRING_CHARS: usize = 24;

/// The shape of a value. It keeps only what a preview can show.
pub(super) enum Shape {
    /// A scalar in the form that is shown: its type, or a short string itself.
    Scalar(String),
    Array {
        items: usize,
        first: Option<Box<Shape>>,
    },
    Object {
        keys: usize,
        first: Vec<(String, Shape)>,
    },
}

impl Shape {
    /// Reads the shape of a text.
    ///
    /// # Errors
    /// Returns the error of the parser if the text is not exactly one JSON value.
    pub(super) fn of(text: &str) -> serde_json::Result<Self> {
        let mut json = serde_json::Deserializer::from_str(text);
        let shape = ShapeReader { depth: MAX_DEPTH }.deserialize(&mut json)?;
        json.end()?;
        Ok(shape)
    }

    /// Returns the shape as text, down to the deepest level at which it has at most `max_chars`
    /// characters. If even one level is too long, it is returned all the same and the caller has to
    /// cut it.
    pub(super) fn in_chars(&self, max_chars: usize) -> String {
        (1..=MAX_DEPTH)
            .rev()
            .map(|depth| self.shown(depth))
            .find(|shown| shown.chars().count() <= max_chars)
            .unwrap_or_else(|| self.shown(1))
    }

    /// Returns the shape as text, down to this many levels. Arrays and objects below are shown as
    /// their sizes.
    pub(super) fn shown(&self, depth: usize) -> String {
        match self {
            Self::Scalar(shown) => shown.clone(),
            Self::Array { items: 0, .. } => "[]".to_owned(),
            Self::Array {
                items,
                first: Some(first),
            } if depth > 0 => format!("[{items} × {}]", first.shown(depth - 1)),
            Self::Array { items, .. } => format!("[{items} items]"),
            Self::Object { keys, .. } if depth == 0 => format!("{{{keys} keys}}"),
            Self::Object { keys, first } => {
                let mut shown: Vec<String> = first
                    .iter()
                    .map(|(key, value)| format!("{key:?}: {}", value.shown(depth - 1)))
                    .collect();
                if *keys > shown.len() {
                    shown.push(format!("… {} keys more", keys - shown.len()));
                }
                format!("{{{}}}", shown.join(", "))
            }
        }
    }
}

/// Reads a shape down to a number of levels, and skips everything below without keeping it.
struct ShapeReader {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ShapeReader {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Shape, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeReader {
    type Value = Shape;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar("null".to_owned()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar("bool".to_owned()))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar("number".to_owned()))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar("number".to_owned()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Scalar("number".to_owned()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Shape, E> {
        let chars = text.chars().count();
        Ok(Shape::Scalar(match chars <= STRING_CHARS {
            true => format!("{text:?}"),
            false => format!("string of {chars} characters"),
        }))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Shape, A::Error> {
        let first = match self.depth.checked_sub(1) {
            Some(depth) => array.next_element_seed(Self { depth })?.map(Box::new),
            None => None,
        };
        // The remaining items are parsed and dropped, since only their number is shown.
        let mut items = usize::from(first.is_some());
        while array.next_element::<IgnoredAny>()?.is_some() {
            items += 1;
        }
        Ok(Shape::Array { items, first })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Shape, A::Error> {
        let mut first = Vec::new();
        // Below the last level only the number of keys is kept.
        if let Some(depth) = self.depth.checked_sub(1) {
            while first.len() < KEYS
                && let Some(key) = object.next_key::<String>()?
            {
                first.push((key, object.next_value_seed(Self { depth })?));
            }
        }
        let mut keys = first.len();
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            keys += 1;
        }
        Ok(Shape::Object { keys, first })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shown(text: &str) -> [String; 3] {
        let shape = Shape::of(text).unwrap();
        [0, 1, 2].map(|depth| shape.shown(depth))
    }

    #[test]
    fn a_shape_goes_as_deep_as_it_is_asked_to() {
        let text = r#"{"a": [[1, -2.5], 3], "b": {"c": null, "d": true}, "e": "a\tb"}"#;
        assert_eq!(
            shown(text),
            [
                "{3 keys}",
                r#"{"a": [2 items], "b": {2 keys}, "e": "a\tb"}"#,
                r#"{"a": [2 × [2 items]], "b": {"c": null, "d": bool}, "e": "a\tb"}"#,
            ]
        );
        assert_eq!(shown("[]"), ["[]"; 3]);
        assert_eq!(shown("{}"), ["{0 keys}", "{}", "{}"]);
        let deep = "[".repeat(9) + &"]".repeat(9);
        assert_eq!(
            Shape::of(&deep).unwrap().shown(MAX_DEPTH),
            "[1 × [1 × [1 × [1 × [1 items]]]]]"
        );
        assert!(Shape::of("1 2").is_err() && Shape::of("[1").is_err());
    }

    #[test]
    fn of_many_keys_the_first_are_named() {
        let fields: Vec<String> = (0..30).map(|key| format!("\"k{key}\": {key}")).collect();
        let [_, shown, _] = shown(&format!("{{{}}}", fields.join(",")));
        assert!(shown.contains("\"k23\": number, … 6 keys more}"), "{shown}");
    }
}
