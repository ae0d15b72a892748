//! Protections of the base template. An overlay may change them within the other rules but not remove them, because
//! the defaults of Kubernetes are weaker.

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

/// Reports protections of the base that are missing.
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
        let why = "the base template sets it, and the pod is less protected without it";
        report.add(format!("{path}{}", field.replace('/', ".")), why, "leave it as it is, or set it yourself");
    }
}
