//! What of a pod is ours: it is in the base, and no overlay takes it away, changes it or makes another of its name.

use serde_json::Value;

use crate::violation::{ViolationList, below};

/// Names that begin so are ours: volumes, containers, Secrets, objects.
pub const RESERVED_PREFIX: &str = "ebb-";
/// Labels and annotations of this domain are ours.
pub const RESERVED_DOMAIN: &str = "ebb.dev";

/// Names that Signadot's operator reserves; a document that uses one loads nowhere else.
const SIGNADOT: [&str; 3] =
    ["signadot-execunit-io", "signadot-execunit-input-manager", "signadot-execunit-output-manager"];
/// The container that the script runs in.
const MAIN: &str = "main";
/// What the base decides of it.
const OF_MAIN: [&str; 4] = ["args", "command", "image", "restartPolicy"];
/// What the base decides of the pod, also by leaving it out.
const OF_POD: [&str; 2] = ["activeDeadlineSeconds", "restartPolicy"];

/// Returns true if a name is not the author's to give.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX) || SIGNADOT.contains(&name)
}

/// Returns true if a label or an annotation is ours: `ebb.dev/…`, `x.ebb.dev/…`.
pub(crate) fn is_our_key(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| {
        domain.strip_suffix(RESERVED_DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Notes what a merged template has otherwise than the base in what is ours.
pub(crate) fn check(base: &Value, merged: &Value, report: &mut ViolationList) {
    for field in OF_POD {
        same(&base["spec"], &merged["spec"], field, "spec", report);
    }
    for list in ["containers", "initContainers", "volumes"] {
        named(base, merged, list, report);
    }
    let empty = Value::Null;
    let [ours, theirs] = [base, merged].map(|pod| find(&pod["spec"]["containers"], MAIN).unwrap_or(&empty));
    if theirs.is_null() {
        let help = "take the directive that removes or renames it out of the pod template";
        return report.add("spec.containers", "the container `main` has to stay, the script runs in it", help);
    }
    for field in OF_MAIN {
        same(ours, theirs, field, "spec.containers[main]", report);
    }
    items_stay(ours, theirs, "env", "name", report);
    items_stay(ours, theirs, "volumeMounts", "mountPath", report);
    for part in ["labels", "annotations"] {
        keys_stay(&base["metadata"][part], &merged["metadata"][part], part, report);
    }
    mounts(base, merged, report);
}

fn same(base: &Value, merged: &Value, field: &str, path: &str, report: &mut ViolationList) {
    if base.get(field) != merged.get(field) {
        let why = format!("`{field}` is not the pod template's to change");
        let help = match field {
            "image" => "the runner's `image` says it",
            "activeDeadlineSeconds" => "the unit's `timeout` says it",
            "restartPolicy" => "take it out; the unit's `retry` says how often it is tried",
            _ => "the script is what runs; take it out",
        };
        report.add(below(path, field), why, help);
    }
}

/// Items with reserved names are those of the base, all of them and as they are.
fn named(base: &Value, merged: &Value, list: &str, report: &mut ViolationList) {
    for item in items(&merged["spec"][list]) {
        let name = item["name"].as_str().unwrap_or_default();
        if is_reserved(name) && find(&base["spec"][list], name) != Some(item) {
            let why = format!("the name `{name}` is reserved");
            report.add(format!("spec.{list}[{name}]"), why, "give it another name");
        }
    }
    for item in items(&base["spec"][list]) {
        let name = item["name"].as_str().unwrap_or_default();
        if is_reserved(name) && find(&merged["spec"][list], name).is_none() {
            let why = format!("`{name}` has to stay, the unit is run by it");
            report.add(format!("spec.{list}"), why, "take the directive that removes it out");
        }
    }
}

/// What the base has in a list of `main` stays as it is.
fn items_stay(base: &Value, merged: &Value, list: &str, key: &str, report: &mut ViolationList) {
    for item in items(&base[list]) {
        if !items(&merged[list]).contains(item) {
            let known = item[key].as_str().unwrap_or_default();
            let why = format!("`{known}` is set by us");
            report.add(format!("spec.containers[main].{list}[{known}]"), why, "use another one");
        }
    }
}

fn keys_stay(base: &Value, merged: &Value, part: &str, report: &mut ViolationList) {
    let keys = [base, merged].map(|map| map.as_object().into_iter().flat_map(|map| map.keys()));
    let mut keys: Vec<_> = keys.into_iter().flatten().filter(|key| is_our_key(key)).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        if base.get(key) != merged.get(key) {
            report.add(format!("metadata.{part}[{key}]"), format!("`{RESERVED_DOMAIN}/` is ours"), "use another key");
        }
    }
}

/// Volumes of ours are mounted where the base mounts them: a container between ours and the script could change what
/// passes.
fn mounts(base: &Value, merged: &Value, report: &mut ViolationList) {
    for list in ["containers", "initContainers"] {
        for container in items(&merged["spec"][list]) {
            let name = container["name"].as_str().unwrap_or_default();
            let ours = find(&base["spec"][list], name);
            for field in ["volumeMounts", "volumeDevices"] {
                for mount in items(&container[field]) {
                    let volume = mount["name"].as_str().unwrap_or_default();
                    let there = ours.is_some_and(|ours| items(&ours[field]).contains(mount));
                    if is_reserved(volume) && !there {
                        let path = format!("spec.{list}[{name}].{field}[{volume}]");
                        report.add(path, format!("the volume `{volume}` is ours"), "use one of your own");
                    }
                }
            }
        }
    }
}

fn find<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    items(list).iter().find(|item| item["name"] == name)
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}
