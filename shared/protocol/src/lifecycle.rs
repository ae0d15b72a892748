//! Lifecycle webhooks in, notifications out: CloudEvents 1.0 signed with Standard Webhooks.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::callback::FailureReason;
use crate::value::{SecretRef, UnitValue};

/// `type` of the webhook that asks for a target.
pub const CREATED: &str = "dev.ebb.target.created.v1";
/// `type` of the webhook that changes one.
pub const UPDATED: &str = "dev.ebb.target.updated.v1";
/// `type` of the webhook that ends one.
pub const DELETED: &str = "dev.ebb.target.deleted.v1";
/// `type` of the notification "its resources are there".
pub const READY: &str = "dev.ebb.target.ready.v1";
/// `type` of the notification "a unit failed".
pub const FAILED: &str = "dev.ebb.target.failed.v1";
/// `type` of the notification "teardown has given up, an operator has to act".
pub const STUCK: &str = "dev.ebb.target.stuck.v1";
/// `type` of the notification "nothing is left".
pub const GONE: &str = "dev.ebb.target.gone.v1";

/// Largest generation: the largest integer that all readers of JSON hold exactly (RFC 7493). With the largest of 64 bits
/// a target could never be changed again.
pub const MAX_GENERATION: u64 = (1 << 53) - 1;

/// `data` of a lifecycle webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LifecycleData {
    /// `sandbox`, `routegroup`, any kind: `[a-z][a-z0-9-]*`, at most 63 characters.
    pub kind: String,
    /// The target's name, at most 253 characters.
    pub name: String,
    /// Identity of this life, at most 128 characters: another target of the same name has another uid.
    pub uid: String,
    /// Rises with each change; 1 if left out, at most 2^53 - 1.
    #[serde(default = "first")]
    pub generation: u64,
    /// The target's document, YAML or JSON as text, `@{…}` expanded. Needed to create or update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// What scripts see as `SIGNADOT_SANDBOX_ROUTING_KEY`; the key of the target if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
}

fn first() -> u64 {
    1
}

/// `data` of a notification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeData {
    /// The target's kind.
    pub kind: String,
    /// The target's name.
    pub name: String,
    /// The target's uid.
    pub uid: String,
    /// The generation that the notification is of.
    pub generation: u64,
    /// Outputs by resource and key. With `ready`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, BTreeMap<String, OutputValue>>,
    /// The document's own `env`. With `ready`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, OutputValue>,
    /// The unit that failed first. With `failed` and `stuck`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Why. With `failed` and `stuck`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Why it has stopped. With `gone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_cause: Option<TargetStopCause>,
    /// True if an operator overrode units of its teardown: the resources that they remove may still exist. With `gone`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overridden: bool,
}

/// The reason why a target stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetStopCause {
    /// It was deleted. A target that does not stop has this, too.
    Deleted,
    /// Its time to live ended.
    Expired,
}

/// A value handed to the platform: `{"value": …}`, `{"base64": "…"}` or `{"secret": {…}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputValue {
    /// JSON; text outputs are strings.
    Value(serde_json::Value),
    /// Bytes that are no text.
    Base64(String),
    /// A reference to where the value is.
    Secret(SecretRef),
}

impl From<UnitValue> for OutputValue {
    fn from(value: UnitValue) -> Self {
        match value {
            UnitValue::Json(json) => Self::Value(json),
            UnitValue::Bytes(bytes) => Self::Base64(STANDARD.encode(bytes)),
            UnitValue::Secret(secret) => Self::Secret(secret),
        }
    }
}

/// The answer to a lifecycle webhook, with status 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleResponse {
    /// `KIND/NAME`.
    pub target: String,
    /// The uid.
    pub uid: String,
    /// The generation that the target has; an update that changes nothing keeps it.
    pub generation: u64,
    /// What the webhook was taken for.
    pub result: LifecycleResult,
}

/// What a lifecycle webhook was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LifecycleResult {
    /// The target starts, or has.
    Starting,
    /// It waits until another life of the same name is gone.
    Waiting,
    /// The target stops, or has, or never was.
    Stopping,
    /// The update asks for what the target already has.
    Unchanged,
    /// The update asks for what the target already has; its failed units are tried again.
    Retrying,
}

