//! Names and labels of what is ours.

use std::collections::BTreeMap;

use ebb_protocol::relay::TaskId;

/// The label with the unit of a task.
pub(crate) const UNIT: &str = "ebb.dev/unit";
pub(crate) const ATTEMPT: &str = "ebb.dev/attempt";
/// The label with the instance that a task belongs to.
pub(crate) const INSTANCE: &str = "ebb.dev/instance";
/// The label that says what a Secret is for.
pub(crate) const PART: &str = "ebb.dev/part";
/// The label with the phase of a record, for people.
pub(crate) const PHASE: &str = "ebb.dev/phase";
/// Holds a record until its result was taken and nothing of it is left: nobody else knows what to remove.
pub(crate) const FINALIZER: &str = "ebb.dev/result";
pub(crate) const MANAGER: &str = "ebb";

/// [`PART`] of a record.
pub(crate) const RECORD: &str = "record";
/// [`PART`] of what does not fit into a record.
pub(crate) const CONTINUED: &str = "continued";
/// [`PART`] of a sensitive output.
pub(crate) const OUTPUT: &str = "output";

/// The longest label value and DNS label.
const LONGEST: usize = 63;

/// The labels of all that is made for a task.
pub(crate) fn task_labels(name: &TaskId, instance: &str) -> BTreeMap<String, String> {
    let labels = [(UNIT, name.unit.clone()), (ATTEMPT, name.attempt.to_string()), (INSTANCE, instance.to_owned())];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The label by which its controller marks the pods of a Job: the Job's uid. No plugin may give it.
pub(crate) const JOB: &str = "batch.kubernetes.io/controller-uid";

/// Selects the pods of a Job.
pub(crate) fn pod_selector(uid: &str) -> String {
    format!("{JOB}={uid}")
}

/// Returns the task that labels name.
pub(crate) fn task_of_labels(labels: &BTreeMap<String, String>) -> Option<TaskId> {
    Some(TaskId { unit: labels.get(UNIT)?.clone(), attempt: labels.get(ATTEMPT)?.parse().ok()? })
}

/// The Secret that holds the record. A full stop separates, which no unit has: two names never meet.
pub(crate) fn record_name(name: &TaskId) -> String {
    format!("ebb-task.{}.{}", name.unit, name.attempt)
}

/// The Secret that holds a further part of a result.
pub(crate) fn continuation_name(name: &TaskId, part: usize) -> String {
    format!("ebb-task.{}.{}.{part}", name.unit, name.attempt)
}

/// The Secret that holds a part of the documents of a task that waits.
pub(crate) fn documents_name(name: &TaskId, part: usize) -> String {
    format!("ebb-task.{}.{}.documents.{part}", name.unit, name.attempt)
}

/// What the names of sensitive outputs begin with.
pub(crate) const OUTPUTS: &str = "ebb-output.";

/// The Secret that holds a sensitive output.
pub(crate) fn output_name(name: &TaskId, number: usize) -> String {
    format!("{OUTPUTS}{}.{}.{number}", name.unit, name.attempt)
}

/// Whether a name can be one.
///
/// # Errors
/// When it cannot; says why.
pub(crate) fn check_task(name: &TaskId) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let unit = &name.unit;
    let ends = unit.starts_with('-') || unit.ends_with('-');
    if unit.is_empty() || unit.len() > LONGEST || !unit.bytes().all(plain) || ends {
        return Err(format!("{:?} is no DNS label", unit.chars().take(80).collect::<String>()));
    }
    if name.attempt == 0 {
        return Err("attempts count from 1".to_owned());
    }
    Ok(())
}

/// Whether a text can be the value of a label.
///
/// # Errors
/// When it cannot; says why.
pub(crate) fn check_instance(instance: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = instance.as_bytes();
    if bytes.len() > LONGEST || !bytes.iter().copied().all(plain) || !ends(bytes.first()) || !ends(bytes.last()) {
        return Err(format!("the instance {:?} is no label value", instance.chars().take(80).collect::<String>()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels() {
        let long = "a".repeat(64);
        for (unit, attempt, instance, good) in [
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
                check_task(&name).and_then(|()| check_instance(instance)).is_ok(),
                good,
                "{unit:?} {attempt} {instance:?}"
            );
        }
        let name = TaskId { unit: "run-1".to_owned(), attempt: 2 };
        assert_eq!(task_of_labels(&task_labels(&name, "l")), Some(name.clone()));
        assert_eq!(record_name(&name), "ebb-task.run-1.2");
    }
}
