//! The state of an applied object.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An object that a unit has applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectStatus {
    /// `KIND NAMESPACE/NAME`, or `KIND NAME` for a cluster-wide object.
    pub object: String,
    pub state: ObjectState,
    /// The reason why it is not ready. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ObjectState {
    Ready,
    /// Not ready yet, or not any more when its unit ended.
    Pending,
    /// It has ended its unit.
    Failed,
}

/// Maximum objects of a unit in messages and answers.
pub const MAX_OBJECTS: usize = 20;
/// Maximum bytes of the objects of a unit as JSON, where they are stored. With them, the record of a failure usually stays
/// below 1 KiB, which is one write unit.
pub const MAX_STORED: usize = 480;
/// Maximum bytes of a name and of a reason that are stored.
const STORED_NAME: usize = 120;
const STORED_REASON: usize = 80;

/// Returns the objects that are stored with a failure: those that are not ready first, as many as fit into
/// [`MAX_STORED`].
pub fn stored_objects(mut objects: Vec<ObjectStatus>) -> Vec<ObjectStatus> {
    objects.sort_by_key(|status| std::cmp::Reverse(status.state));
    let mut bytes = 2;
    let shortened = objects.into_iter().take(MAX_OBJECTS).map(|status| ObjectStatus {
        object: crate::limits::clean(&status.object, STORED_NAME),
        reason: status.reason.map(|reason| crate::limits::clean(&reason, STORED_REASON)),
        ..status
    });
    let fits = |status: &ObjectStatus| {
        bytes += serde_json::to_vec(status).map_or(MAX_STORED, |json| json.len() + 1);
        bytes <= MAX_STORED
    };
    shortened.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_objects_fit_into_their_part_of_a_record() {
        let status = |number: usize, state, reason: &str| ObjectStatus {
            object: format!("Deployment units/web-{number}"),
            state,
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
        };
        let mut objects: Vec<ObjectStatus> = (0..15).map(|number| status(number, ObjectState::Ready, "")).collect();
        objects.push(status(15, ObjectState::Pending, "no endpoints\u{1b}"));
        objects.push(status(16, ObjectState::Failed, &"x".repeat(10_000)));
        let stored = stored_objects(objects);
        assert_eq!((stored[0].state, stored[1].state), (ObjectState::Failed, ObjectState::Pending));
        assert_eq!(stored[1].reason.as_deref(), Some("no endpoints\u{fffd}"));
        let bytes = serde_json::to_vec(&stored).unwrap().len();
        assert!(stored.len() > 3 && stored.len() < 17 && bytes <= MAX_STORED, "{bytes} bytes: {stored:?}");
        assert_eq!(stored_objects(Vec::new()), []);
    }
}
