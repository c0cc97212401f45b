//! YAML, as a syntax tree that keeps comments and layout.
//!
//! [`Yaml`] wraps the tree of yaml-edit. An edit changes nodes of the tree, so everything else
//! stays as the user wrote it: comments, indentation, quotes and the order of keys.
//!
//! Whether an edit had its effect and no other is not left to the tree: after each edit the text is
//! parsed again and compared with the parsed document in which the same edit was made. If they
//! differ, for example because an alias repeats the value elsewhere, the edit is an error and the
//! text stays as it was.

use std::str::FromStr;

use serde_json::Value;
use serde_yaml::{Mapping, Value as Parsed};
use yaml_edit::path::YamlPath;
use yaml_edit::{Document as Tree, Sequence, YamlFile};

use super::{Document, EditError};

pub(super) struct Yaml {
    text: String,
    parsed: Parsed,
}

impl Yaml {
    pub(super) fn parse(text: &str) -> Result<Self, EditError> {
        let parsed: Parsed =
            serde_yaml::from_str(text).map_err(|error| EditError::Syntax(error.to_string()))?;
        if !matches!(parsed, Parsed::Null | Parsed::Mapping(_)) {
            let what = "its value is not a YAML mapping".to_owned();
            return Err(EditError::Syntax(what));
        }
        Ok(Self {
            text: text.to_owned(),
            parsed,
        })
    }

    /// Returns an error if a key above this path has something else than a mapping.
    fn check_parents(&self, path: &[String]) -> Result<(), EditError> {
        let parents = (1..path.len()).filter_map(|length| path.get(..length));
        for parent in parents {
            if !matches!(
                self.get(parent),
                None | Some(Value::Null | Value::Object(_))
            ) {
                return Err(EditError::Shape(parent.join("."), "mapping"));
            }
        }
        Ok(())
    }

    /// Makes the same change in the tree and in the parsed document, and takes the new text if it
    /// means the changed document.
    fn edit(
        &mut self,
        path: &[String],
        in_tree: impl FnOnce(&Tree) -> Option<()>,
        in_parsed: impl FnOnce(&mut Parsed) -> Option<()>,
    ) -> Result<(), EditError> {
        let style = || EditError::Style(path.join("."));
        let file = YamlFile::from_str(&self.text).map_err(|_| style())?;
        in_tree(&file.ensure_document()).ok_or_else(style)?;
        let text = file.to_string();
        let mut wanted = self.parsed.clone();
        in_parsed(&mut wanted).ok_or_else(style)?;
        let parsed: Parsed = serde_yaml::from_str(&text).map_err(|_| style())?;
        if parsed != wanted {
            return Err(style());
        }
        (self.text, self.parsed) = (text, parsed);
        Ok(())
    }
}

/// The path as yaml-edit reads it. Each character is escaped, because a bare one may be a digit of
/// an index, a dot or a bracket.
fn tree_path(path: &[String]) -> String {
    let escaped = path.iter().map(|name| {
        name.chars()
            .flat_map(|letter| ['\\', letter])
            .collect::<String>()
    });
    escaped.collect::<Vec<_>>().join(".")
}

/// A value as a tree. JSON text is YAML, too.
fn tree_of(value: &Value) -> Option<Tree> {
    Tree::from_str(&value.to_string()).ok()
}

/// Returns the value of a key in a parsed document, which is created if it is missing.
fn entry<'v>(document: &'v mut Parsed, path: &[String]) -> Option<&'v mut Parsed> {
    let mut value = document;
    for name in path {
        if value.is_null() {
            *value = Parsed::Mapping(Mapping::new());
        }
        let mapping = value.as_mapping_mut()?;
        value = mapping
            .entry(Parsed::from(name.as_str()))
            .or_insert(Parsed::Null);
    }
    Some(value)
}

impl Document for Yaml {
    fn get(&self, path: &[String]) -> Option<Value> {
        let mut value = &self.parsed;
        for name in path {
            value = value.get(name.as_str())?;
        }
        serde_json::to_value(value).ok()
    }

    fn set(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        self.check_parents(path)?;
        let to: Parsed = serde_yaml::to_value(value).unwrap_or_default();
        self.edit(
            path,
            |tree| match value.as_str() {
                // The tree quotes a text only if YAML would read it as something else.
                Some(text) => tree.try_set_path(&tree_path(path), text).ok(),
                None => tree.try_set_path(&tree_path(path), tree_of(value)?).ok(),
            },
            |parsed| {
                *entry(parsed, path)? = to;
                Some(())
            },
        )
    }

    fn push(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        self.check_parents(path)?;
        if !matches!(self.get(path), None | Some(Value::Null | Value::Array(_))) {
            return Err(EditError::Shape(path.join("."), "list"));
        }
        let element: Parsed = serde_yaml::to_value(value).unwrap_or_default();
        self.edit(
            path,
            |tree| {
                let list = tree.try_get_path(&tree_path(path)).ok();
                match list.as_ref().and_then(|list| list.as_sequence()) {
                    Some(list) => list.push(tree_of(value)?),
                    None => {
                        let list = Sequence::new_pending_block();
                        list.push(tree_of(value)?);
                        tree.try_set_path(&tree_path(path), list).ok()?;
                    }
                }
                Some(())
            },
            |parsed| {
                let list = entry(parsed, path)?;
                if list.is_null() {
                    *list = Parsed::Sequence(Vec::new());
                }
                list.as_sequence_mut()?.push(element);
                Some(())
            },
        )
    }

    fn remove(&mut self, path: &[String]) {
        let Some((name, parents)) = path.split_last() else {
            return;
        };
        // If nobody can tell which lines these are, they stay.
        let _ = self.edit(
            path,
            |tree| tree.try_remove_path(&tree_path(path)).ok().map(drop),
            |parsed| {
                let parent = entry(parsed, parents)?;
                parent.as_mapping_mut()?.remove(name.as_str()).map(drop)
            },
        );
    }

    fn remove_element(&mut self, path: &[String], value: &Value) -> bool {
        let list = self.get(path);
        let at = super::elements(list.as_ref())
            .iter()
            .position(|element| element == value);
        let removed = at.map(|at| {
            self.edit(
                path,
                |tree| {
                    let list = tree.try_get_path(&tree_path(path)).ok()?;
                    list.as_sequence()?.remove(at).map(drop)
                },
                |parsed| {
                    entry(parsed, path)?.as_sequence_mut()?.remove(at);
                    Some(())
                },
            )
        });
        removed.is_some_and(|removed| removed.is_ok())
    }

    fn is_empty(&self) -> bool {
        let has_comment = self.text.contains('#');
        !has_comment && self.parsed.as_mapping().is_none_or(Mapping::is_empty)
    }

    fn text(&self) -> String {
        self.text.clone()
    }
}
