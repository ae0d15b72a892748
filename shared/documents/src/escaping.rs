//! Texts and trees as templates whose value they are.

use std::convert::Infallible;

use serde_json::{Map, Value};

/// Returns the template whose value is this text.
pub(crate) fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

/// Returns the tree of templates whose value is this tree. Keys are not templates.
pub(crate) fn escape_tree(value: Value) -> Value {
    with_texts(&value, escape)
}

/// Returns a tree with other texts. Keys stay.
pub(crate) fn with_texts(tree: &Value, change: impl Fn(&str) -> String) -> Value {
    let Ok(changed) = with_values(tree, &|text: &str| Ok::<_, Infallible>(Some(Value::from(change(text)))));
    changed.unwrap_or_default()
}

/// Returns a tree with the values of its texts. Entries without a value are omitted. Returns `None` for a text without a
/// value.
pub(crate) fn with_values<E>(
    tree: &Value,
    value: &impl Fn(&str) -> Result<Option<Value>, E>,
) -> Result<Option<Value>, E> {
    Ok(Some(match tree {
        Value::String(text) => return value(text),
        Value::Array(items) => {
            let made: Result<Vec<Option<Value>>, E> = items.iter().map(|item| with_values(item, value)).collect();
            made?.into_iter().flatten().collect()
        }
        Value::Object(map) => {
            let mut made = Map::with_capacity(map.len());
            for (key, entry) in map {
                if let Some(entry) = with_values(entry, value)? {
                    made.insert(key.clone(), entry);
                }
            }
            made.into()
        }
        scalar => scalar.clone(),
    }))
}
