//! JSON with comments, as a syntax tree that keeps every byte.
//!
//! [`Json`] wraps the tree of `jsonc_parser`. An edit changes nodes of the tree, so everything else
//! stays as the user wrote it: comments, indentation, trailing commas and the order of keys.
//!
//! A text without a value, such as an empty file, gets an object. If the value is something other
//! than an object, the text is refused, because there is no key to set in it.

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, cst::CstObjectProp};
use serde_json::Value;

use super::{Document, EditError};

pub(super) struct Json {
    root: CstRootNode,
    /// The object at the top. A document without a value gets an empty one.
    top: CstObject,
    /// Whether the text had a value.
    had_value: bool,
}

impl Json {
    /// Comments and trailing commas are accepted, as the agents do. Everything else that is not
    /// JSON would be refused by them, too, except by those that read JSON5.
    pub(super) fn parse(text: &str, is_json5: bool) -> Result<Self, EditError> {
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: is_json5,
            allow_missing_commas: false,
            allow_single_quoted_strings: is_json5,
            allow_hexadecimal_numbers: is_json5,
            allow_unary_plus_numbers: is_json5,
            ..ParseOptions::default()
        };
        let root = CstRootNode::parse(text, &options)
            .map_err(|error| EditError::Syntax(error.to_string()))?;
        // The next statement gives the text a value, so this has to be asked before.
        let had_value = root.value().is_some();
        let top = root
            .object_value_or_create()
            .ok_or_else(|| EditError::Syntax("its value is not a JSON object".to_owned()))?;
        Ok(Self {
            root,
            top,
            had_value,
        })
    }

    fn property(&self, path: &[String]) -> Option<CstObjectProp> {
        let (last, parents) = path.split_last()?;
        let mut object = self.top.clone();
        for name in parents {
            object = object.object_value(name)?;
        }
        object.get(last)
    }

    fn parent(&self, path: &[String]) -> Result<CstObject, EditError> {
        let mut object = self.top.clone();
        for (at, name) in path.iter().enumerate() {
            let shape = || EditError::Shape(path[..=at].join("."), "JSON object");
            object = match null(&object, name) {
                Some(property) => property.object_value_or_set(),
                None => object.object_value_or_create(name).ok_or_else(shape)?,
            };
        }
        Ok(object)
    }

    fn array(&self, path: &[String]) -> Option<CstArray> {
        self.property(path)?.array_value()
    }
}

impl Document for Json {
    fn get(&self, path: &[String]) -> Option<Value> {
        self.property(path)?.value()?.to_serde_value()
    }

    fn set(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        if let Some(property) = self.property(path) {
            property.set_value(input(value));
        } else if let Some((last, parents)) = path.split_last() {
            self.parent(parents)?.append(last, input(value));
        }
        Ok(())
    }

    fn push(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        let Some((last, parents)) = path.split_last() else {
            return Ok(());
        };
        let shape = || EditError::Shape(path.join("."), "JSON list");
        let parent = self.parent(parents)?;
        let array = match null(&parent, last) {
            Some(property) => property.array_value_or_set(),
            None => parent.array_value_or_create(last).ok_or_else(shape)?,
        };
        array.append(input(value));
        Ok(())
    }

    fn remove(&mut self, path: &[String]) {
        if let Some(property) = self.property(path) {
            property.remove();
        }
    }

    fn remove_element(&mut self, path: &[String], value: &Value) -> bool {
        let elements = self.array(path).map(|array| array.elements());
        let mut elements = elements.into_iter().flatten();
        let element: Option<CstNode> =
            // By its value, because the user may have formatted the entry differently since.
            elements.find(|element| element.to_serde_value().as_ref() == Some(value));
        let found = element.is_some();
        if let Some(element) = element {
            element.remove();
        }
        found
    }

    fn is_empty(&self) -> bool {
        // If there are no properties, there is no string that these signs could be in.
        let has_comment = self.root.to_string().contains("//") || self.text().contains("/*");
        self.top.properties().is_empty() && !has_comment
    }

    fn text(&self) -> String {
        let text = self.root.to_string();
        match self.had_value {
            true => text,
            // A file that was missing or empty gets a line break at its end.
            false => format!("{}\n", text.trim_end()),
        }
    }
}

/// Returns the property of this name if it is null, so that a container can take the place of that.
fn null(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let property = object.get(name)?;
    let is_null = property.value()?.as_null_keyword().is_some();
    is_null.then_some(property)
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(elements) => CstInputValue::Array(elements.iter().map(input).collect()),
        Value::Object(members) => {
            let members = members.iter();
            CstInputValue::Object(
                members
                    .map(|(name, value)| (name.clone(), input(value)))
                    .collect(),
            )
        }
    }
}