/// A field that breaks its rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// The field as it is written in JSON.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl LifecycleData {
    /// Characters of a kind.
    pub const MAX_KIND: usize = 63;
    /// Characters of a name.
    pub const MAX_NAME: usize = 253;
    /// Bytes of a name. The table keeps each byte of what is no ASCII as three, and takes 1,024 for a key of an index.
    pub const MAX_NAME_BYTES: usize = 300;
    /// Characters of a uid.
    pub const MAX_UID: usize = 128;
    /// Bytes of a uid, for the same reason.
    pub const MAX_UID_BYTES: usize = 300;
    /// Characters of a routing key.
    pub const MAX_ROUTING_KEY: usize = 128;

    /// Checks every field but the document, which is parsed elsewhere. Texts are counted in characters. They become parts of
    /// keys and of paths, which gateways decode before they pass them on: they hold nothing that a path takes for something
    /// else.
    pub fn validate(&self) -> Result<(), FieldError> {
        kind(&self.kind)?;
        name(&self.name)?;
        plain_text("uid", &self.uid, Self::MAX_UID)?;
        at_most("uid", &self.uid, Self::MAX_UID_BYTES)?;
        if let Some(key) = &self.routing_key {
            plain_text("routingKey", key, Self::MAX_ROUTING_KEY)?;
        }
        if self.generation == 0 {
            let problem = "is 0: generations count from 1".to_owned();
            return Err(FieldError { field: "generation", problem });
        }
        if self.generation > MAX_GENERATION {
            let problem = format!("is {}: expected at most {MAX_GENERATION}", self.generation);
            return Err(FieldError { field: "generation", problem });
        }
        Ok(())
    }
}

/// The characters that end a segment of a path, or are decoded in it.
const UNSAFE: [char; 5] = ['/', '#', '%', '?', '\\'];

/// Checks the kind of a target.
///
/// # Errors
/// When it does not match `[a-z][a-z0-9-]*` or is too long.
pub fn kind(kind: &str) -> Result<(), FieldError> {
    let bytes = kind.as_bytes();
    let letters = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let shaped = bytes.first().is_some_and(u8::is_ascii_lowercase) && bytes.iter().all(letters);
    if shaped && bytes.len() <= LifecycleData::MAX_KIND {
        return Ok(());
    }
    let problem = format!(
        "is {:?}: expected a-z first, then a-z, 0-9 and -, at most {} characters",
        crate::limits::message(kind),
        LifecycleData::MAX_KIND
    );
    Err(FieldError { field: "kind", problem })
}

/// Checks the name of a target.
///
/// # Errors
/// When it is empty, too long, or has white space, control characters or what means something in a path.
pub fn name(name: &str) -> Result<(), FieldError> {
    plain_text("name", name, LifecycleData::MAX_NAME)?;
    at_most("name", name, LifecycleData::MAX_NAME_BYTES)
}

fn at_most(field: &'static str, text: &str, bytes: usize) -> Result<(), FieldError> {
    match text.len() > bytes {
        true => Err(FieldError { field, problem: format!("is longer than {bytes} bytes of UTF-8") }),
        false => Ok(()),
    }
}

fn plain_text(field: &'static str, text: &str, most: usize) -> Result<(), FieldError> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.chars().count() > most {
        format!("is longer than {most} characters")
    } else if text.chars().any(|c| c.is_control() || c.is_whitespace() || UNSAFE.contains(&c)) {
        "holds white space, a control character or one of / # % ? \\: leave them out".to_owned()
    } else if matches!(text, "." | "..") {
        format!("is {text:?}, which is a folder in a path: expected another text")
    } else {
        return Ok(());
    };
    Err(FieldError { field, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> Option<String> {
        let event = LifecycleData {
            kind: "sandbox".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            generation: 1,
            document: None,
            routing_key: None,
        };
        event.validate().err().map(|invalid| invalid.to_string())
    }

    #[test]
    fn names_that_no_key_or_path_can_have_are_refused() {
        for name in ["a/b", "a#b", "a%41", "a?b", "a\\b", "a b", "a\nb"] {
            assert!(problem(name).unwrap().contains("one of / # % ? \\: leave them out"), "{name}");
        }
        for name in [".", ".."] {
            assert!(problem(name).unwrap().contains("a folder in a path"), "{name}");
        }
        assert_eq!(problem("...").or_else(|| problem("a.b-c_d~e:f@g!\"")), None);
        // 75 characters of four bytes.
        assert_eq!(problem(&"\u{1f40b}".repeat(75)), None);
        assert_eq!(problem(&"\u{1f40b}".repeat(76)).unwrap(), "name is longer than 300 bytes of UTF-8");
        assert_eq!(problem(&"a".repeat(254)).unwrap(), "name is longer than 253 characters");
    }
}
