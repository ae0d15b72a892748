//! Trees whose strings may hold `${…}`.

use serde::Deserialize;
use serde_json::Value;

use super::placed::{At, Entries, Named};
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
        self.entry(key).map(|entry| &entry.inner)
    }

    /// Returns the value of a key, if it is a text.
    fn text(&self, key: &str) -> Option<&str> {
        if let Self::Text(text) = &self.get(key)?.value { Some(text) } else { None }
    }

    fn entry(&self, key: &str) -> Option<&Named<At<TemplateTree>>> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|entry| entry.name.value == key)
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
        let is_pair = matches!(self, Self::Map(entries) if entries.len() == 2);
        self.text("secret").zip(self.text("key")).filter(|_| is_pair)
    }
}

impl At<TemplateTree> {
    /// Returns the position of the value at a path such as `spec.containers[main].image`, or of the nearest one around it. A
    /// path with `#` at its end is that of a key. A part in brackets can have dots.
    pub(crate) fn place(&self, path: &str) -> LineColumn {
        let parts = path.split(['[', ']']).enumerate();
        let parts = parts.flat_map(|(n, part)| part.split(if n % 2 == 0 { '.' } else { ']' }));
        let mut parts = parts.filter(|part| !matches!(*part, "" | "#"));
        match parts.try_fold((self.at, self), |(_, around), part| around.below(part).ok_or(around.at)) {
            Ok((key, _)) if path.ends_with('#') => key,
            Ok((_, value)) => value.at,
            Err(nearest) => nearest,
        }
    }

    /// Returns a field of a mapping, or an item of a list by its name or its number, with the position of its key.
    fn below(&self, part: &str) -> Option<(LineColumn, &Self)> {
        let TemplateTree::List(items) = &self.value else {
            return self.value.entry(part).map(|field| (field.name.at, &field.inner));
        };
        let is_named = |item: &&Self| item.value.text("name") == Some(part);
        let item = items.iter().find(is_named).or_else(|| items.get(part.parse::<usize>().ok()?))?;
        Some((item.at, item))
    }
}
