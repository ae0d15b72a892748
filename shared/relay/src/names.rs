//! Names and labels of the relay's objects.

use std::collections::BTreeMap;

use ebb_protocol::relay::TaskId;

pub(crate) const UNIT: &str = "ebb.dev/unit";
pub(crate) const ATTEMPT: &str = "ebb.dev/attempt";
pub(crate) const INSTANCE: &str = "ebb.dev/instance";
/// The purpose of a Secret: record, continuation or output.
pub(crate) const PART: &str = "ebb.dev/part";
/// The phase of a record, for display.
pub(crate) const PHASE: &str = "ebb.dev/phase";
/// Keeps a record until its result is acknowledged and its objects are deleted. Only the record names these objects.
pub(crate) const FINALIZER: &str = "ebb.dev/result";
pub(crate) const MANAGER: &str = "ebb";

pub(crate) const RECORD: &str = "record";
/// The [`PART`] of Secrets with parts of a record that is too large.
pub(crate) const CONTINUED: &str = "continued";
pub(crate) const OUTPUT: &str = "output";

/// The longest label value.
const LONGEST: usize = 63;

/// Returns the labels of every object of a task.
pub(crate) fn task_labels(name: &TaskId, instance: &str) -> BTreeMap<String, String> {
    secret_labels(name, Some(instance), &[])
}

/// Returns the labels of a Secret of the relay.
pub(crate) fn secret_labels(name: &TaskId, instance: Option<&str>, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let attempt = name.attempt.to_string();
    let labels = [(UNIT, &*name.unit), (ATTEMPT, &attempt)].into_iter().chain(instance.map(|it| (INSTANCE, it)));
    labels.chain(more.iter().copied()).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The label with which Kubernetes marks the pods of a Job. Plugins cannot set it.
pub(crate) const JOB: &str = "batch.kubernetes.io/controller-uid";

pub(crate) fn task_of_labels(labels: &BTreeMap<String, String>) -> Option<TaskId> {
    Some(TaskId { unit: labels.get(UNIT)?.clone(), attempt: labels.get(ATTEMPT)?.parse().ok()? })
}

/// Returns the name of the Secret with the record. Unit names contain no dot, so two names never collide.
pub(crate) fn record_name(name: &TaskId) -> String {
    format!("ebb-task.{}.{}", name.unit, name.attempt)
}

/// Returns the name of the Secret with a further part of a result.
pub(crate) fn continuation_name(name: &TaskId, part: usize) -> String {
    format!("{}.{part}", record_name(name))
}

/// Returns the name of the Secret with a part of the documents of a queued task.
pub(crate) fn documents_name(name: &TaskId, part: usize) -> String {
    format!("{}.documents.{part}", record_name(name))
}

/// The prefix of Secrets with sensitive outputs.
pub(crate) const OUTPUTS: &str = "ebb-output.";

pub(crate) fn output_name(name: &TaskId, number: usize) -> String {
    format!("{OUTPUTS}{}.{}.{number}", name.unit, name.attempt)
}

/// Checks that an instance is a valid label value.
pub(crate) fn check_instance(instance: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = instance.as_bytes();
    if bytes.len() > LONGEST || !bytes.iter().copied().all(plain) || !ends(bytes.first()) || !ends(bytes.last()) {
        return Err(format!("the instance {:?} is not a label value", instance.chars().take(80).collect::<String>()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_labels() {
        let long = "a".repeat(64);
        for (unit, attempt, instance, is_valid) in [
            ("run-1", 1, "kind.Name_1", true),
            ("run-1", 0, "l", false),
            ("-run", 1, "l", false),
            ("run-", 1, "l", false),
            ("Run", 1, "l", false),
            ("a.b", 1, "l", false),
            ("", 1, "l", false),
            (&long, 1, "l", false),
            ("run", 1, "", false),
            ("run", 1, "-l", false),
            ("run", 1, "a=b", false),
            ("run", 1, &long, false),
        ] {
            let name = TaskId { unit: unit.to_owned(), attempt };
            assert_eq!(
                name.check().and_then(|()| check_instance(instance)).is_ok(),
                is_valid,
                "{unit:?} {attempt} {instance:?}"
            );
        }
        let name = TaskId { unit: "run-1".to_owned(), attempt: 2 };
        assert_eq!(task_of_labels(&task_labels(&name, "l")), Some(name.clone()));
        assert_eq!(record_name(&name), "ebb-task.run-1.2");
    }
}
