//! Bodies of requests and responses about connections and subscriptions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A connection without its document.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionInfo {
    pub name: String,
    pub origin: String,
    /// The scheme, such as `bearer`.
    pub auth: String,
    /// The name of the secret, or two names separated by a comma, or `NAMESPACE/NAME of CLUSTER`. Their values are never shown.
    pub secret: String,
    /// True if the deployment has all secrets of these names, or if its secrets cannot be read.
    pub has_secret: bool,
    /// The reason why the connection cannot be used, such as a value of a secret that a request cannot have.
    pub problem: Option<String>,
    /// The plugins that may use the connection.
    pub plugins: Vec<String>,
    /// The sources that may use the connection.
    pub sources: Vec<String>,
    /// The subscriptions that may use the connection.
    #[serde(default)]
    pub subscriptions: Vec<String>,
    /// The attempts of units that use the connection at once. By default, there is no limit.
    pub max_concurrent: Option<u32>,
    /// The time of the last change.
    pub changed: String,
    /// The reason why the stored document cannot be read. The fields that come from it are then empty.
    pub unreadable: Option<String>,
}

/// A connection with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// A subscription without its document.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionInfo {
    pub name: String,
    /// The phases that are reported.
    pub on: Vec<String>,
    /// `standard`, `webhook`, `slack`, `github` or `comment`.
    pub to: String,
    /// The connection of the receiver.
    pub connection: Option<String>,
    /// The origin of the receiver, such as `https://api.github.com`.
    pub origin: Option<String>,
    /// The reason why nothing can be sent, such as a missing secret.
    pub problem: Option<String>,
    /// The number of notifications that wait for the receiver.
    pub waiting: usize,
    /// True if more targets have work to do than one request reads, so that `waiting` can be too small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waiting_incomplete: bool,
    /// The time of the oldest notification that waits.
    pub oldest: Option<String>,
    /// The last failure of a notification that waits.
    pub last_error: Option<DeliveryError>,
    /// The number of notifications of the last 30 days that were given up, at most 1,000.
    pub undelivered: usize,
    /// The time of the last change.
    pub changed: String,
    /// The reason why the stored document cannot be read. The fields that come from it are then empty.
    pub unreadable: Option<String>,
}

/// A subscription with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionDetail {
    #[serde(flatten)]
    pub info: SubscriptionInfo,
    pub document: String,
    /// The notifications that were given up, the newest first, at most 100.
    pub failures: Vec<UndeliveredNotification>,
    /// A text for people: how many notifications a retry has sent, deleted and skipped, with the reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried: Option<String>,
}

/// A failed delivery of a notification that is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryError {
    /// `KIND/NAME`.
    pub target: String,
    /// The time of the failure.
    pub at: String,
    pub reason: String,
    /// The time of the next attempt.
    pub next: String,
}

/// A notification that the receiver did not accept in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UndeliveredNotification {
    /// `KIND/NAME`.
    pub target: String,
    pub phase: String,
    /// The time at which it was given up.
    pub at: String,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionList {
    /// Subscriptions ordered by name.
    pub subscriptions: Vec<SubscriptionInfo>,
}
