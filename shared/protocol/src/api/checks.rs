//! The checks of a deployment.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The results of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckList {
    /// The version of the server.
    pub version: String,
    /// Its time, in milliseconds since 1970.
    pub now_ms: u64,
    /// The URL to which units and relays report.
    pub callback_url: String,
    /// One result for each part.
    pub checks: Vec<HealthCheck>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The part: `table`, `list-index`, `due-index`, `sweep`, `bucket`, `queue`, or `relay/CLUSTER`.
    pub name: String,
    /// True if it works.
    pub passed: bool,
    /// What was observed, or what is wrong and what to do.
    pub detail: String,
    /// Duration of the check, in milliseconds.
    pub duration_ms: u64,
}
