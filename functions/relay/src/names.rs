//! Names and labels of the relay's objects.

use std::collections::BTreeMap;

use ebb_kube::podspec::is_label;
use ebb_protocol::{TaskId, TaskNames, limits, short_digest};

/// The unit of the task, not its name. Objects that are in no record are found by this label and [`ATTEMPT`].
pub(crate) const UNIT: &str = "ebb.dev/unit";
pub(crate) const ATTEMPT: &str = "ebb.dev/attempt";
pub(crate) const INSTANCE: &str = "ebb.dev/instance";
/// The purpose of a Secret: record, continuation, output, namespace or kept.
pub(crate) const PART: &str = "ebb.dev/part";
/// The phase of a record, for display.
pub(crate) const PHASE: &str = "ebb.dev/phase";
/// Keeps a record that is needed. A record without it does not block the deletion of the relay's namespace.
pub(crate) const FINALIZER: &str = "ebb.dev/result";
pub(crate) const MANAGER: &str = "ebb";
/// The reporting controller of events.
pub(crate) const CONTROLLER: &str = "ebb.dev/relay";
/// The prefix of labels of a record: each names a Secret or ConfigMap that objects of the task read or make.
pub(crate) const USES: &str = "uses.ebb.dev/";
/// The values of these labels.
pub(crate) const READS: &str = "reads";
pub(crate) const MAKES: &str = "makes";

/// Labels and annotations for people. Nothing is selected by them, because names are not unique. The last two are
/// annotations only. [`RUN`] also identifies an object that is in no record and whose labels were changed.
pub(crate) const TARGET: &str = "ebb.dev/target";
const RESOURCE: &str = "ebb.dev/resource";
const UNIT_NAME: &str = "ebb.dev/unit-name";
const PLUGIN: &str = "ebb.dev/plugin";
const HOOK: &str = "ebb.dev/hook";
pub(crate) const RUN: &str = "ebb.dev/run";
/// The recommended label of Kubernetes. The value in a manifest of an author stays.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Maximum bytes of a name.
const MAX_NAME: usize = 400;
/// Characters of the digest in a shortened label value.
const DIGEST: usize = 8;

pub(crate) const RECORD: &str = "record";
/// The [`PART`] of Secrets with parts of a record that is too large.
pub(crate) const CONTINUED: &str = "continued";
pub(crate) const OUTPUT: &str = "output";
/// The [`PART`] of Secrets that name a namespace with sensitive outputs.
pub(crate) const NAMESPACE: &str = "namespace";

/// The [`PART`] and the name of the Secret with the time since which records are kept.
pub(crate) const KEPT: &str = "kept";
pub(crate) const KEPT_SINCE: &str = "ebb-kept-since";

const LONGEST: usize = 63;

