//! Lifecycle webhooks in, notifications out: CloudEvents 1.0 signed as Standard Webhooks.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::engine::EventName;
use crate::limits::is_unprintable;
use crate::{FailureReason, InstanceRef, ResourceRemoval, SecretRef, TargetKey, UnitValue};

/// The webhook `type` that creates a target.
pub const CREATED: &str = "dev.ebb.target.created.v1";
/// The webhook `type` that updates a target.
pub const UPDATED: &str = "dev.ebb.target.updated.v1";
/// The webhook `type` that deletes a target.
pub const DELETED: &str = "dev.ebb.target.deleted.v1";
/// The webhook `type` that runs a hook such as `sleep` of a ready target.
pub const EVENT: &str = "dev.ebb.target.event.v1";
/// The notification `type` of a target whose resources are ready.
pub const READY: &str = "dev.ebb.target.ready.v1";
/// The notification `type` of a target with a failed unit.
pub const FAILED: &str = "dev.ebb.target.failed.v1";
/// The notification `type` of a target whose teardown waits for an operator.
pub const STUCK: &str = "dev.ebb.target.stuck.v1";
/// The notification `type` of a target whose teardown is complete.
pub const GONE: &str = "dev.ebb.target.gone.v1";

/// The largest generation. JSON readers represent larger integers inexactly (RFC 7493).
pub const MAX_GENERATION: u64 = (1 << 53) - 1;

/// `data` of a lifecycle webhook.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LifecycleData {
    /// For example `sandbox` or `routegroup`: `[a-z][a-z0-9-]*`, at most 63 characters.
    #[schema(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    pub kind: String,
    /// The name of the target, at most 253 characters.
    #[schema(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,253}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub name: String,
    /// The identity of the instance under its kind and name, at most 128 characters.
    #[schema(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,128}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub uid: String,
    /// Rises with each change of the document. The default is 1, the maximum 2^53 - 1.
    #[serde(default = "crate::one")]
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub generation: u64,
    /// The document as YAML or JSON text, with all `@{…}` expanded. Required for a creation and an update.
    pub document: Option<String>,
    /// The value of `SIGNADOT_SANDBOX_ROUTING_KEY`. The default is the key of the target.
    #[schema(pattern = r"^(?!\.{1,2}$)[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,128}$")]
    pub routing_key: Option<String>,
    /// The name of the event: `[a-z][a-z0-9]*`, at most 11 characters. Required for an event, and only allowed there.
    #[schema(pattern = "^(?!(on|update|(pre|post)(start|stop))$)[a-z][a-z0-9]{0,10}$")]
    pub event: Option<String>,
}

/// `data` of a notification.
#[serde_with::apply(BTreeMap => #[serde(default, skip_serializing_if = "BTreeMap::is_empty")])]
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeData {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub generation: u64,
    /// Outputs by resource and key. With `ready`.
    pub outputs: BTreeMap<String, BTreeMap<String, OutputValue>>,
    /// The document's `env`. With `ready`.
    pub env: BTreeMap<String, OutputValue>,
    /// The values that the workloads of a Signadot sandbox read, by workload: `KIND/NAMESPACE/NAME` for the origin of a
    /// fork, `local/NAME` for a local workload. With `ready`.
    pub workloads: BTreeMap<String, Vec<WorkloadValue>>,
    /// The URL of the target in the API, if the outputs are too large for a notification. Then `outputs`, `env` and
    /// `workloads` are left out. With `ready`.
    pub outputs_url: Option<String>,
    /// The name of the event. With `event-succeeded` and `event-failed`.
    pub event: Option<String>,
    /// The run of the event.
    pub run: Option<String>,
    /// The unit that failed first. With `failed`, `stuck` and `event-failed`.
    pub unit: Option<String>,
    /// The reason of the failure. With `failed`, `stuck` and `event-failed`.
    pub reason: Option<FailureReason>,
    /// The reason of the stop. With `gone`.
    pub stop_cause: Option<TargetStopCause>,
    /// True if an operator overrode units of the teardown. Their resources may still exist. With `gone`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overridden: bool,
    /// The evidence that resources are gone, if that of one is `unconfirmed`: the lowest grades first, at most 100. With
    /// `gone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<ResourceRemoval>,
}

