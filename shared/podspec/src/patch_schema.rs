//! Checks that an overlay is a patch of a pod template: fields exist, values have the right types, and directives are
//! in valid places. A valid patch can be merged without an error.

use serde_json::{Map, Value};

use crate::fields::{self, FieldSchema, FieldType};
use crate::merge::{DELETE_FROM, DIRECTIVE, ORDER, RETAIN, same_key};
use crate::violation::{ViolationList, below};

/// Reports errors of a patch of a type at `path`.
pub(crate) fn check(patch: &Value, owner: &'static str, path: &str, report: &mut ViolationList) {
    check_value(patch, &FieldType::Fields(owner), None, path, report);
}

fn check_value(value: &Value, shape: &FieldType, key: Option<&str>, path: &str, report: &mut ViolationList) {
    match (shape, value) {
        (_, Value::Null)
        | (FieldType::Any, _)
        | (FieldType::Text, Value::String(_))
        | (FieldType::Bool, Value::Bool(_)) => {}
        (FieldType::Int, Value::Number(number)) if number.is_i64() => {}
        (FieldType::IntOrText, Value::Number(number)) if number.is_i64() => {}
        (FieldType::Quantity, Value::Number(_)) | (FieldType::IntOrText | FieldType::Quantity, Value::String(_)) => {}
        (FieldType::Fields(owner), Value::Object(map)) => check_fields(map, owner, path, report),
        (FieldType::Map(inner), Value::Object(map)) => {
            directive(map, path, report);
            for (name, value) in map.iter().filter(|(name, _)| *name != DIRECTIVE) {
                check_value(value, inner, None, &below(path, name), report);
            }
        }
        (FieldType::List(inner), Value::Array(items)) => check_items(items, inner, key, path, report),
        (shape, value) => {
            let why = format!("expected {}, got {}", wanted(shape), noun(value));
            report.add(path, why, "write a value of that type");
        }
    }
}

fn check_fields(map: &Map<String, Value>, owner: &'static str, path: &str, report: &mut ViolationList) {
    directive(map, path, report);
    for (name, value) in map {
        let at = below(path, name);
        if name == DIRECTIVE {
            continue;
        }
        if name == RETAIN {
            retained(map, value, &at, report);
        } else if let Some(list) = name.strip_prefix(ORDER) {
            ordered(map, value, list, fields::field(owner, list), &at, report);
        } else if let Some(list) = name.strip_prefix(DELETE_FROM) {
            match fields::field(owner, list).map(|field| &field.field_type) {
                Some(shape @ FieldType::List(inner))
                    if !matches!(**inner, FieldType::Fields(_)) && value.is_array() =>
                {
                    check_value(value, shape, None, &at, report);
                }
                _ => report.add(at, format!("`{list}` is not a list of texts"), "remove it"),
            }
        } else if let Some(field) = fields::field(owner, name) {
            check_value(value, &field.field_type, field.key, &at, report);
        } else {
            report.add(at, format!("there is no field `{name}` here"), suggestion(name, owner));
        }
    }
}

fn check_items(items: &[Value], inner: &FieldType, key: Option<&str>, path: &str, report: &mut ViolationList) {
    for (number, item) in items.iter().enumerate() {
        let item_key = key.and_then(|key| item.get(key)).map(|value| value.to_string().replace('"', ""));
        let at = format!("{path}[{}]", item_key.clone().unwrap_or_else(|| number.to_string()));
        if item.is_null() {
            report.add(at, "an item is null", "remove it");
            continue;
        }
        check_value(item, inner, None, &at, report);
        let Some(key) = key.filter(|key| !key.is_empty()) else { continue };
        if item.is_object()
            && item_key.is_none_or(|item_key| item_key == "null")
            && item.get(DIRECTIVE) != Some(&"replace".into())
        {
            report.add(at, format!("an item lacks its key `{key}`"), format!("write `{key}`"));
        }
    }
}

fn directive(map: &Map<String, Value>, path: &str, report: &mut ViolationList) {
    let Some(directive) = map.get(DIRECTIVE) else { return };
    if !["delete", "merge", "replace"].contains(&directive.as_str().unwrap_or_default()) {
        let why = format!("there is no `$patch: {}`", directive.as_str().unwrap_or("…"));
        report.add(below(path, DIRECTIVE), why, "write `delete`, `merge` or `replace`");
    }
}

/// A field that the patch sets must be retained.
fn retained(map: &Map<String, Value>, list: &Value, at: &str, report: &mut ViolationList) {
    let Some(list) = list.as_array().filter(|list| list.iter().all(Value::is_string)) else {
        return report.add(at, "`$retainKeys` is a list of field names", "write a list");
    };
    for (name, value) in map {
        let set = !name.starts_with('$') && !value.is_null();
        if set && !list.iter().any(|kept| kept == name) {
            report.add(at, format!("`{name}` is set but not retained"), format!("add `{name}` to the list"));
        }
    }
}

/// Checks that an order names items by their key, or texts, and that the patch's own list follows it.
fn ordered(
    map: &Map<String, Value>,
    order: &Value,
    list: &str,
    field: Option<&FieldSchema>,
    at: &str,
    report: &mut ViolationList,
) {
    let Some(key) = field.and_then(|field| field.key) else {
        return report.add(at, format!("`{list}` is not a merged list"), "remove it");
    };
    let fits = |item: &Value| {
        if key.is_empty() { item.is_string() } else { item.get(key).is_some_and(|it| !it.is_null()) }
    };
    let Some(order) = order.as_array().filter(|order| order.iter().all(fits)) else {
        let what = if key.is_empty() { "texts".to_owned() } else { format!("items with `{key}`") };
        return report.add(at, format!("expected a list of {what}"), "write such a list");
    };
    let mut rest = order.iter();
    let items = map.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for item in items.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        if !rest.any(|next| same_key(next, item, key)) {
            return report.add(at, format!("`{list}` is not in this order"), "name all of its items in their order");
        }
    }
}

fn suggestion(name: &str, owner: &'static str) -> String {
    let near = fields::names(owner)
        .map(|field| (strsim::damerau_levenshtein(&field.to_lowercase(), &name.to_lowercase()), field))
        .min()
        .filter(|(distance, _)| *distance <= name.len().div_ceil(3));
    match near {
        Some((_, field)) => format!("did you mean `{field}`?"),
        None => "remove it".to_owned(),
    }
}

fn wanted(shape: &FieldType) -> &'static str {
    match shape {
        FieldType::Text => "a text",
        FieldType::Bool => "true or false",
        FieldType::Int => "a whole number",
        FieldType::Quantity => "a quantity",
        FieldType::IntOrText => "a whole number or a text",
        FieldType::Any => "anything",
        FieldType::Fields(_) | FieldType::Map(_) => "a mapping",
        FieldType::List(_) => "a list",
    }
}

fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
