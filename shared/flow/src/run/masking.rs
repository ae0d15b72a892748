//! Replaces secret texts in what comes from outside, among them the sensitive values that a dispatch has decrypted.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use ebb_documents::plan::UnitPlan;
use ebb_documents::render::RenderValue;
use ebb_protocol::{Outputs, SecretText, UnitValue};
use regex::{Captures, Regex};
use serde_json::Value;

use crate::run::records;

pub(crate) const MASK: &str = "***";

static ESCAPES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?s)(?:\\u[0-9A-Fa-f]{4})+|\\.|(?:%[0-9A-Fa-f]{2})+").expect("the pattern is a literal")
});

/// Returns a secret text as it is, and, if they differ, as JSON has it without its quotation marks and with the blanks of a
/// form.
pub(super) fn forms(text: &str) -> impl Iterator<Item = SecretText> {
    let json = SecretText::new(Value::from(text).to_string());
    let escaped = json.get(1..json.len() - 1).filter(|form| *form != text).map(str::to_owned);
    let form = text.contains(' ').then(|| text.replace(' ', "+"));
    std::iter::once(text.to_owned()).chain(escaped).chain(form).map(SecretText::new)
}

/// Returns a text without `secrets`, in whatever escapes of JSON, URLs and forms it has them.
pub(super) fn masked(text: &str, secrets: &[impl AsRef<str>]) -> String {
    let hidden = |text: &str| secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_ref(), MASK));
    // A secret may itself look like an escape.
    let masked = hidden(text);
    let Cow::Owned(plain) = plain_escapes(&masked) else { return masked };
    // A text without a secret keeps its escapes.
    if secrets.iter().any(|secret| plain.contains(secret.as_ref())) { hidden(&plain) } else { masked }
}

/// Writes the escapes of JSON as Ebb writes them: other programs escape slashes, and characters that need no escape. Decodes
/// those of URLs.
fn plain_escapes(text: &str) -> Cow<'_, str> {
    ESCAPES.replace_all(text, |found: &Captures<'_>| match &found[0] {
        r"\/" => "/".to_owned(),
        escapes => {
            let decoded = match escapes.strip_prefix('%') {
                Some(encoded) => {
                    let bytes = encoded.split('%').map(|byte| u8::from_str_radix(byte, 16));
                    bytes.collect::<Result<Vec<u8>, _>>().ok().and_then(|bytes| String::from_utf8(bytes).ok())
                }
                None => serde_json::from_str::<String>(&format!("\"{escapes}\"")).ok(),
            };
            decoded.map_or(escapes.to_owned(), |text| {
                let json = Value::from(text).to_string();
                json[1..json.len() - 1].to_owned()
            })
        }
    })
}

/// Minimum bytes of a masked text. Masking shorter ones would remove large parts of an answer.
const MIN_BYTES: usize = 4;

/// Adds the texts of a decrypted value. The longest ones must be masked first.
pub(super) fn add_opened(opened: &mut Vec<SecretText>, json: &Value) {
    match json {
        Value::String(text) => opened.extend(forms(text).filter(|form| form.len() >= MIN_BYTES)),
        Value::Array(items) => items.iter().for_each(|item| add_opened(opened, item)),
        Value::Object(members) => members.values().for_each(|member| add_opened(opened, member)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the outputs of a unit as values, masked as by [`mask_outputs`].
pub(super) fn unit_values(unit: &UnitPlan, outputs: BTreeMap<String, RenderValue>, opened: &[SecretText]) -> Outputs {
    let values = outputs.into_iter().map(|(name, value)| (name, records::from_rendered(value))).collect();
    mask_outputs(unit, values, opened.to_vec())
}

/// Masks `secrets`, and sensitive outputs that are texts, in the outputs that are not sensitive. A part of a sensitive list or
/// object stays: it can be the ID that an undo needs.
pub(super) fn mask_outputs(unit: &UnitPlan, mut outputs: Outputs, mut secrets: Vec<SecretText>) -> Outputs {
    sensitive(unit, &outputs).filter(|value| value.is_string()).for_each(|text| add_opened(&mut secrets, text));
    secrets.sort_by_key(|text| Reverse(text.len()));
    for (name, value) in outputs.iter_mut().filter(|_| !secrets.is_empty()) {
        if let UnitValue::Json(json) = value
            && !is_sensitive(unit, name)
        {
            *json = masked_json(std::mem::take(json), &secrets);
        }
    }
    outputs
}

/// Returns a text without the sensitive values of these outputs.
pub(super) fn without_sensitive(unit: &UnitPlan, outputs: &Outputs, text: &str) -> String {
    let mut secrets = Vec::new();
    sensitive(unit, outputs).for_each(|value| add_opened(&mut secrets, value));
    secrets.sort_by_key(|text| Reverse(text.len()));
    if secrets.is_empty() { text.to_owned() } else { masked(text, &secrets) }
}

fn is_sensitive(unit: &UnitPlan, name: &str) -> bool {
    unit.outputs.get(name).is_some_and(|output| output.sensitive)
}

fn sensitive<'a>(unit: &'a UnitPlan, outputs: &'a Outputs) -> impl Iterator<Item = &'a Value> {
    outputs.iter().filter_map(move |(name, value)| match value {
        UnitValue::Json(json) if is_sensitive(unit, name) => Some(json),
        _ => None,
    })
}

fn masked_json(json: Value, opened: &[SecretText]) -> Value {
    match json {
        Value::String(text) => masked(&text, opened).into(),
        Value::Array(items) => items.into_iter().map(|item| masked_json(item, opened)).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (masked(&name, opened), masked_json(value, opened))).collect()
        }
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_of_a_decrypted_text_is_masked() {
        let mut opened = Vec::new();
        add_opened(&mut opened, &json!({"dsn": "a\"canary", "parts": ["canary", "abc"], "port": 5432}));
        for text in
            ["a\"canary", r#"{"dsn":"a\"canary"}"#, "see canary", r#"{"dsn":"a\u0022c\u0061nary"}"#, "k=a%22can%61ry&x"]
        {
            let masked = masked(text, &opened);
            assert!(masked.contains(MASK) && !masked.contains("canary"), "{masked}");
        }
        assert_eq!(masked("abc 5432 a%2Fb", &opened), "abc 5432 a%2Fb");
        let mut phrase = Vec::new();
        add_opened(&mut phrase, &json!("two words/%41"));
        assert_eq!(masked("k=two+words%2f%2541&l=two%20words%2F%2541&m=two words/%41", &phrase), "k=***&l=***&m=***");
        let json = masked_json(json!({"canary": [{"k": "x-canary"}, 1]}), &opened);
        assert_eq!(json, json!({"***": [{"k": "x-***"}, 1]}));
    }
}