/// A value of a workload: a variable or a file.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkloadValue {
    /// The name of the variable.
    pub env: Option<String>,
    /// The container of the variable. Absent for all containers.
    pub container: Option<String>,
    /// The path of the file.
    pub file: Option<String>,
    #[serde(flatten)]
    pub value: OutputValue,
}

/// The reason of a stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetStopCause {
    /// The target was deleted. Also the value of a target that does not stop.
    #[default]
    Deleted,
    /// The `ttl` ended.
    Expired,
}

/// A value for the platform: `{"value": …}`, `{"base64": "…"}`, `{"secret": {…}}` or `{"sensitive": true}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputValue {
    /// JSON. Text outputs are strings.
    Value(serde_json::Value),
    /// Bytes that are not text.
    Base64(String),
    /// A reference to a Secret.
    Secret(SecretRef),
    /// A sensitive value that Ebb stores encrypted and does not show. Always true.
    Sensitive(bool),
}

impl From<UnitValue> for OutputValue {
    fn from(value: UnitValue) -> Self {
        match value {
            UnitValue::Json(json) => Self::Value(json),
            UnitValue::Bytes(bytes) => Self::Base64(STANDARD.encode(bytes)),
            UnitValue::Secret(secret) => Self::Secret(secret),
            UnitValue::Sealed(_) => Self::Sensitive(true),
        }
    }
}

/// The response to a lifecycle webhook, with status 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LifecycleResponse {
    /// `KIND/NAME`.
    pub target: String,
    pub uid: String,
    /// The generation of the target, or of the update that waits.
    pub generation: u64,
    pub result: LifecycleResult,
}

/// The effect of a lifecycle webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LifecycleResult {
    /// The target starts or has started.
    #[default]
    Starting,
    /// The units of the event run.
    Running,
    /// The target waits until another instance of the same name is gone. An event or update waits until the present run
    /// has ended.
    Waiting,
    /// The units of an update run.
    Updating,
    /// The target has changed without a run of units.
    Updated,
    /// The target stops, has stopped or never existed.
    Stopping,
    /// The update changes nothing. The event has no units, or was accepted before.
    Unchanged,
    /// The update changes nothing, and failed units are retried.
    Retrying,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// The JSON name of the field.
    pub field: &'static str,
    /// The error and the expected value.
    pub problem: String,
}

impl LifecycleData {
    pub const MAX_KIND: usize = 63;
    pub const MAX_NAME: usize = 253;
    /// Bytes of a name or a UID. In a key, a non-ASCII byte takes three bytes, and an index key may have 1,024 bytes.
    pub const MAX_NAME_BYTES: usize = 300;
    pub const MAX_UID: usize = 128;
    pub const MAX_ROUTING_KEY: usize = 128;

    pub fn target_key(&self) -> TargetKey<'_> {
        TargetKey::new(&self.kind, &self.name)
    }

    pub fn instance(&self) -> InstanceRef<'_> {
        self.target_key().instance(&self.uid)
    }

    /// Checks all fields except the document. Texts are counted in characters. They become parts of keys and URL
    /// paths, so characters with a meaning in a path are rejected.
    pub fn validate(&self) -> Result<(), FieldError> {
        kind(&self.kind)?;
        name(&self.name)?;
        uid(&self.uid)?;
        if let Some(key) = &self.routing_key {
            plain_text("routingKey", key, Self::MAX_ROUTING_KEY, usize::MAX)?;
        }
        if let Some(event) = self.event.as_deref().filter(|event| EventName::new(event).is_none()) {
            let problem = format!(
                "is {:?}: expected a-z first, then a-z and 0-9, at most {} characters, and not a hook of the lifecycle or `on`",
                crate::limits::message(event),
                EventName::MAX
            );
            return Err(FieldError { field: "event", problem });
        }
        let problem = match self.generation {
            0 => "is 0: generations count from 1".to_owned(),
            1..=MAX_GENERATION => return Ok(()),
            more => format!("is {more}: expected at most {MAX_GENERATION}"),
        };
        Err(FieldError { field: "generation", problem })
    }
}

