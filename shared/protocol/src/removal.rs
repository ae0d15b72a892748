//! The evidence that a removed resource does not exist any more.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The strength of the evidence, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RemovalGrade {
    /// Nothing shows that the resource was removed: the first request for its removal was answered *not found*, or the
    /// removal was accepted and its end is unknown.
    Unconfirmed,
    /// The receiver or the script reported that it has removed the resource.
    Reported,
    /// A question after the removal was answered: the resource does not exist.
    Confirmed,
}

/// The evidence of one removal.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RemovalEvidence {
    pub grade: RemovalGrade,
    /// The request that shows it, such as `GET https://api.example.org/branches/br-1`, without values of its query.
    pub asked: Option<String>,
    /// Its answer, such as `404`. It contains no secret.
    pub answered: Option<String>,
}

/// The report of a relay about the objects that a task has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ObjectRemoval {
    /// The number of objects that the records of a unit named, and that do not exist, by unit as in `TaskId::unit`. A
    /// unit without a record is missing: the relay does not know what it has applied.
    pub objects: BTreeMap<String, usize>,
    /// The places in which the relay could not search for objects of units without a record. For people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<String>,
}

/// The removal of what a setup unit has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ResourceRemoval {
    /// The setup unit, as `RESOURCE/UNIT`.
    pub unit: String,
    /// The unit of the teardown that gives the evidence. Absent if none has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(flatten)]
    pub evidence: RemovalEvidence,
}

impl From<RemovalGrade> for RemovalEvidence {
    fn from(grade: RemovalGrade) -> Self {
        Self { grade, asked: None, answered: None }
    }
}

impl RemovalEvidence {
    pub fn new(grade: RemovalGrade, asked: &str, answered: &str) -> Self {
        Self { grade, asked: Some(asked.to_owned()), answered: Some(answered.to_owned()) }
    }
}