pub(crate) struct ObjectMarks {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Returns the marks of an object of a task. `names` have been shortened by [`clean`].
pub(crate) fn object_marks(name: &TaskId, instance: &str, names: &TaskNames, more: &[(&str, &str)]) -> ObjectMarks {
    let mut labels = secret_labels(name, Some(instance), more);
    labels.extend(name_labels(names));
    let mut annotations = BTreeMap::new();
    if !names.is_empty() {
        let all = shown_names(names).into_iter().chain([(HOOK, &*names.hook), (RUN, run(name))]);
        let all = all.filter(|(_, text)| !text.is_empty());
        annotations.extend(all.map(|(key, text)| (key.to_owned(), text.to_owned())));
    }
    ObjectMarks { labels, annotations }
}

/// Returns the id of the run of a task, or an empty text if its unit names none.
pub(crate) fn run(name: &TaskId) -> &str {
    name.unit.rsplit_once('-').map_or("", |(run, _)| run)
}

pub(crate) fn name_labels(names: &TaskNames) -> BTreeMap<String, String> {
    let names = shown_names(names).into_iter().filter_map(|(key, text)| Some((key.to_owned(), label_value(text)?)));
    names.chain([(MANAGED_BY.to_owned(), MANAGER.to_owned())]).collect()
}

fn shown_names(names: &TaskNames) -> [(&'static str, &str); 4] {
    [(TARGET, &names.target), (RESOURCE, &names.resource), (UNIT_NAME, &names.unit), (PLUGIN, &names.plugin)]
}

/// Returns another instance for people. `target` is the label of an object or record.
pub(crate) fn other_instance(target: Option<&str>) -> String {
    let target = target.map(|target| format!(" ({})", target.replacen('.', "/", 1))).unwrap_or_default();
    format!("another instance{target}")
}

/// Shortens the names of a request, which come from another process.
pub(crate) fn clean(names: &mut TaskNames) {
    let TaskNames { target, resource, unit, plugin, hook } = names;
    for name in [target, resource, unit, plugin, hook] {
        *name = limits::clean(name, MAX_NAME);
    }
}

/// Returns a name as a label value, if one is left: `sandbox.a` for `sandbox/a`. A long one ends with a digest.
fn label_value(name: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '.' };
    let value: String = name.chars().map(plain).collect();
    let value = value.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    match value.get(..LONGEST - DIGEST - 1) {
        _ if value.is_empty() => None,
        Some(start) if value.len() > LONGEST => {
            let start = start.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            Some(format!("{start}-{}", short_digest(&[name], DIGEST)))
        }
        _ => Some(value.to_owned()),
    }
}

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

pub(crate) fn continuation_name(name: &TaskId, part: usize) -> String {
    format!("{}.{part}", record_name(name))
}

pub(crate) fn documents_name(name: &TaskId, part: usize) -> String {
    format!("{}.documents.{part}", record_name(name))
}

/// The prefix of Secrets that name a namespace with sensitive outputs.
pub(crate) const NAMESPACES: &str = "ebb-namespace.";

pub(crate) fn namespace_name(namespace: &str) -> String {
    format!("{NAMESPACES}{namespace}")
}

/// The beginning of the names of Secrets with sensitive outputs.
pub(crate) const OUTPUTS: &str = "ebb-output.";

pub(crate) fn output_name(name: &TaskId, number: usize) -> String {
    format!("{OUTPUTS}{}.{}.{number}", name.unit, name.attempt)
}

pub(crate) fn check_instance(instance: &str) -> Result<(), String> {
    if !is_label(instance) {
        return Err(format!("the instance {:?} is not a label value", instance.chars().take(80).collect::<String>()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::rows;

    #[test]
    fn names_are_valid_labels() {
        let long = "a".repeat(64);
        for (instance, is_valid) in [("kind.Name_1", true), ("", false), ("-l", false), ("a=b", false), (&long, false)]
        {
            assert_eq!(check_instance(instance).is_ok(), is_valid, "{instance:?}");
        }
        let name = TaskId { unit: "run-1".to_owned(), attempt: 2 };
        let marks = object_marks(&name, "l", &TaskNames::default(), &[]);
        assert_eq!(task_of_labels(&marks.labels), Some(name.clone()));
        assert!(marks.annotations.is_empty());
        assert_eq!(record_name(&name), "ebb-task.run-1.2");
    }

    /// Names are for people. They never replace the labels by which the relay finds an object.
    #[test]
    fn names_become_labels_and_annotations() {
        let name = TaskId { unit: "k5nc-1-pre-start-0".to_owned(), attempt: 2 };
        let names = serde_json::json!({
            "target": "sandbox/a", "resource": "db", "unit": "create\u{1b}[31m", "plugin": "db@1.2.0", "hook": "preStart",
        });
        let mut names: TaskNames = serde_json::from_value(names).unwrap();
        clean(&mut names);
        let ObjectMarks { labels, annotations } = object_marks(&name, "life", &names, &[(PART, OUTPUT)]);
        assert_eq!(task_of_labels(&labels), Some(name));
        let expected = rows::<(String, String)>("names_become_labels_and_annotations");
        assert_eq!(labels.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!((&*annotations[TARGET], &*annotations[RUN]), ("sandbox/a", "k5nc-1-pre-start"));
        assert_eq!(annotations[UNIT_NAME], "create\u{fffd}[31m");
        assert_eq!(annotations.len(), 6);
    }

    #[test]
    fn label_values_are_valid_and_short() {
        let (long, other) = ("a".repeat(64), format!("{}b", "a".repeat(63)));
        for (name, expected) in rows::<(String, Option<String>)>("label_values_are_valid_and_short") {
            assert_eq!(label_value(&name), expected, "{name:?}");
        }
        // Two long names keep different values.
        let values = [&long, &other, &format!("{}/é", "-b".repeat(200))].map(|name| label_value(name).unwrap());
        assert!(values[0] != values[1] && values.iter().all(|value| check_instance(value).is_ok()), "{values:?}");
    }
}
