//! Arguments of tools, in the forms in which clients send them.
//!
//! Some clients send lists, objects, numbers and booleans as JSON text, one text for a list of texts, a document as an object or
//! as a block of Markdown, and an empty text for an argument that they leave out. The schema of a tool decides which values are
//! meant so, and what an error calls expected.

use ebb_protocol::lifecycle::{kind_and_name, singular_kind};
use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// Defines the arguments of a tool. Unknown ones are an error.
macro_rules! tool_arguments {
    ($(#[$attribute:meta])* $tool:ident: $($(#[$about:meta])* $argument:ident: $type:ty,)*) => {
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$attribute])*
        pub(crate) struct $tool {
            $($(#[$about])* pub(crate) $argument: $type,)*
        }
    };
}

pub(crate) use tool_arguments;

/// The argument whose text is a document.
const DOCUMENT: &str = "document";

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
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let is_given = |value: &Value| !value.is_null() && value != "";
    // Without a value, a switch such as `dry_run` could mean either.
    let is_switch = |name: &str| properties.get(name).is_some_and(|schema| types(schema).contains(&"boolean"));
    if let Some((name, _)) = members.iter().find(|(name, value)| !is_given(value) && is_switch(name)) {
        return Err(format!(
            "{parent}{name}: expected true or false, got no value; leave the argument out for its default"
        ));
    }
    members.retain(|name, value| required.contains(&name.as_str()) || is_given(value));
    for (name, value) in members.iter_mut() {
        let place = format!("{parent}{name}");
        let Some(schema) = properties.get(name) else {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            return Err(format!("unknown argument `{place}`; expected {}", known.join(", ")));
        };
        fit_value(value, schema, &place)?;
    }
    if properties.contains_key("kind") {
        // Answers name a target as KIND/NAME.
        let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
        let (stated, names) = (singular_kind(text("kind")), members.get("names").and_then(Value::as_array));
        let mut names = names.into_iter().flatten().filter_map(Value::as_str).chain(std::iter::once(text("name")));
        if let Some(other) = names.find(|given| !["", kind_and_name(stated, given).0].contains(&stated)) {
            return Err(format!("{parent}kind: {stated:?} contradicts {other:?}; correct one of them"));
        }
        let (kind, name) = kind_and_name(stated, text("name"));
        let given = [("kind", kind), ("name", name)].map(|(key, text)| (key.to_owned(), text.into()));
        members.extend(given.into_iter().filter(|(_, text): &(String, Value)| text != ""));
    }
    let missing = required.iter().find(|name| !members.contains_key(**name));
    missing.map_or(Ok(()), |name| Err(format!("the argument `{parent}{name}` is missing")))
}

fn fit_value(value: &mut Value, schema: &Value, place: &str) -> Result<(), String> {
    let types = types(schema);
    let wants = |name: &str| types.contains(&name);
    if let Value::String(text) = &*value
        && !wants("string")
        && let Ok(parsed) =
            serde_json::from_str::<Value>(&if wants("boolean") { text.to_lowercase() } else { text.clone() })
        && wants(type_of(&parsed))
    {
        *value = parsed;
    }
    *value = match value.take() {
        document @ Value::Object(_) if place == DOCUMENT => document.to_string().into(),
        Value::String(text) if place == DOCUMENT => unfenced(&text)?.into(),
        Value::String(text) if wants("array") => json!([text]),
        Value::String(text) if wants("object") && schema["properties"]["name"].is_object() => json!({"name": text}),
        Value::Array(mut items) if items.len() == 1 && wants("string") => items.remove(0),
        other => other,
    };
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

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        several => several.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    }
}

/// Returns the text in the only block of Markdown, or the whole text without one. No line of YAML or JSON begins with a fence.
fn unfenced(text: &str) -> Result<&str, String> {
    let trimmed = text.trim();
    let begins = |at: &usize| trimmed[..*at].is_empty() || trimmed[..*at].ends_with('\n');
    let fences = |fence| trimmed.match_indices::<&str>(fence).map(|(at, _)| at).filter(begins).collect::<Vec<_>>();
    let fence = if fences("```").is_empty() { "~~~" } else { "```" };
    let block = match fences(fence)[..] {
        [] => return Ok(text),
        [begin, end] => &trimmed[begin..end],
        [begin] => trimmed[begin..].strip_suffix(fence).unwrap_or_default(),
        _ => "",
    };
    let problem = "document: expected one block of Markdown with its end: give the document alone, or in one block";
    block.split_once('\n').map(|(_, inner)| inner).ok_or_else(|| problem.to_owned())
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
