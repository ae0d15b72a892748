//! What the api says of itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether the parts of a deployment work, as its api sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckList {
    /// The version of the server.
    pub version: String,
    /// Its time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Where units and relays are told to report.
    pub callback_url: String,
    /// Each part.
    pub checks: Vec<HealthCheck>,
}

/// Whether one part works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The part: `table`, `due index`, `list index`, `bucket`, `queue`, `sweep`, or `relay of NAME`.
    pub name: String,
    /// Whether it works.
    pub passed: bool,
    /// What was seen, or what is wrong and what to do.
    pub detail: String,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}
