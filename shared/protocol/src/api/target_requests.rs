//! Bodies of requests that create, update and delete targets.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::ResourceEffect;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DocumentChange, PlanPreview};
use crate::lifecycle::{LifecycleResponse, LifecycleResult};

/// Creates a target or updates a living one.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyTarget {
    /// For example `sandbox` or `routegroup`: `[a-z][a-z0-9-]*`, at most 63 characters.
    #[schema(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    pub kind: String,
    /// The name of the target, at most 253 characters.
    #[schema(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,253}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub name: String,
    /// The document as YAML or JSON text, with all `@{…}` expanded.
    #[schema(min_length = 1)]
    pub document: String,
    /// The identity of the instance, at most 128 characters. Without it, the newest instance of the name is updated, or a
    /// new one begins.
    #[schema(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,128}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub uid: Option<String>,
    /// The generation that the caller has seen, of the document or of the update that waits, or 0 to begin an instance. If it
    /// has another one, or none, the request is refused with 409 `outdated`. Without it, any document is replaced.
    pub generation: Option<u64>,
    /// `false` refuses an update that removes or replaces a complete resource with 409 `resource-lost`. The default is `true`.
    pub allow_replace: Option<bool>,
    /// The value of `SIGNADOT_SANDBOX_ROUTING_KEY`. The default is the key of the target.
    #[schema(pattern = r"^(?!\.{1,2}$)[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,128}$")]
    pub routing_key: Option<String>,
}

/// The response to a request that creates, updates or deletes a target.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetReceipt {
    /// `KIND/NAME`.
    pub target: String,
    /// The identity of the instance. Absent in the preview of an instance that gets a random one.
    pub uid: Option<String>,
    /// The generation of the target. An update without a change keeps it.
    pub generation: u64,
    pub result: LifecycleResult,
    /// The URL of the target in this API.
    pub url: String,
    /// The differences from the present document. In a preview.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<DocumentChange>,
    /// The effect on each changed resource with units: `added`, `removed`, `replaced` or `updated`. In a preview.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, ResourceEffect>,
    /// The complete resources that the update removes or replaces: what they hold is lost. `target` stands for own hooks. In a
    /// preview.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lost: BTreeSet<String>,
    /// The owner of the present instance. In a preview.
    pub owner: Option<String>,
    /// The time at which the `ttl` of the document would end, or has ended, for a living instance. If the document ends the
    /// protection from a deletion that was refused, the time of this deletion. In a preview.
    pub expires: Option<String>,
    /// The plan of the document. In a preview.
    pub plan: Option<PlanPreview>,
}

impl TargetReceipt {
    /// Returns the receipt of an accepted request. `url` is that of the target in this API.
    pub fn of(LifecycleResponse { target, uid, generation, result }: LifecycleResponse, url: String) -> Self {
        Self { target, uid: Some(uid), generation, result, url, ..Self::default() }
    }
}
