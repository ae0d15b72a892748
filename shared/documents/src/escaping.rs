//! Texts and trees as templates whose value they are.

use serde_json::Value;

/// Returns the template whose value is this text.
pub(crate) fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

/// Returns the tree of templates whose value is this tree. Keys are not templates.
pub(crate) fn escape_tree(value: Value) -> Value {
    with_texts(value, &|text| escape(&text))
}

/// Returns a tree with other texts. Keys stay.
pub(crate) fn with_texts(value: Value, change: &dyn Fn(String) -> String) -> Value {
    match value {
        Value::String(text) => change(text).into(),
        Value::Array(items) => items.into_iter().map(|item| with_texts(item, change)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, with_texts(value, change))).collect(),
        scalar => scalar,
    }
}