/// Characters that end a path segment or are decoded in it.
const UNSAFE: [char; 5] = ['/', '#', '%', '?', '\\'];

/// The kinds of targets that have documents of their own.
pub const USUAL_KINDS: [&str; 2] = ["sandbox", "routegroup"];

/// Returns the kind that a word means: the plurals and the short names of the usual kinds are those.
pub fn singular_kind(word: &str) -> &str {
    match word {
        "sandboxes" | "sb" => "sandbox",
        "routegroups" | "rg" => "routegroup",
        other => other,
    }
}

/// Returns the kind and the name of a target that is given as `KIND/NAME`, or as the name of one of `kind`.
pub fn kind_and_name<'a>(kind: &'a str, given: &'a str) -> (&'a str, &'a str) {
    // No name has a slash.
    given.split_once('/').map_or((kind, given), |(own, name)| (singular_kind(own), name))
}

/// Checks that a kind matches `[a-z][a-z0-9-]*` and is not too long.
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

/// Checks a name: not empty, not too long, no white space, no control characters, no characters with a meaning in a
/// path.
pub fn name(name: &str) -> Result<(), FieldError> {
    plain_text("name", name, LifecycleData::MAX_NAME, LifecycleData::MAX_NAME_BYTES)
}

/// The prefix of the UIDs of instances that events of sources begin without naming one.
pub const EVENT_UID: &str = "event-";
/// The prefix of the UIDs of instances that requests to the API begin without naming one.
pub const API_UID: &str = "api-";

/// Checks that a sender may give an instance this UID. No sender can name the UIDs that Ebb derives before they exist.
pub fn unreserved_uid(uid: &str) -> Result<(), FieldError> {
    let Some(prefix) = [EVENT_UID, API_UID].into_iter().find(|prefix| uid.starts_with(prefix)) else { return Ok(()) };
    let problem = format!("begins with `{prefix}`, which Ebb uses for its own UIDs: use another prefix");
    Err(FieldError { field: "uid", problem })
}

/// Checks a UID in the same way as a name.
pub fn uid(uid: &str) -> Result<(), FieldError> {
    plain_text("uid", uid, LifecycleData::MAX_UID, LifecycleData::MAX_NAME_BYTES)
}

fn plain_text(field: &'static str, text: &str, characters: usize, bytes: usize) -> Result<(), FieldError> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.chars().count() > characters {
        format!("is longer than {characters} characters")
    } else if text.chars().any(|c| is_unprintable(c) || c.is_whitespace() || UNSAFE.contains(&c)) {
        "contains white space, an invisible or control character, or one of / # % ? \\: remove them".to_owned()
    } else if matches!(text, "." | "..") {
        format!("is {text:?}, which is a folder in a path: use another text")
    } else if text.len() > bytes {
        format!("is longer than {bytes} bytes of UTF-8")
    } else {
        return Ok(());
    };
    Err(FieldError { field, problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    /// A row has a name, its repetitions, and a part of its problem. A name that fits has none.
    #[test]
    fn names_that_do_not_fit_into_keys_and_paths_are_rejected() {
        for (text, count, problem) in rows::<(String, usize, String)>("names_of_targets") {
            let found = name(&text.repeat(count)).err().map(|invalid| invalid.to_string()).unwrap_or_default();
            assert!(found.contains(&problem) && found.is_empty() == problem.is_empty(), "{text:?} {count}: {found}");
        }
        assert_eq!(uid(&"\u{1f40b}".repeat(75)), Ok(()));
    }
}
