//! Lists the objects of a task with their states.

use ebb_protocol::callback::Callback;
use ebb_protocol::object_status::{MAX_OBJECTS, ObjectState, ObjectStatus};
use ebb_protocol::relay::TaskWait;

use crate::task::record::TaskSpec;

/// An object that has failed, and why.
pub(crate) type FailedObject = (String, String);

/// Returns the state of each applied object, or nothing for a single one: its task has the same state. `waits` has what
/// is awaited of objects that are not ready.
pub(crate) fn states(spec: &TaskSpec, waits: &[TaskWait], failed: &[FailedObject]) -> Vec<ObjectStatus> {
    if spec.manifests().count() < 2 {
        return Vec::new();
    }
    let status = |object: String| {
        let failed = failed.iter().find(|(name, _)| *name == object).map(|(_, why)| why.clone());
        let awaited = waits.iter().find(|wait| wait.object == object).map(|wait| wait.message.clone());
        let (state, reason) = match (failed, awaited) {
            (Some(why), _) => (ObjectState::Failed, Some(why)),
            (None, Some(why)) => (ObjectState::Pending, Some(why)),
            (None, None) => (ObjectState::Ready, None),
        };
        ObjectStatus { object, state, reason }
    };
    spec.manifests().take(MAX_OBJECTS).map(|applied| status(applied.object_ref.to_string())).collect()
}

/// Returns an object with the reason of the result that it has caused, which begins with its name.
pub(crate) fn failed(object: &str, result: &Callback) -> FailedObject {
    let message = result.reason.as_ref().map(|reason| reason.message.as_str()).unwrap_or_default();
    let why = message.strip_prefix(object).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message);
    (object.to_owned(), why.to_owned())
}

#[cfg(test)]
mod tests {
    use ebb_protocol::callback::ReasonCode;

    use super::*;
    use crate::task::record::{AppliedObject, ObjectRef};
    use crate::task::task_waits;

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
        let result = Callback::failed(ReasonCode::Failed, "Secret n/o-1: BackOff: it crashes");
        let waits =
            [task_waits::wait("Secret n/o-2", "no key yet"), task_waits::wait("Secret n/other", "not of the task")];
        let found = states(&spec, &waits, &[failed("Secret n/o-1", &result)]);
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
        assert_eq!(states(&spec(1), &[], &[]), []);
        assert_eq!(states(&spec(MAX_OBJECTS + 5), &[], &[]).len(), MAX_OBJECTS);
    }
}
