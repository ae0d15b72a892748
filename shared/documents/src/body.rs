//! The formats of bodies of requests, by their content type.

use serde_json::Value;

use crate::cel::MAX_VALUE_BYTES;
use crate::template::joinable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Form,
    /// Text or bytes, sent as they are.
    Plain,
}

impl BodyFormat {
    /// Returns the format of a content type. A body without one is JSON.
    pub(crate) fn of(content_type: Option<&str>) -> Self {
        let Some(content_type) = content_type else { return Self::Json };
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "application/json" => Self::Json,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Plain,
        }
    }
}

/// Returns the names and texts of the fields of a form. Names of nested fields have brackets, as `metadata[target]` and
/// `items[0][price]`. `null` is left out. Returns `None` if they have more than [`MAX_VALUE_BYTES`].
pub(crate) fn fields(form: &Value) -> Option<Vec<(String, String)>> {
    let (mut found, mut left) = (Vec::new(), MAX_VALUE_BYTES);
    add_fields("", form, &mut found, &mut left)?;
    Some(found)
}

/// Each value costs its name, because a long key would otherwise be copied for every value below it.
fn add_fields(name: &str, value: &Value, found: &mut Vec<(String, String)>, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(name.len())?;
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}[{key}]") };
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (key, member) in members {
                add_fields(&inner(key), member, found, left)?;
            }
        }
        Value::Array(items) => {
            for (position, item) in items.iter().enumerate() {
                add_fields(&inner(&position.to_string()), item, found, left)?;
            }
        }
        scalar => {
            let text = joinable(scalar.clone());
            *left = left.checked_sub(text.len())?;
            found.push((name.to_owned(), text));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_fields_have_brackets_and_a_bounded_size() {
        let form = json!({"a": {"b c": "x", "n": null}, "i": [{"p": 1}, true], "e": []});
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let expected = vec![pair("a[b c]", "x"), pair("i[0][p]", "1"), pair("i[1]", "true")];
        assert_eq!(fields(&form), Some(expected));
        let large = json!({"k".repeat(MAX_VALUE_BYTES / 8): [[], [], [], [], [], [], [], []]});
        assert_eq!(fields(&large), None);
    }
}
