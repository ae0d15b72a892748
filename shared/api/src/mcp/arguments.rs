//! Arguments of tools, in the forms in which clients send them.
//!
//! Some clients send lists, objects, numbers and booleans as JSON text, and an empty text for an argument that they leave out.
//! The schema of a tool decides which texts are meant so, and what an error calls expected.

use ebb_protocol::lifecycle::{kind_and_name, singular_kind};
use rmcp::model::JsonObject;
use serde_json::Value;

/// Gives arguments the types of their schema.
///
/// # Errors
/// Returns the place of the first argument that does not fit, with what was expected.
pub(crate) fn fit(arguments: &mut JsonObject, schema: &JsonObject) -> Result<(), String> {
    fit_members(arguments, schema, "")
}

/// Fits the members of an object. `parent` is what precedes their names in errors.
fn fit_members(members: &mut JsonObject, schema: &JsonObject, parent: &str) -> Result<(), String> {
    let no_properties = JsonObject::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&no_properties);
    if properties.contains_key("kind") {
        // Answers name a target as KIND/NAME.
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, name) = kind_and_name(text("kind"), text("name"));
        let given = [("kind", singular_kind(kind)), ("name", name)].map(|(key, text)| (key.to_owned(), text.into()));
        members.extend(given.into_iter().filter(|(_, text): &(String, Value)| text != ""));
    }
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let is_given = |value: &Value| !value.is_null() && value != "";
    members.retain(|name, value| required.contains(&name.as_str()) || is_given(value));
    for (name, value) in members.iter_mut() {
        let place = format!("{parent}{name}");
        let Some(schema) = properties.get(name) else {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            return Err(format!("unknown argument `{place}`; expected {}", known.join(", ")));
        };
        fit_value(value, schema, &place)?;
    }
    let missing = required.iter().find(|name| !members.contains_key(**name));
    missing.map_or(Ok(()), |name| Err(format!("the argument `{parent}{name}` is missing")))
}

fn fit_value(value: &mut Value, schema: &Value, place: &str) -> Result<(), String> {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        several => several.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    };
    if let Value::String(text) = &*value
        && !types.contains(&"string")
        && let Ok(parsed) = serde_json::from_str::<Value>(text)
        && types.contains(&type_of(&parsed))
    {
        *value = parsed;
    }
    let got = type_of(value);
    if !types.is_empty() && !types.contains(&got) {
        let expected = types.first().copied().unwrap_or_default();
        return Err(format!("{place}: expected {}, got {}", described(expected), described(got)));
    }
    match (value, schema.as_object()) {
        (Value::Object(members), Some(schema)) => fit_members(members, schema, &format!("{place}.")),
        (Value::Array(items), _) => {
            let mut items = items.iter_mut().enumerate();
            items.try_for_each(|(number, item)| fit_value(item, &schema["items"], &format!("{place}[{number}]")))
        }
        _ => Ok(()),
    }
}

/// Returns the type of a value in a schema. No argument is a negative number.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn described(name: &str) -> &str {
    match name {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "another number",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}
