//! Bodies of requests and responses about connections.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A connection without its document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionInfo {
    pub name: String,
    pub origin: String,
    /// `bearer`, `basic`, `header` or `signed`.
    pub auth: String,
    /// The name of the secret. Its value is never shown.
    pub secret: String,
    /// True if the deployment has a secret of this name.
    pub has_secret: bool,
    /// The plugins that may use the connection.
    pub plugins: Vec<String>,
    /// The sources that may use the connection.
    pub sources: Vec<String>,
    /// The subscriptions that may use the connection.
    #[serde(default)]
    pub subscriptions: Vec<String>,
    /// The time of the last change.
    pub changed: String,
    /// The reason why the stored document cannot be read. The fields that come from it are then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A connection with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionDetail {
    #[serde(flatten)]
    pub info: ConnectionInfo,
    pub document: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionList {
    /// Connections ordered by name.
    pub connections: Vec<ConnectionInfo>,
}
