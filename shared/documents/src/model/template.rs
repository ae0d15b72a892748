//! Text and trees that may hold `${…}`.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::At;

/// A string that may hold `${…}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateText {
    /// Taken as it is (all of Signadot's values).
    Literal(String),
    /// `${…}` are expressions, `$${` is a literal `${`.
    Template(String),
}

/// A tree whose strings are templates, each with its place.
#[derive(Clone, Debug, PartialEq)]
pub enum TemplateTree {
    /// `null`, booleans and numbers.
    Scalar(Value),
    Text(TemplateText),
    List(Vec<At<TemplateTree>>),
    /// A mapping in the order of the document; keys are never templates.
    Map(Vec<(String, At<TemplateTree>)>),
}

impl TemplateTree {
    /// Returns the value of a key, if this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&At<TemplateTree>> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for TemplateText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::Template)
    }
}

impl<'de> Deserialize<'de> for TemplateTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TreeVisitor;

        impl<'de> Visitor<'de> for TreeVisitor {
            type Value = TemplateTree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E: Error>(self) -> Result<TemplateTree, E> {
                Ok(TemplateTree::Scalar(Value::Null))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<TemplateTree, E> {
                Ok(TemplateTree::Scalar(value.into()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<TemplateTree, E> {
                Ok(TemplateTree::Scalar(value.into()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<TemplateTree, E> {
                Ok(TemplateTree::Scalar(value.into()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<TemplateTree, E> {
                Ok(TemplateTree::Scalar(value.into()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TemplateTree, E> {
                Ok(TemplateTree::Text(TemplateText::Template(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TemplateTree, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(TemplateTree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<TemplateTree, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(TemplateTree::Map(map))
            }
        }

        deserializer.deserialize_any(TreeVisitor)
    }
}
