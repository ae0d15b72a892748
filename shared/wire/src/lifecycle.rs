//! Lifecycle webhooks in, outcomes out: CloudEvents 1.0 signed with Standard Webhooks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::callback::Reason;
use crate::value::SecretRef;

/// `type` of the webhook that asks for a target.
pub const CREATED: &str = "dev.ebb.target.created.v1";
/// `type` of the webhook that changes one.
pub const UPDATED: &str = "dev.ebb.target.updated.v1";
/// `type` of the webhook that ends one.
pub const DELETED: &str = "dev.ebb.target.deleted.v1";
/// `type` of the outcome "its resources are there".
pub const READY: &str = "dev.ebb.target.ready.v1";
/// `type` of the outcome "a unit failed".
pub const FAILED: &str = "dev.ebb.target.failed.v1";
/// `type` of the outcome "teardown has given up, an operator has to act".
pub const STUCK: &str = "dev.ebb.target.stuck.v1";
/// `type` of the outcome "nothing is left".
pub const GONE: &str = "dev.ebb.target.gone.v1";

/// `data` of a lifecycle webhook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lifecycle {
    /// `sandbox`, `routegroup`, any kind: `[a-z][a-z0-9-]*`, at most 63 characters.
    pub kind: String,
    /// The target's name, at most 253 characters.
    pub name: String,
    /// Identity of this life, at most 128 characters: another target of the same name has another uid.
    pub uid: String,
    /// Rises with each change; 1 if left out.
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

/// `data` of an outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeData {
    /// The target's kind.
    pub kind: String,
    /// The target's name.
    pub name: String,
    /// The target's uid.
    pub uid: String,
    /// The generation that the outcome is of.
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
    pub reason: Option<Reason>,
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

/// The answer to a lifecycle webhook, with status 202. The same for every repetition of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleAnswer {
    /// `KIND/NAME`.
    pub target: String,
    /// The uid.
    pub uid: String,
    /// The generation.
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
}
