//! Reserved parts of a pod. An overlay cannot remove, change or duplicate them.

use std::collections::BTreeSet;

use ebb_kube::podspec::{RESERVED_DOMAIN, ViolationList, is_reserved, is_reserved_key, items};
use serde_json::Value;

const MAIN: &str = "main";
/// Fields of `main` that only the base sets.
const OF_MAIN: [&str; 4] = ["args", "command", "image", "restartPolicy"];
/// Fields of the pod that only the base sets, or omits.
const OF_POD: [&str; 2] = ["activeDeadlineSeconds", "restartPolicy"];

/// Reports reserved parts of a merged template that differ from the base.
pub(super) fn check(base: &Value, merged: &Value, report: &mut ViolationList) {
    for field in OF_POD {
        same(&base["spec"], &merged["spec"], field, "spec", report);
    }
    for list in ["containers", "initContainers", "volumes"] {
        named(base, merged, list, report);
    }
    let empty = Value::Null;
    let [ours, theirs] = [base, merged].map(|pod| find(&pod["spec"]["containers"], MAIN).unwrap_or(&empty));
    if theirs.is_null() {
        let help = "delete the directive that removes or renames it";
        return report.add("spec.containers", "the container `main` must stay, because the script runs in it", help);
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
        let why = format!("`{field}` cannot be changed by a pod template");
        let help = match field {
            "image" => "set the `image` of the runner",
            "activeDeadlineSeconds" => "set the `timeout` of the unit",
            "restartPolicy" => "remove it; set the `retry` of the unit",
            _ => "remove it; the script is the command",
        };
        report.add(format!("{path}.{field}"), why, help);
    }
}

/// Checks that items with reserved names are exactly those of the base.
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
            let why = format!("`{name}` must stay, because it runs the unit");
            report.add(format!("spec.{list}"), why, "delete the directive that removes it");
        }
    }
}

/// Checks that items of the base in a list of `main` are unchanged.
fn items_stay(base: &Value, merged: &Value, list: &str, key: &str, report: &mut ViolationList) {
    for item in items(&base[list]) {
        if !items(&merged[list]).any(|other| other == item) {
            let known = item[key].as_str().unwrap_or_default();
            let why = format!("`{known}` is reserved");
            report.add(format!("spec.containers[main].{list}[{known}]"), why, "use another one");
        }
    }
}

fn keys_stay(base: &Value, merged: &Value, part: &str, report: &mut ViolationList) {
    let keys = [base, merged].map(|map| map.as_object().into_iter().flat_map(|map| map.keys()));
    let keys: BTreeSet<_> = keys.into_iter().flatten().filter(|key| is_reserved_key(key)).collect();
    for key in keys.into_iter().filter(|key| base.get(key) != merged.get(key)) {
        let why = format!("`{RESERVED_DOMAIN}/` is reserved");
        report.add(format!("metadata.{part}[{key}]"), why, "use another key");
    }
}

/// Checks that reserved volumes are mounted only where the base mounts them. Another container could change the data.
fn mounts(base: &Value, merged: &Value, report: &mut ViolationList) {
    for list in ["containers", "initContainers"] {
        for container in items(&merged["spec"][list]) {
            let name = container["name"].as_str().unwrap_or_default();
            let ours = find(&base["spec"][list], name);
            for field in ["volumeMounts", "volumeDevices"] {
                for mount in items(&container[field]) {
                    let volume = mount["name"].as_str().unwrap_or_default();
                    if is_reserved(volume) && !ours.is_some_and(|ours| items(&ours[field]).any(|it| it == mount)) {
                        let path = format!("spec.{list}[{name}].{field}[{volume}]");
                        report.add(path, format!("the volume `{volume}` is reserved"), "use one of your own");
                    }
                }
            }
        }
    }
}

fn find<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    items(list).find(|item| item["name"] == name)
}
