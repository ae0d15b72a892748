//! The states of targets that sources want, and their rejected events.

use ebb_protocol::{RejectedEvent, SourceResponse, TargetKey, Timestamp};
use serde::{Deserialize, Serialize};

/// Identifies the state that a source wants: of a target, or of one instance of it if its events name instances. Sources
/// do not share states.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DesiredKey {
    pub source: String,
    pub kind: String,
    pub name: String,
    /// The identity of the instance, if the events name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl DesiredKey {
    pub fn target_key(&self) -> TargetKey<'_> {
        TargetKey::new(&self.kind, &self.name)
    }
}

/// The state of a target that a source wants. A newer event replaces it, so only the newest is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredTarget {
    pub key: DesiredKey,
    /// The id of the delivery that decided.
    pub delivery: String,
    /// What identifies the delivery, if that is not its id.
    pub identity: Option<String>,
    /// The time of the event, or of its receipt if it has none.
    pub time: Timestamp,
    /// The newest time that an event of this state had. Events without a time are ordered by their arrival.
    pub sent: Option<Timestamp>,
    /// The place of the event among those with the same time.
    #[serde(default)]
    pub order: u8,
    /// The identity of an instance that this state begins without naming one.
    pub new_uid: String,
    /// True if the state replaced one that was possibly being applied, until it is applied itself.
    #[serde(default, rename = "confirm")]
    pub replaces_due: bool,
    /// The document of the target. A deletion has none. A document that was applied is dropped.
    pub document: Option<String>,
    #[serde(default)]
    pub is_delete: bool,
    /// True if the source had a limit of living targets when the event arrived.
    #[serde(default)]
    pub is_limited: bool,
    /// What identifies earlier deliveries, the oldest first, at most [`Self::MAX_RECENT`].
    #[serde(default)]
    pub recent: Vec<String>,
    /// The result, once the state was applied or rejected.
    pub result: Option<SourceResponse>,
    /// The time since which the result is the same.
    pub result_time: Option<Timestamp>,
    /// The time at which it is applied. `None` once there is a final result.
    #[serde(skip)]
    pub due: Option<Timestamp>,
    #[serde(skip)]
    pub version: u64,
}

impl DesiredTarget {
    pub const MAX_RECENT: usize = 20;

    /// Returns what identifies the delivery that decided.
    pub fn identity(&self) -> &str {
        self.identity.as_deref().unwrap_or(&self.delivery)
    }
}

/// The last rejected events of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRejections {
    pub source: String,
    /// The newest first, at most [`Self::MAX`].
    pub events: Vec<RejectedEvent>,
    pub version: u64,
}

impl SourceRejections {
    pub const MAX: usize = 20;
}
