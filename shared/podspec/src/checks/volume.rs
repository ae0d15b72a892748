//! Rules for volumes.

use serde_json::Value;

use super::{items, metadata};
use crate::violation::ViolationList;

/// Sources within the namespace. `csi` is omitted although the restricted level allows it: an inline driver obeys its
/// own attributes, while a claim needs a class of the operator.
const ALLOWED: [&str; 7] =
    ["configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
/// Allowed sources of a projected volume. The others are tokens, certificates and trust of the cluster.
const PROJECTED: [&str; 3] = ["configMap", "downwardAPI", "secret"];

pub(super) fn check(volume: &Value, path: &str, report: &mut ViolationList) {
    let sources = volume.as_object().into_iter().flatten().filter(|(key, value)| *key != "name" && !value.is_null());
    for (source, _) in sources {
        if !ALLOWED.contains(&source.as_str()) {
            let why = match source.as_str() {
                "hostPath" => "pods may not use files of the node".to_owned(),
                "csi" => "inline drivers are not checked".to_owned(),
                _ => format!("volumes from `{source}` are not allowed"),
            };
            report.add(format!("{path}.{source}"), why, "use a `persistentVolumeClaim`, an `emptyDir` or a `secret`");
        }
    }
    let claim = &volume["ephemeral"]["volumeClaimTemplate"]["metadata"];
    let at = format!("{path}.ephemeral.volumeClaimTemplate.metadata");
    metadata::of_pod(claim, &Value::Null, "", &at, report);
    for (at, source) in items(&volume["projected"], "sources", &format!("{path}.projected")) {
        for (kind, _) in source.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            if !PROJECTED.contains(&kind.as_str()) {
                let help = "use `serviceAccountName`, if the operator of the cluster allows one";
                report.add(format!("{at}.{kind}"), format!("`{kind}` is a credential of the cluster"), help);
            }
        }
    }
}
