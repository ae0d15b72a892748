//! Describes what a task waits for, and the states of its objects.

use ebb_protocol::limits::message;
use ebb_protocol::{MAX_OBJECTS, ObjectState, ObjectStatus, ReasonCode, TaskId, TaskWait, WaitResolution};

use crate::observe::blockers::StartBlocker;
use crate::{TaskSpec, status};

/// Returns the wait for an object that is being created, started or deleted. `why` is for people.
pub(crate) fn wait(object: impl std::fmt::Display, why: &str) -> TaskWait {
    TaskWait {
        object: object.to_string(),
        code: ReasonCode::Timeout,
        message: message(why),
        since_ms: None,
        fails_in_ms: None,
        field: None,
        last: None,
        resolves: WaitResolution::Itself,
    }
}

/// Returns the wait for an object that has failed. It ends the task now.
pub(crate) fn failure(object: impl std::fmt::Display, code: ReasonCode, why: &str) -> TaskWait {
    TaskWait { code, fails_in_ms: Some(0), resolves: WaitResolution::Never, ..wait(object, why) }
}

pub(crate) fn is_failure(wait: &TaskWait) -> bool {
    wait.fails_in_ms == Some(0)
}

pub(crate) fn termination(task: &TaskId) -> TaskWait {
    wait(format!("attempt {} of {}", task.attempt, task.unit), "it is still terminating")
}

/// Returns the wait for an object that exists and that the task may have made. A person has to decide.
pub(crate) fn undecided(object: impl std::fmt::Display, task: &TaskId) -> TaskWait {
    let TaskId { unit, attempt } = task;
    let why = format!(
        "the relay cannot decide whether it made this object, because the relay was killed before it recorded the UID, and \
         the labels were changed; delete it with `kubectl delete KIND NAME --namespace NAMESPACE`, or let the relay delete \
         it with `kubectl label KIND NAME --namespace NAMESPACE --overwrite ebb.dev/unit={unit} ebb.dev/attempt={attempt}`, \
         then run `ebb retry`"
    );
    TaskWait { code: ReasonCode::Denied, resolves: WaitResolution::Person, ..wait(object, &why) }
}

/// Returns the wait for an object with the name and labels of the one that the task has made, and with another UID. A person
/// has to decide, because it has the data of the first one or those of another program.
pub(crate) fn restored(object: impl std::fmt::Display, recorded: &str, found: &str) -> TaskWait {
    let why = format!(
        "it has the labels of this unit and the UID {found}; the unit has made the one with the UID {recorded}, so this one \
         was restored or made again; delete it with `kubectl delete KIND NAME --namespace NAMESPACE`, or keep it with `kubectl \
         label KIND NAME --namespace NAMESPACE ebb.dev/unit-`"
    );
    TaskWait { code: ReasonCode::Denied, resolves: WaitResolution::Person, ..wait(object, &why) }
}

/// Returns the wait for an object after an error of the API server. A person has to end a refusal, and no other error.
pub(crate) fn refusal(object: impl std::fmt::Display, error: &kube::Error, why: &str) -> TaskWait {
    let wait = wait(object, why);
    match status(error) {
        Some(code) if (400..500).contains(&code) && !matches!(code, 404 | 409 | 429) => {
            TaskWait { code: ReasonCode::Denied, resolves: WaitResolution::Person, ..wait }
        }
        _ => wait,
    }
}

/// Replaces the reason of a wait by a blocker. `source` is the pod or the owned object that reports it.
pub(crate) fn blocked(wait: TaskWait, source: Option<&str>, blocker: &StartBlocker, now_ms: u64) -> TaskWait {
    let source = source.map(|source| format!("{source}: ")).unwrap_or_default();
    TaskWait {
        code: blocker.code,
        message: message(&format!("{source}{}", blocker.message)),
        since_ms: (blocker.since_ms > 0).then(|| now_ms.saturating_sub(blocker.since_ms)),
        resolves: blocker.resolves,
        ..wait
    }
}

pub(crate) fn first_text(waits: &[TaskWait]) -> Option<String> {
    waits.first().map(ToString::to_string)
}

/// Returns the state of each applied object, or nothing for a single one: its task has the same state. `waits` has what
/// is awaited of objects that are not ready, and why others have failed.
pub(crate) fn object_states(spec: &TaskSpec, waits: &[TaskWait]) -> Vec<ObjectStatus> {
    if spec.manifests().count() < 2 {
        return Vec::new();
    }
    let status = |object: String| {
        let wait = waits.iter().find(|wait| wait.object == object);
        let state = match wait {
            Some(wait) if is_failure(wait) => ObjectState::Failed,
            Some(_) => ObjectState::Pending,
            None => ObjectState::Ready,
        };
        ObjectStatus { object, state, reason: wait.map(|wait| wait.message.clone()) }
    };
    spec.manifests().take(MAX_OBJECTS).map(|applied| status(applied.object_ref.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::task::record::{AppliedObject, ObjectRef};
    use crate::test_api::rows;

    #[test]
    fn an_overloaded_api_server_denies_nothing() {
        let rows = rows::<(u16, ReasonCode, WaitResolution)>("an_overloaded_api_server_denies_nothing");
        for (code, reason, resolves) in rows {
            let error = kube::Error::Api(Box::new(Status::failure("m", "r").with_code(code)));
            let found = refusal("Secret n/a", &error, "m");
            assert_eq!((found.code, found.resolves), (reason, resolves), "{code}");
        }
    }

    fn spec(count: usize) -> TaskSpec {
        let applied = (0..count).map(|number| AppliedObject {
            object_ref: ObjectRef::secret("n", &format!("o-{number}")),
            uid: "u".to_owned(),
            document: false,
        });
        TaskSpec { applied: applied.collect(), ..TaskSpec::example() }
    }

    #[test]
    fn each_of_several_objects_has_its_own_state_and_reason() {
        assert_eq!(object_states(&spec(1), &[]), []);
        assert_eq!(object_states(&spec(MAX_OBJECTS + 5), &[]).len(), MAX_OBJECTS);
        let spec = spec(3);
        let waits = [
            failure("Secret n/o-1", ReasonCode::Failed, "BackOff: it crashes"),
            wait("Secret n/o-2", "no key yet"),
            wait("Secret n/other", "not of the task"),
        ];
        let found = object_states(&spec, &waits);
        let found: Vec<_> = found.into_iter().map(|it| (it.object, it.state, it.reason)).collect();
        let expected =
            rows::<(String, ObjectState, Option<String>)>("each_of_several_objects_has_its_own_state_and_reason");
        assert_eq!(found, expected);
    }
}
