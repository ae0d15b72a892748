//! Fills in what the pod template of a script leaves open, by the policy of its namespace.

use serde_json::{Map, Value, json};

use crate::podspec::policy::{ClusterPolicy, PodSecurityLevel};

/// The user of scripts whose image may have the user root. It owns nothing in usual images.
const USER: u64 = 65532;
/// The account of pods that name none. Its token belongs to no pod in particular.
const DEFAULT_ACCOUNT: &str = "default";

/// Returns the service account that a pod names, except for `default`.
pub fn named_account(pod: &Value) -> Option<&str> {
    // The API server copies the older field.
    let mut names = ["serviceAccountName", "serviceAccount"].into_iter().filter_map(|field| pod[field].as_str());
    names.find(|name| !name.is_empty()).filter(|name| *name != DEFAULT_ACCOUNT)
}

/// Fills in the fields of a script's pod that are missing or null. Others stay as they are.
///
/// - The level `restricted` needs a user other than root. Images rarely have one.
/// - A pod has the token of an account only if it names it. The admission policy rejects an account that is not listed. The
///   relay may read a new list later than the API server, so it does not look at the list.
/// - A pod reads its images with the Secrets of its namespace.
pub fn fill_defaults(pod: &mut Value, namespace: &str, policy: &ClusterPolicy) {
    let Some(allowed) = policy.namespaces.get(namespace) else { return };
    let names_account = named_account(pod).is_some();
    let Some(pod) = pod.as_object_mut() else { return };
    if !names_account {
        fill(pod, "automountServiceAccountToken", false.into());
    }
    if !allowed.image_pull_secrets.is_empty() {
        fill(pod, "imagePullSecrets", allowed.image_pull_secrets.iter().map(|name| json!({"name": name})).collect());
    }
    if policy.level(namespace) == PodSecurityLevel::Restricted {
        fill(pod, "securityContext", json!({}));
        if let Some(Value::Object(context)) = pod.get_mut("securityContext") {
            fill(context, "runAsNonRoot", true.into());
            fill(context, "runAsUser", USER.into());
        }
    }
}

fn fill(fields: &mut Map<String, Value>, field: &str, value: Value) {
    if fields.get(field).is_none_or(Value::is_null) {
        fields.insert(field.to_owned(), value);
    }
}
