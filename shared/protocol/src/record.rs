//! What the table keeps of one try of one unit.

use serde::{Deserialize, Serialize};

use crate::callback::FailureReason;
use crate::evidence::Evidence;
use crate::value::Outputs;

/// One try of one unit. The parts come one after the other; the first result stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRecord {
    /// When it was first seen to be sent, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<u64>,
    /// When its receiver said that the result will come later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// When it is to be asked again; of one that has not begun, when it is to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_dispatch: Option<u64>,
    /// When its request was posted, if that may happen only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posted: Option<u64>,
    /// Until when a sender that has posted it again may be waiting for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_until: Option<u64>,
    /// When it last said that it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<AttemptResult>,
    /// Other results of the same try: an authentic success after a failure was recorded, or a second, different one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_results: Vec<AttemptResult>,
    /// How many callbacks reported a further distinct success after [`crate::limits::DISTINCT_RESULTS`] were kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excess: u64,
    /// Callbacks with a valid token that were refused before the try had a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<CallbackRefusals>,
}

/// Callbacks that were refused because of what they say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallbackRefusals {
    pub count: u64,
    /// Why the last one was; at most [`crate::limits::REFUSAL`] bytes.
    pub reason: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptResult {
    pub outcome: AttemptOutcome,
    pub at: u64,
    /// Milliseconds that it took, by the clock of whoever did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "OutputStorage::is_empty")]
    pub outputs: OutputStorage,
    /// Why it failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The evidence of its request; with a failure of a webhook unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Box<Evidence>>,
    /// When the next try may start: of a unit that failed, or of an undo that has more results to undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// True if the tail of its log is in the bucket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// True if its request got no answer of the backend. The request may still arrive or be acted on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unanswered: bool,
    /// Digest of verdict and outputs: tells a repeated result from another one.
    pub digest: String,
}

impl AttemptResult {
    /// Returns whether it ended the try of an undo that has more results to undo. The next try begins at once.
    pub fn has_more(&self) -> bool {
        self.next.is_some() && matches!(self.outcome, AttemptOutcome::Succeeded | AttemptOutcome::Skipped)
    }
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttemptOutcome {
    Succeeded,
    Skipped,
    Failed,
    /// Nothing runs any more, by the word of whoever ran it, and nothing can be started under its name.
    Cancelled,
}

/// Where outputs are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OutputStorage {
    #[default]
    Nothing,
    Inline(Outputs),
    /// In the bucket under this key, as JSON.
    Bucket(String),
}

impl OutputStorage {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::Nothing
    }
}
