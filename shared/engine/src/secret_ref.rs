//! A reference to a sensitive value that stays in its cluster.

use serde::{Deserialize, Serialize};

/// A reference to a sensitive value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretRef {
    /// `None` means the default cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// `None` means the namespace of the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the Secret.
    pub name: String,
    pub key: String,
}
