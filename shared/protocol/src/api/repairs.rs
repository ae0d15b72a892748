//! Bodies of requests and responses about failed units: retries and overrides.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::DocumentChange;

/// Retries a target. Without a body, its failed units run again as they are, and units that wait for a time start.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryTarget {
    /// The identity of the instance. Another one is not changed. The default is the present one.
    pub uid: Option<String>,
    /// A published version `NAME@VERSION`. The teardown of a stuck target continues with the units of this version.
    pub plugin: Option<String>,
    /// A corrected document of the target. The teardown of a stuck target continues with the undos of its own hooks.
    pub document: Option<String>,
    /// Returns the changes of `plugin` or `document` without making them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The response to a retry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetryResponse {
    /// The identity of the instance. A server of an earlier version names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    pub run: String,
    /// Keys of the units that are retried. A dry run retries none.
    pub units: Vec<String>,
    /// The teardown units that `plugin` changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<UndoChange>,
    /// Keys of teardown units of `plugin` that the plan of the target does not have. They do not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// For each unit whose wait is not shortened: a sentence with the unit, the end of the wait and the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

/// A teardown unit that gets the content of another version of its plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UndoChange {
    /// The key of the unit.
    pub unit: String,
    /// The version before, as `name@version`.
    pub from: String,
    /// The version after, as `name@version`.
    pub to: String,
    /// The fields of the unit that differ.
    pub changes: Vec<DocumentChange>,
}

/// Marks a failed unit of a teardown as complete, although its resources may still exist.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceCompleteUnit {
    /// The identity of the instance. Another one is not changed. The default is the present one.
    pub uid: Option<String>,
    /// The key of the unit: `RESOURCE/UNIT`.
    pub unit: String,
    /// The reason: 1 to 500 characters, not only white space.
    #[schema(min_length = 1, max_length = 500, pattern = r"[^\s\u0085]")]
    pub reason: String,
    /// The name of the operator, at most 100 characters.
    #[schema(max_length = 100)]
    pub by: Option<String>,
}

/// Ends an instance whose teardown failed, although its resources may still exist.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceDeleteTarget {
    /// The identity of the instance. Another one is not changed. The default is the present one.
    pub uid: Option<String>,
    /// The reason: 1 to 500 characters, not only white space.
    #[schema(min_length = 1, max_length = 500, pattern = r"[^\s\u0085]")]
    pub reason: String,
    /// The name of the operator, at most 100 characters.
    #[schema(max_length = 100)]
    pub by: Option<String>,
}

/// The response to an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverrideResponse {
    pub run: String,
    /// Keys of the units that now count as complete. The diagnosis lists their resources.
    pub units: Vec<String>,
}
