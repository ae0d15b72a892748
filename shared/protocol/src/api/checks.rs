//! The checks of a deployment.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The results of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckList {
    /// The version of the server.
    pub version: String,
    /// The time of the server, in milliseconds since 1970.
    pub now_ms: u64,
    /// The URL to which units and relays report.
    pub callback_url: String,
    pub checks: Vec<HealthCheck>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The part: `table`, `list-index`, `due-index`, `sweep`, `bucket`, `queue`, or `relay/CLUSTER`.
    pub name: String,
    pub passed: bool,
    /// The observation, or the error and how to fix it.
    pub detail: String,
    /// The duration of the check, in milliseconds.
    pub duration_ms: u64,
}
