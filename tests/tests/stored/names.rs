//! What things that are stored are made of: attributes, and the fields of those that hold JSON, by their names.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::fixture::{Item, Stored};

/// The attribute of [`Stored::of_a_newer_version`].
pub(crate) const NEWER: &str = "newer";

/// `t#…` is `t`; further heads of runs, records and late results are told apart.
fn kind(item: &Item) -> String {
    let (partition, sort) = (key(item, "pk"), key(item, "sk"));
    let partition = partition.split('#').next().unwrap_or_default();
    match (partition, sort.split('#').next()) {
        ("r", Some("h")) if sort != "h" => "r h#".to_owned(),
        ("r", Some("u")) if sort.contains("#late#") => "r u late".to_owned(),
        ("r", Some(part)) => format!("r {part}"),
        _ => partition.to_owned(),
    }
}

pub(crate) fn key<'a>(item: &'a Item, part: &str) -> &'a str {
    item[part]["S"].as_str().unwrap_or_default()
}

/// The JSON in an attribute.
fn parsed(value: &Value) -> Option<Value> {
    let parsed: Value = serde_json::from_str(value["S"].as_str()?).ok()?;
    (parsed.is_object() || parsed.is_array()).then_some(parsed)
}

/// The fields of `value`, each after those that it is in.
fn fields(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}.{name}");
                fields(&path, value, found);
                found.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(path, value, found)),
        _ => {}
    }
}

/// Gives a field another name. False: there is none.
fn rename(value: &mut Value, path: &[&str]) -> bool {
    match (value, path) {
        (Value::Array(values), _) => {
            // In all of them, and not in the first alone.
            values.iter_mut().map(|value| rename(value, path)).filter(|renamed| *renamed).count() > 0
        }
        (Value::Object(members), [name]) => match members.remove(*name) {
            Some(value) => members.insert(format!("former-{name}"), value).is_none(),
            None => false,
        },
        (Value::Object(members), [name, path @ ..]) => {
            members.get_mut(*name).is_some_and(|value| rename(value, path))
        }
        _ => false,
    }
}

/// Gives `path` of an item, an attribute or a field of one, another name. False: it has none.
fn rename_in(item: &mut Item, path: &str) -> bool {
    let (attribute, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(mut value) = item.remove(attribute) else { return false };
    if rest.is_empty() {
        return item.insert(format!("former-{attribute}"), value).is_none();
    }
    let mut json = parsed(&value);
    let path: Vec<&str> = rest.split('.').collect();
    let is_renamed = json.as_mut().is_some_and(|json| rename(json, &path));
    if let Some(json) = json {
        value = json!({"S": json.to_string()});
    }
    item.insert(attribute.to_owned(), value);
    is_renamed
}

impl Stored {
    /// Kind and name of all attributes but keys, and of all fields.
    pub(crate) fn parts(&self) -> BTreeSet<(String, String)> {
        let mut parts = BTreeSet::new();
        for item in &self.table {
            let mut names = BTreeSet::new();
            for (name, value) in item.iter().filter(|(name, _)| *name != "pk" && *name != "sk") {
                names.insert(name.clone());
                if let Some(value) = parsed(value) {
                    fields(name, &value, &mut names);
                }
            }
            parts.extend(names.into_iter().map(|name| (kind(item), name)));
        }
        parts
    }

    /// All parts, the types of attributes, and the folders of the bucket.
    pub(crate) fn shape(&self) -> BTreeSet<String> {
        let types = self.table.iter().flat_map(|item| {
            let types = item.iter().flat_map(|(name, value)| Some((name, value.as_object()?.keys().next()?)));
            types.map(|(name, of)| format!("{} {name} as {of}", kind(item)))
        });
        let folders = self.bucket.keys().filter_map(|key| key.split('/').next());
        let folders = folders.map(|folder| format!("bucket {folder}/"));
        let parts = self.parts().into_iter().map(|(kind, name)| format!("{kind} {name}"));
        types.chain(folders).chain(parts).collect()
    }

    /// The same with another name for a part; and what the items with it are called, in errors: by their keys, and by the
    /// targets that they are of.
    pub(crate) fn renamed(&self, of: &str, name: &str) -> (Self, BTreeSet<String>) {
        let mut stored = self.clone();
        let mut called = BTreeSet::new();
        for item in stored.table.iter_mut().filter(|item| kind(item) == of) {
            if rename_in(item, name) {
                let partition = key(item, "pk");
                let root =
                    self.table.iter().find(|root| key(root, "pk") == partition && key(root, "sk") == "h");
                let target = root.and_then(|root| root.get("n")?["S"].as_str());
                called.extend(partition.rsplit('#').next().into_iter().chain(target).map(str::to_owned));
            }
        }
        (stored, called)
    }

    /// The same with another value for an attribute, of all items of a kind that have it.
    pub(crate) fn with(&self, of: &str, attribute: &str, value: &Value) -> Self {
        let mut stored = self.clone();
        for item in stored.table.iter_mut().filter(|item| kind(item) == of) {
            if let Some(before) = item.get_mut(attribute) {
                *before = value.clone();
            }
        }
        stored
    }

    /// The same with an attribute in each item that this version does not know.
    pub(crate) fn of_a_newer_version(&self) -> Self {
        let mut stored = self.clone();
        for item in &mut stored.table {
            item.insert(NEWER.to_owned(), json!({"S": "what this version does not know"}));
        }
        stored
    }

    /// The ids of all letters.
    pub(crate) fn letters(&self) -> impl Iterator<Item = &str> {
        self.table.iter().filter(|item| kind(item) == "mail").map(|item| key(item, "sk"))
    }
}
