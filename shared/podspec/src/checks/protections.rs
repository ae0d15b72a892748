//! Protections that our template sets: an overlay may set them otherwise where the other rules let it, but not take them
//! away, because what Kubernetes does without them is weaker.

use serde_json::Value;

use super::items;
use crate::violation::ViolationList;

const OF_POD: [&str; 4] = [
    "/automountServiceAccountToken",
    "/hostUsers",
    "/securityContext/appArmorProfile",
    "/securityContext/seccompProfile",
];
const OF_CONTAINER: [&str; 3] = [
    "/securityContext/allowPrivilegeEscalation",
    "/securityContext/appArmorProfile",
    "/securityContext/seccompProfile",
];

/// Notes protections of the base that are missing.
pub(super) fn check(spec: &Value, base: &Value, path: &str, report: &mut ViolationList) {
    present(spec, base, &OF_POD, path, report);
    for list in ["initContainers", "containers"] {
        for (at, container) in items(spec, list, path) {
            if let Some((_, ours)) = items(base, list, path).find(|(ours, _)| *ours == at) {
                present(container, ours, &OF_CONTAINER, &at, report);
            }
        }
    }
}

fn present(of: &Value, base: &Value, fields: &[&str], path: &str, report: &mut ViolationList) {
    let set = |value: &Value, field: &str| value.pointer(field).is_some_and(|it| !it.is_null());
    for field in fields.iter().filter(|field| set(base, field) && !set(of, field)) {
        let why = "our template sets it, and without it the pod is less protected";
        report.add(format!("{path}{}", field.replace('/', ".")), why, "leave it as it is, or set it yourself");
    }
}
