//! The record of an attempt.

use std::collections::BTreeSet;

use ebb_engine::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Evidence, FailureReason, ObjectStatus, Outputs, RemovalEvidence};

/// An attempt of a unit. Fields are set one after the other, and the first result stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptRecord {
    /// The first dispatch.
    pub started: Option<Timestamp>,
    /// The time at which the receiver announced a callback.
    pub accepted: Option<Timestamp>,
    /// The time of the next request or, before the start, of the start.
    pub next_dispatch: Option<Timestamp>,
    /// The reason of the last wait for a slot, before the start.
    pub slot_wait: Option<String>,
    /// The number of repetitions of the request, and of questions about it.
    pub repeats: u64,
    /// The time at which a request that is not idempotent was posted.
    pub posted: Option<Timestamp>,
    /// The digest of the credential of this request, for a webhook.
    pub posted_by: Option<String>,
    /// The time until which another sender may wait for the response.
    pub leased_until: Option<Timestamp>,
    pub heartbeat: Option<Timestamp>,
    pub progress: Option<String>,
    /// Set when the request of a webhook was answered, and the attempt waits for a state of the provider.
    pub wait: Option<StateWait>,
    /// The digest of the last credential that was shown the resource before the result.
    pub seen_by: Option<String>,
    pub instances: InstanceIds,
    pub result: Option<AttemptResult>,
    /// Further results: a success after a recorded failure, or a different success.
    pub further_results: Vec<AttemptResult>,
    /// The number of distinct successes beyond [`crate::limits::DISTINCT_RESULTS`], which are not stored.
    pub excess: u64,
    /// Callbacks with a valid token that were rejected before the attempt had a result.
    pub refused: Option<CallbackRefusals>,
    /// The declared outputs in the last of them. An undo reads them if the attempt has no others.
    pub reported: OutputStorage,
}

impl AttemptRecord {
    /// Returns the first result and the further ones.
    pub fn results(&self) -> impl Iterator<Item = &AttemptResult> {
        self.result.iter().chain(&self.further_results)
    }

    /// Returns the outcome of the first result.
    pub fn outcome(&self) -> Option<AttemptOutcome> {
        self.result.as_ref().map(|result| result.outcome)
    }

    /// Returns true if nothing but a start shows that a request of the attempt may have been sent. A second sender of an attempt
    /// with a start records a lease first.
    pub fn is_unsent(&self) -> bool {
        self.posted.is_none() && self.has_one_request()
    }

    /// Returns true if nothing shows an answer or a second sender. A sender that finds the intent of another one sends nothing.
    pub fn has_one_request(&self) -> bool {
        let is_answered = self.accepted.is_some() || self.wait.is_some() || self.repeats > 0;
        !is_answered && self.leased_until.is_none()
    }

    /// Returns the reason why an attempt without a result waits for a slot, unless a request of it may have been sent.
    pub fn awaited_slot(&self) -> Option<&str> {
        let is_waiting = self.is_unsent() && self.started.is_none() && self.result.is_none();
        self.slot_wait.as_deref().filter(|_| is_waiting)
    }
}

/// A wait for a state of a provider, after the response to the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateWait {
    /// The time of the response.
    pub since: Timestamp,
    /// The outputs that follow from the response alone. An undo reads them if the wait fails.
    #[serde(default, skip_serializing_if = "OutputStorage::is_empty")]
    pub outputs: OutputStorage,
    /// The encrypted response, in base64, see [`crate::seal::seal_value`].
    pub response: StoredText,
}

/// What an InfraKit plugin has answered about instances, by their IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceIds {
    /// The attempt has made them, and ended without a success or still waits for their description.
    pub made: BTreeSet<String>,
    /// The plugin listed them to the attempt of an undo, which then sent `Destroy`.
    pub listed: BTreeSet<String>,
    /// The plugin answered `Destroy` of an undo without an error, or then did not list them any more.
    pub destroyed: BTreeSet<String>,
}

impl InstanceIds {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the IDs of `other`.
    pub fn merge(&mut self, other: Self) {
        self.made.extend(other.made);
        self.listed.extend(other.listed);
        self.destroyed.extend(other.destroyed);
    }
}

/// A text in the table or in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredText {
    Inline(String),
    /// The key of the text in the bucket.
    Bucket(String),
}

/// Callbacks with a valid token that were rejected because of their content, of an attempt or of all attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RefusedCallbacks)]
pub struct CallbackRefusals {
    pub count: u64,
    /// The reason of the last one, at most 256 bytes.
    pub reason: String,
}

/// The result of an attempt. Its serialized form lacks what the store keeps in attributes of their own.
#[serde_with::apply(Vec => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptResult {
    pub outcome: AttemptOutcome,
    pub at: Timestamp,
    /// The duration in milliseconds, by the clock of the executor.
    pub duration_ms: Option<u64>,
    #[serde(skip)]
    pub outputs: OutputStorage,
    /// True for a failure with outputs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_outputs: bool,
    /// The reason of a failure or a skip, or of an undo that found nothing.
    pub reason: Option<FailureReason>,
    /// The evidence of a failed request of a webhook unit.
    #[serde(skip)]
    pub evidence: Option<Box<Evidence>>,
    /// The evidence of an undo, unless the receiver just reported the removal.
    pub removal: Option<Box<RemovalEvidence>>,
    /// The digest of the credential of the request, for a webhook with a connection.
    pub sent_by: Option<String>,
    /// The IDs by which an InfraKit plugin knows what the attempt has made.
    pub made: Vec<String>,
    /// The start of the next attempt: a retry, or an undo with further results to undo.
    pub next: Option<Timestamp>,
    /// True if the end of the log is in the bucket.
    #[serde(skip)]
    pub log: bool,
    /// The applied objects of a failed unit, see [`crate::object_status::stored_objects`].
    pub objects: Vec<ObjectStatus>,
    /// True if the backend did not respond. The request may still arrive.
    #[serde(default)]
    pub unanswered: bool,
    /// True for a failure before a request or without a connection, if the record shows each other sender of the attempt, or
    /// each one is refused by the guard of `egress`, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsent: bool,
    /// The digest of outcome, outputs and made IDs, which identifies repeated results.
    #[serde(skip)]
    pub digest: String,
}

impl AttemptResult {
    /// Returns true if the next attempt undoes further results. It begins at once.
    pub fn has_more(&self) -> bool {
        self.next.is_some() && matches!(self.outcome, AttemptOutcome::Succeeded | AttemptOutcome::Skipped)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttemptOutcome {
    Succeeded,
    Skipped,
    #[default]
    Failed,
    /// The executor confirmed that nothing runs and that nothing can be started under this name.
    Cancelled,
}

/// The place of stored outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutputStorage {
    #[default]
    Nothing,
    Inline(Outputs),
    /// The key of a JSON object in the bucket.
    Bucket(String),
}

impl OutputStorage {
    pub fn is_empty(&self) -> bool {
        *self == Self::Nothing
    }
}
