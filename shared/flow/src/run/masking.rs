//! Replaces secret texts in what comes from outside.

use std::borrow::Cow;
use std::sync::LazyLock;

use ebb_protocol::named_secrets::SecretText;
use regex::{Captures, Regex};
use serde_json::Value;

/// The replacement of a masked value.
pub(crate) const MASK: &str = "***";

/// The escapes of JSON.
static ESCAPES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)(?:\\u[0-9A-Fa-f]{4})+|\\.").expect("the pattern is a literal"));

/// Returns a secret text as it is, and as JSON has it without its quotation marks if that differs.
pub(super) fn forms(text: &str) -> impl Iterator<Item = SecretText> {
    let json = SecretText::new(Value::from(text).to_string());
    let escaped = json.get(1..json.len() - 1).filter(|form| *form != text).map(str::to_owned);
    std::iter::once(text.to_owned()).chain(escaped).map(SecretText::new)
}

/// Returns a text without the `opened` texts.
pub(super) fn masked(text: &str, opened: &[SecretText]) -> String {
    let opened: Vec<&str> = opened.iter().map(|secret| secret.as_str()).collect();
    masked_texts(text, &opened)
}

/// Returns a text without `secrets`, in whatever escapes of JSON it has them.
pub(super) fn masked_texts(text: &str, secrets: &[&str]) -> String {
    let plain = plain_escapes(text);
    // A text without a secret keeps its escapes.
    let is_hidden = matches!(plain, Cow::Owned(_)) && secrets.iter().any(|secret| plain.contains(secret));
    let text = if is_hidden { plain.into_owned() } else { text.to_owned() };
    secrets.iter().fold(text, |text, secret| text.replace(secret, MASK))
}

/// Writes the escapes of JSON as Ebb writes them: other programs escape slashes, and characters that need no escape.
fn plain_escapes(text: &str) -> Cow<'_, str> {
    ESCAPES.replace_all(text, |found: &Captures<'_>| match &found[0] {
        r"\/" => "/".to_owned(),
        escapes => match serde_json::from_str::<String>(&format!("\"{escapes}\"")) {
            Ok(text) => {
                let json = Value::from(text).to_string();
                json[1..json.len() - 1].to_owned()
            }
            Err(_) => escapes.to_owned(),
        },
    })
}
