//! The feed of changed targets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The targets that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeList {
    /// The query parameter `since` of the next request.
    pub seq: String,
    /// True if it is not known what has changed since the former request: read everything that you show again.
    pub reload: bool,
    /// The targets that have changed, as `KIND/NAME`, at most 64. Empty with `reload`.
    pub targets: Vec<String>,
}
