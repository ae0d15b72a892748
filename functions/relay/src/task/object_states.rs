//! Lists the objects of a task with their states.

use ebb_protocol::object_status::{MAX_OBJECTS, ObjectState, ObjectStatus};
use ebb_protocol::relay::TaskWait;

use crate::task::record::TaskSpec;
use crate::task::task_waits;

/// Returns the state of each applied object, or nothing for a single one: its task has the same state. `waits` has what
/// is awaited of objects that are not ready, and why others have failed.
pub(crate) fn states(spec: &TaskSpec, waits: &[TaskWait]) -> Vec<ObjectStatus> {
    if spec.manifests().count() < 2 {
        return Vec::new();
    }
    let status = |object: String| {
        let wait = waits.iter().find(|wait| wait.object == object);
        let state = match wait {
            Some(wait) if task_waits::is_failure(wait) => ObjectState::Failed,
            Some(_) => ObjectState::Pending,
            None => ObjectState::Ready,
        };
        ObjectStatus { object, state, reason: wait.map(|wait| wait.message.clone()) }
    };
    spec.manifests().take(MAX_OBJECTS).map(|applied| status(applied.object_ref.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use ebb_protocol::callback::ReasonCode;

    use super::*;
    use crate::task::record::{AppliedObject, ObjectRef};

    fn spec(count: usize) -> TaskSpec {
        let applied = (0..count).map(|number| AppliedObject {
            object_ref: ObjectRef::secret("n", &format!("o-{number}")),
            uid: "u".to_owned(),
            document: false,
        });
        TaskSpec { applied: applied.collect(), ..TaskSpec::example() }
    }

    #[test]
    fn each_object_has_its_own_state_and_reason() {
        let spec = spec(3);
        let waits = [
            task_waits::failure("Secret n/o-1", ReasonCode::Failed, "BackOff: it crashes"),
            task_waits::wait("Secret n/o-2", "no key yet"),
            task_waits::wait("Secret n/other", "not of the task"),
        ];
        let found = states(&spec, &waits);
        let rows: Vec<_> = found.iter().map(|it| (it.object.as_str(), it.state, it.reason.as_deref())).collect();
        assert_eq!(
            rows,
            [
                ("Secret n/o-0", ObjectState::Ready, None),
                ("Secret n/o-1", ObjectState::Failed, Some("BackOff: it crashes")),
                ("Secret n/o-2", ObjectState::Pending, Some("no key yet")),
            ]
        );
    }

    #[test]
    fn the_states_of_objects_are_limited() {
        assert_eq!(states(&spec(1), &[]), []);
        assert_eq!(states(&spec(MAX_OBJECTS + 5), &[]).len(), MAX_OBJECTS);
    }
}
