//! Earlier attempts of a unit.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::UnitState;
use crate::callback::FailureReason;

/// An attempt of a unit before its last one, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptDetail {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of the attempt since the last retry by an operator, from 1.
    pub attempt_in_series: u32,
    /// `failed`, `cancelled`, `succeeded` or `skipped`. `running` if no result is stored.
    pub state: UnitState,
    /// The time at which it was first seen to run, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The duration in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The reason of a failure or a skip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// True if a log is stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}
