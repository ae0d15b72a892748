//! Declared parameters.

use crate::load::reader::{DocumentReader, MapReader};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{At, ParamDoc, ParamKind};

pub(crate) const KEYS: [&str; 11] = [
    "type",
    "description",
    "default",
    "required",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "sensitive",
];
const KINDS: [(&str, ParamKind); 6] = [
    ("string", ParamKind::String),
    ("integer", ParamKind::Integer),
    ("number", ParamKind::Number),
    ("boolean", ParamKind::Boolean),
    ("object", ParamKind::Object),
    ("array", ParamKind::Array),
];

pub(super) fn param(reader: &mut DocumentReader<'_>, node: &YamlNode, path: &str) -> Option<ParamDoc> {
    let map = reader.map(node, path, &KEYS)?;
    let kind = kind(reader, &map)?;
    let description = reader.optional_string(&map, "description").map(|text| text.value);
    let sensitive = reader.flag(&map, "sensitive")?;
    let default = map.get("default").and_then(|node| {
        fits(reader, node, kind, &map.below("default")).then(|| At { value: node.to_json(), at: node.at })
    });
    let one_of = one_of(reader, &map, kind, default.as_ref());
    let optional = match map.get("required") {
        None => false,
        Some(node) => {
            let required = reader.flag(&map, "required")?;
            if required && default.is_some() {
                let wrong = reader.wrong("contradiction", node.at, format!("`{path}` is required and has a default"));
                reader.note(wrong.help("leave one of the two; without a default it is required anyway"));
            }
            !required && default.is_none()
        }
    };
    let (minimum, maximum) = (number(reader, &map, "minimum", kind), number(reader, &map, "maximum", kind));
    if let (Some(least), Some(most)) = (minimum, maximum)
        && least > most
    {
        contradiction(reader, &map, "minimum", "maximum");
    }
    let (min_length, max_length) = (length(reader, &map, "minLength", kind), length(reader, &map, "maxLength", kind));
    if let (Some(least), Some(most)) = (min_length, max_length)
        && least > most
    {
        contradiction(reader, &map, "minLength", "maxLength");
    }
    let pattern = reader.optional_string(&map, "pattern");
    if let Some(pattern) = &pattern
        && kind != ParamKind::String
    {
        useless(reader, pattern.at, "pattern", "string");
    }
    if sensitive && let Some(default) = &default {
        let wrong =
            reader.wrong("sensitive-default", default.at, format!("`{path}` is sensitive, its default would not be"));
        reader.note(
            wrong.help(
                "take the default out: the sandbox gives it as `{secret: NAME, key: KEY}` or wires an output to it",
            ),
        );
    }
    Some(ParamDoc {
        kind,
        default,
        optional,
        sensitive,
        one_of,
        minimum,
        maximum,
        min_length,
        max_length,
        pattern,
        description,
    })
}

fn kind(reader: &mut DocumentReader<'_>, map: &MapReader<'_>) -> Option<ParamKind> {
    let text = reader.required_string(map, "type")?;
    let found = KINDS.iter().find(|(name, _)| *name == text.value).map(|(_, kind)| *kind);
    if found.is_none() {
        let wrong = reader.wrong("unknown-value", text.at, format!("there is no type `{}`", text.value));
        reader.note_near(wrong, &text.value, KINDS.iter().map(|(name, _)| *name));
    }
    found
}

fn fits(reader: &mut DocumentReader<'_>, node: &YamlNode, kind: ParamKind, path: &str) -> bool {
    let (fits, wanted) = match kind {
        ParamKind::String => (matches!(node.value, YamlValue::String(_)), "a string"),
        ParamKind::Integer => {
            (matches!(&node.value, YamlValue::Number(n) if n.is_i64() || n.is_u64()), "a whole number")
        }
        ParamKind::Number => (matches!(node.value, YamlValue::Number(_)), "a number"),
        ParamKind::Boolean => (matches!(node.value, YamlValue::Bool(_)), "a boolean"),
        ParamKind::Object => (matches!(node.value, YamlValue::Map(_)), "a mapping"),
        ParamKind::Array => (matches!(node.value, YamlValue::List(_)), "a list"),
    };
    if !fits {
        reader.wrong_type(node, path, wanted);
    }
    fits
}

fn one_of(
    reader: &mut DocumentReader<'_>,
    map: &MapReader<'_>,
    kind: ParamKind,
    default: Option<&At<serde_json::Value>>,
) -> Vec<serde_json::Value> {
    let Some(node) = map.get("enum") else { return Vec::new() };
    let path = map.below("enum");
    let Some(items) = reader.list(node, &path) else { return Vec::new() };
    if items.is_empty() {
        let wrong = reader.wrong("empty", node.at, format!("`{path}` is empty"));
        reader.note(wrong.help("list the values that are allowed, or take it out"));
    }
    for (n, item) in items.iter().enumerate() {
        fits(reader, item, kind, &format!("{path}[{n}]"));
    }
    let values: Vec<_> = items.iter().map(YamlNode::to_json).collect();
    if let Some(default) = default.filter(|default| !values.contains(&default.value)) {
        let wrong =
            reader.wrong("contradiction", default.at, format!("the default {} is not in `enum`", default.value));
        let names: Vec<_> =
            values.iter().map(|value| value.as_str().map_or(value.to_string(), str::to_owned)).collect();
        let written = default.value.as_str().map_or(default.value.to_string(), str::to_owned);
        reader.note_near(wrong, &written, names.iter().map(String::as_str));
    }
    values
}

fn number(reader: &mut DocumentReader<'_>, map: &MapReader<'_>, key: &str, kind: ParamKind) -> Option<f64> {
    let node = map.get(key)?;
    if !matches!(kind, ParamKind::Integer | ParamKind::Number) {
        useless(reader, node.at, key, "integer` or `number");
    }
    match &node.value {
        YamlValue::Number(number) => number.as_f64(),
        _ => {
            reader.wrong_type(node, &map.below(key), "a number");
            None
        }
    }
}

fn length(reader: &mut DocumentReader<'_>, map: &MapReader<'_>, key: &str, kind: ParamKind) -> Option<u64> {
    let node = map.get(key)?;
    if kind != ParamKind::String {
        useless(reader, node.at, key, "string");
    }
    reader.integer(map, key, 0, u64::from(u32::MAX))
}

fn useless(reader: &mut DocumentReader<'_>, at: crate::model::LineColumn, key: &str, kinds: &str) {
    let wrong = reader.wrong("contradiction", at, format!("`{key}` says nothing of this type"));
    reader.note(wrong.help(format!("it goes with the type `{kinds}`")));
}

fn contradiction(reader: &mut DocumentReader<'_>, map: &MapReader<'_>, least: &str, most: &str) {
    let Some(node) = map.get(least) else { return };
    let wrong = reader.wrong("contradiction", node.at, format!("`{least}` is greater than `{most}`"));
    reader.note(wrong.help("swap them"));
}
