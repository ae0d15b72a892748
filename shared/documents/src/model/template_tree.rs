//! Trees whose strings may hold `${…}`.

use serde::Deserialize;
use serde_json::Value;

use super::placed::{At, Entries};
use crate::source::LineColumn;

/// A tree whose strings are templates, each with its place: `${…}` are expressions, `$${` is a literal `${`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub enum TemplateTree {
    /// `null`, booleans and numbers.
    Scalar(Value),
    Text(String),
    List(Vec<At<TemplateTree>>),
    /// A mapping; its keys are never templates.
    Map(Entries<At<TemplateTree>>),
}

impl TemplateTree {
    /// The names of the variants. The reader of documents chooses one by the type of a value.
    pub(crate) const VARIANTS: [&str; 4] = ["Scalar", "Text", "List", "Map"];

    /// Returns the value of a key, if this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&At<TemplateTree>> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|entry| entry.name.value == key).map(|entry| &entry.inner)
    }

    /// Returns the tree as JSON in which the texts are templates.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Scalar(scalar) => scalar.clone(),
            Self::Text(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Map(entries) => {
                entries.iter().map(|entry| (entry.name.value.clone(), entry.inner.value.to_json())).collect()
            }
        }
    }

    /// Returns `secret` and `key` of a mapping that consists of these two texts, a reference to a Secret.
    pub(crate) fn secret(&self) -> Option<(&str, &str)> {
        let text = |key| match &self.get(key)?.value {
            Self::Text(text) => Some(text.as_str()),
            _ => None,
        };
        let is_pair = matches!(self, Self::Map(entries) if entries.len() == 2);
        text("secret").zip(text("key")).filter(|_| is_pair)
    }
}

impl At<TemplateTree> {
    /// Returns the position of the value at a path such as `spec.containers[main].image`, or of the nearest one around it.
    pub(crate) fn place(&self, path: &str) -> LineColumn {
        let mut parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
        let found = parts.try_fold(self, |around, part| around.below(part).ok_or(around));
        found.unwrap_or_else(|nearest| nearest).at
    }

    /// Returns a field of a mapping, or an item of a list by its name or its number.
    fn below(&self, part: &str) -> Option<&Self> {
        let TemplateTree::List(items) = &self.value else { return self.value.get(part) };
        let is_named = |item: &&Self| match item.value.get("name").map(|name| &name.value) {
            Some(TemplateTree::Text(name)) => name == part,
            _ => false,
        };
        items.iter().find(is_named).or_else(|| items.get(part.parse::<usize>().ok()?))
    }
}
