//! Rows of unit tests.

use std::collections::BTreeMap;

use ebb_protocol::{AttemptRecord, AttemptResult};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The members of a record of an attempt, by their names.
pub(crate) type RecordMembers = BTreeMap<String, Value>;

/// Returns rows of `tests/rows.json` by their name.
pub(crate) fn rows<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, Vec<Value>> = serde_json::from_str(include_str!("../tests/rows.json")).unwrap();
    let rows = parts.remove(name).filter(|rows| !rows.is_empty()).unwrap_or_else(|| panic!("no rows of {name}"));
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}

/// Returns rows that have the record of an attempt, and a second value.
pub(crate) fn record_rows<T: DeserializeOwned>(name: &str) -> Vec<(AttemptRecord, T)> {
    rows::<(RecordMembers, T)>(name).into_iter().map(|(members, other)| (attempt_record(members), other)).collect()
}

/// Returns the record with these members. `evidence` is that of the result, and `why` explains the row.
pub(crate) fn attempt_record(mut members: RecordMembers) -> AttemptRecord {
    fn take<T: DeserializeOwned + Default>(members: &mut RecordMembers, name: &str) -> T {
        members.remove(name).map(|value| serde_json::from_value(value).unwrap()).unwrap_or_default()
    }
    members.remove("why");
    let (result, evidence) = (take::<Option<AttemptResult>>(&mut members, "result"), take(&mut members, "evidence"));
    let record = AttemptRecord {
        started: take(&mut members, "started"),
        accepted: take(&mut members, "accepted"),
        next_dispatch: take(&mut members, "nextDispatch"),
        repeats: take(&mut members, "repeats"),
        posted: take(&mut members, "posted"),
        posted_by: take(&mut members, "postedBy"),
        leased_until: take(&mut members, "leasedUntil"),
        wait: take(&mut members, "wait"),
        seen_by: take(&mut members, "seenBy"),
        result: result.map(|result| AttemptResult { evidence, ..result }),
        further_results: take(&mut members, "furtherResults"),
        ..AttemptRecord::default()
    };
    assert!(members.is_empty(), "{members:?}");
    record
}
