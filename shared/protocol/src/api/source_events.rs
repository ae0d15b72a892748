//! Bodies of requests and responses about sources.

use ebb_engine::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The response to an event of a source. Every verified event gets a status 2xx, because senders disable an endpoint that
/// responds with errors.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceResponse {
    pub result: SourceResult,
    /// `KIND/NAME` of the target. Absent if the event concerns none.
    pub target: Option<String>,
    /// The instance that the event created, changed or deleted.
    pub uid: Option<String>,
    /// The reason of the result.
    pub detail: String,
}

/// The effect of an event of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SourceResult {
    /// The event is stored and will be applied.
    Accepted,
    /// An instance starts.
    Starting,
    /// The instance starts when the previous one of its name is gone, or changes when its present run has ended.
    Waiting,
    /// The instance changes to this document, or has changed to it.
    Updating,
    /// The instance exists with this document. If units had failed, they are retried.
    Unchanged,
    /// The instance stops.
    Stopping,
    /// No entry of the source concerns the event, or nothing exists that it could delete.
    Ignored,
    /// The event was received before.
    Repeated,
    /// A newer event of the target was received before, or the instance has ended.
    Outdated,
    /// The event cannot be mapped to a target, or its document has errors.
    Rejected,
}

impl SourceResult {
    /// Returns true if an operator has to change something.
    pub fn is_failure(self) -> bool {
        self == Self::Rejected
    }
}

/// A source with its document.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceDetail {
    pub name: String,
    /// The time of the last change.
    pub changed: String,
    pub document: String,
    /// The path that the sender posts to.
    pub path: String,
    /// The reason why the connection of `fetch` cannot complete its events.
    pub problem: Option<String>,
    /// What its lists have shown. Absent without `exists`.
    pub listing: Option<ListingState>,
    /// The last rejected events, at most 20, the newest first. They are kept for 30 days, also if a later event of the
    /// target was applied.
    pub rejected: Vec<RejectedEvent>,
}

/// What the lists of a source have shown of the things at its sender.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListingState {
    /// The begin of the last complete observation. Absent if none was complete.
    pub complete: Option<String>,
    /// The number of things in it.
    pub things: Option<u64>,
    /// The time since which observations are incomplete or refused. They delete nothing.
    pub problem_since: Option<String>,
    /// The reason.
    pub problem: Option<String>,
    /// The number of targets whose things are missing.
    #[serde(default)]
    pub missing_count: u64,
    /// The first of them, at most 100. A list of sources has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingThing>,
}

/// A target whose thing is missing at the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingThing {
    /// `KIND/NAME`.
    pub target: String,
    pub uid: String,
    /// The begin of the first observation that lacked it.
    pub since: String,
    /// The earliest time of its deletion, after a further observation. A person can lift the grace period.
    pub ends_after: String,
}

/// The targets whose deletion a person asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReconcileSource {
    /// The UIDs of missing targets, as `listing` of the source has them, at most 100.
    pub uids: Vec<String>,
}

/// An event that was rejected, or that could not be completed.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejectedEvent {
    /// The time of the rejection.
    #[serde(with = "crate::time")]
    #[schema(value_type = String)]
    pub time: Timestamp,
    /// The id of the sender, or the SHA-256 of the body.
    pub delivery: String,
    /// `KIND/NAME` of the target, if it is known.
    pub target: Option<String>,
    /// The instance, if it is known.
    pub uid: Option<String>,
    /// The reason, shortened to 512 bytes.
    pub detail: String,
}

/// The number of rejected events of a source that are listed, with the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RejectionSummary {
    /// The number of events, from 1 to 20.
    pub count: usize,
    /// The time of the first of them.
    pub since: String,
    pub last: RejectedEvent,
}

/// The newest event of a source for a target. It decided whether the target exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecidingEvent {
    /// The name of the source.
    pub source: String,
    /// The id of the sender.
    pub delivery: String,
    /// The time of the event.
    pub time: String,
    /// The effect of the event, once it was applied or rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<SourceResponse>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceInfo {
    pub name: String,
    /// The time of the last change.
    pub changed: String,
    /// The events that were rejected. Absent if there are none.
    pub rejected: Option<RejectionSummary>,
    /// What its lists have shown, without the missing targets. Absent without `exists`.
    pub listing: Option<ListingState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceList {
    /// Sources ordered by name.
    pub sources: Vec<SourceInfo>,
}
