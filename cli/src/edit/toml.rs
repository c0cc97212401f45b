//! TOML, edited in place by `toml_edit`.
//!
//! [`Toml`] wraps a document that keeps comments, empty lines and the order of keys. Values cross
//! as [`serde_json::Value`], because the edits are the same in all formats. A table becomes an
//! object, whether it has a heading, stands in one line or has dotted keys, and a time becomes a
//! string.
//!
//! A new mapping is written as a table with a heading, and the mappings in it in one line. If the
//! text cannot be parsed, the error names the line.

use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{Document, EditError};

pub(super) struct Toml(DocumentMut);

impl Toml {
    pub(super) fn parse(text: &str) -> Result<Self, EditError> {
        let parsed = text.parse::<DocumentMut>();
        parsed.map(Self).map_err(|error| {
            let place = error.span().map(|span| {
                let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
                format!("line {line}: ")
            });
            EditError::Syntax(format!("{}{}", place.unwrap_or_default(), error.message()))
        })
    }

    fn item(&self, path: &[String]) -> Option<&Item> {
        let mut item = self.0.as_item();
        for name in path {
            item = item.as_table_like()?.get(name)?;
        }
        Some(item)
    }

    fn parent(&mut self, path: &[String]) -> Result<&mut dyn TableLike, EditError> {
        let mut table: &mut dyn TableLike = self.0.as_table_mut();
        for (at, name) in path.iter().enumerate() {
            if !table.contains_key(name) {
                let mut new = Table::new();
                // Only the innermost table of `[a.b]` needs a heading.
                new.set_implicit(true);
                table.insert(name, Item::Table(new));
            }
            let shape = || EditError::Shape(path[..=at].join("."), "TOML table");
            let item = table.get_mut(name).and_then(Item::as_table_like_mut);
            table = item.ok_or_else(shape)?;
        }
        Ok(table)
    }
}

impl Document for Toml {
    fn get(&self, path: &[String]) -> Option<Value> {
        json(self.item(path)?)
    }

    fn set(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        let Some((last, parents)) = path.split_last() else {
            return Ok(());
        };
        let table = self.parent(parents)?;
        match (value, table.get_mut(last)) {
            (Value::Object(members), None) => {
                let mut new = Table::new();
                for (name, value) in members {
                    new.insert(name, Item::Value(toml(value)));
                }
                table.insert(last, Item::Table(new));
            }
            (value, Some(item)) => {
                // The decoration is the space around the value and the comment behind it.
                let decor = item.as_value().map(|value| value.decor().clone());
                *item = Item::Value(toml(value));
                if let (Some(value), Some(decor)) = (item.as_value_mut(), decor) {
                    *value.decor_mut() = decor;
                }
            }
            (value, None) => {
                table.insert(last, Item::Value(toml(value)));
            }
        }
        Ok(())
    }

    fn push(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        let Some((last, parents)) = path.split_last() else {
            return Ok(());
        };
        let table = self.parent(parents)?;
        if !table.contains_key(last) {
            table.insert(last, Item::Value(Array::new().into()));
        }
        let shape = || EditError::Shape(path.join("."), "TOML array");
        let array = table.get_mut(last).and_then(Item::as_array_mut);
        array.ok_or_else(shape)?.push(toml(value));
        Ok(())
    }

    fn remove(&mut self, path: &[String]) {
        let Some((last, parents)) = path.split_last() else {
            return;
        };
        // If parents are missing, this creates them. They are implicit and empty, so they are not
        // written.
        if let Ok(table) = self.parent(parents) {
            table.remove(last);
        }
    }

    fn remove_element(&mut self, path: &[String], value: &Value) -> bool {
        let Some((last, parents)) = path.split_last() else {
            return false;
        };
        let Ok(table) = self.parent(parents) else {
            return false;
        };
        let array = table.get_mut(last).and_then(Item::as_array_mut);
        let Some(array) = array else {
            return false;
        };
        let at = array
            .iter()
            .position(|element| json(&Item::Value(element.clone())).as_ref() == Some(value));
        if let Some(at) = at {
            array.remove(at);
        }
        at.is_some()
    }

    fn is_empty(&self) -> bool {
        // If only a comment is left, the file is the user's and must not be deleted.
        self.0.to_string().trim().is_empty()
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

fn json(item: &Item) -> Option<Value> {
    use toml_edit::Value as Toml;

    match item {
        Item::None => None,
        Item::Value(Toml::String(text)) => Some(text.value().as_str().into()),
        Item::Value(Toml::Integer(number)) => Some((*number.value()).into()),
        Item::Value(Toml::Float(number)) => Some((*number.value()).into()),
        Item::Value(Toml::Boolean(value)) => Some((*value.value()).into()),
        Item::Value(Toml::Datetime(time)) => Some(time.value().to_string().into()),
        Item::Value(Toml::Array(array)) => {
            let elements = array.iter();
            elements
                .map(|element| json(&Item::Value(element.clone())))
                .collect::<Option<Vec<Value>>>()
                .map(Value::Array)
        }
        Item::Value(Toml::InlineTable(table)) => members(table),
        Item::Table(table) => members(table),
        Item::ArrayOfTables(tables) => {
            let tables: Option<Vec<Value>> = tables.iter().map(|table| members(table)).collect();
            tables.map(Value::Array)
        }
    }
}

fn members(table: &dyn TableLike) -> Option<Value> {
    let members = table.iter();
    let members: Option<serde_json::Map<String, Value>> = members
        .map(|(name, item)| Some((name.to_owned(), json(item)?)))
        .collect();
    members.map(Value::Object)
}

fn toml(value: &Value) -> toml_edit::Value {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(elements) => {
            let elements = elements.iter().map(toml);
            toml_edit::Value::Array(elements.collect::<Array>())
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, value)| (name.as_str(), toml(value)));
            toml_edit::Value::InlineTable(members.collect::<InlineTable>())
        }
        // TOML has no null, and no edit uses one.
        Value::Null => "".into(),
    }
}
