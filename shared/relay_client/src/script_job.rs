//! Builds the Job that runs a script: Ebb's pod template, merged with the author's pod template.

use std::time::Duration;

use ebb_kube::podspec::PodspecViolation;
use ebb_protocol::entrypoint::PROGRAM_NAME;
use ebb_protocol::id::short_digest;
use ebb_protocol::relay::{ScriptTask, TaskId, TaskNames};
use serde_json::{Value, json};

/// The folder of the entrypoint and the script.
const FOLDER: &str = "/ebb";
/// The folder of the Secret.
const INPUT: &str = "/ebb-in";
/// The key of the Secret, a file in [`INPUT`].
pub(super) const SPEC: &str = "spec.json";
/// The container of the script.
pub(super) const MAIN: &str = "main";
/// Maximum length of a label value. Names of Jobs are label values, too.
const MAX_NAME: usize = 63;
/// Characters that Kubernetes appends to the name of a Job to name its pod, which is a host name.
const POD_SUFFIX: usize = 6;
/// Characters of the digest in a readable name. Names of a namespace must differ.
const DIGEST: usize = 10;
/// Seconds after the deadline and the grace periods. The Job controller then ends a pod without a relay.
const SLACK: u64 = 60;
/// The field of a pod that decides if it has the token of its service account.
const TOKEN: &str = "automountServiceAccountToken";
/// The field of a container that decides if its processes may gain rights.
const GAINS: &str = "allowPrivilegeEscalation";
/// The user of the init container. It is not root, and its folder is writable by all users.
const INIT_USER: u64 = 65532;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// The image with the entrypoint, as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    /// The time between `SIGTERM` and `SIGKILL` of a script.
    pub grace: Duration,
    /// True if an image with the user root does not start, as the level `restricted` of the Pod Security Standards requires.
    /// The pod always meets all other requirements of that level.
    pub run_as_non_root: bool,
}

/// Returns the name of the Job and the Secret of an attempt: `ebb-TARGET-RESOURCE-UNIT-DIGEST`. It is deterministic,
/// and its prefix is reserved. The digest identifies the attempt.
pub(super) fn name(task: &TaskId, names: &TaskNames) -> String {
    let prefix = ebb_kube::podspec::RESERVED_PREFIX;
    let mut parts: Vec<String> = [&names.target, &names.resource, &names.unit].map(|name| dns_label(name)).into();
    parts.retain(|part| !part.is_empty());
    if !parts.is_empty() {
        let digest = short_digest(&[&task.unit, &task.attempt.to_string()], DIGEST);
        let longest = MAX_NAME - POD_SUFFIX - prefix.len() - DIGEST;
        while parts.iter().map(|part| part.len() + 1).sum::<usize>() > longest {
            // The longest part is shortened, so that a long target does not displace the unit.
            if let Some(longest) = parts.iter_mut().max_by_key(|part| part.len()) {
                longest.pop();
            }
        }
        let parts: Vec<&str> = parts.iter().map(|part| part.trim_end_matches('-')).collect();
        return format!("{prefix}{}-{digest}", parts.join("-"));
    }
    // A script without a target.
    let name = format!("{prefix}{}-{}", task.unit, task.attempt);
    if name.len() <= MAX_NAME {
        return name;
    }
    format!("{prefix}{}", short_digest(&[&task.unit, &task.attempt.to_string()], 32))
}

/// Returns a name in the characters of a DNS label.
fn dns_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(plain).take(MAX_NAME).collect();
    label.trim_matches('-').to_owned()
}

/// Returns the Job of a script. It has the name of the Secret that it mounts.
///
/// # Errors
/// Returns an error if the author's pod template is not YAML, cannot be merged, or changes a reserved field.
pub(super) fn job(
    script: &ScriptTask,
    timeout_ms: u64,
    name: &str,
    pods: &PodSettings,
) -> Result<Value, Vec<PodspecViolation>> {
    let base = template(script, name, pods);
    let template = match &script.pod_template {
        Some(text) => {
            let overlay = ebb_kube::podspec::parse(text).map_err(|violation| vec![violation])?;
            let mut merged = ebb_kube::podspec::merge(&base, &overlay)?;
            // Kubernetes gives a pod the token of the account that it names. The relay and the policy of the cluster
            // decide if the pod may name it.
            if overlay["spec"][TOKEN].is_null()
                && ebb_kube::podspec::named_account(&merged["spec"]).is_some()
                && let Some(pod) = merged["spec"].as_object_mut()
            {
                pod.shift_remove(TOKEN);
            }
            // A privileged container may gain rights. The API server rejects the `false` of the base beside it.
            let containers = merged["spec"]["containers"].as_array_mut().into_iter().flatten();
            for context in containers.filter_map(|container| container.get_mut("securityContext")?.as_object_mut()) {
                if context.get("privileged") == Some(&true.into()) && context.get(GAINS) == Some(&false.into()) {
                    context.shift_remove(GAINS);
                }
            }
            merged
        }
        None => base,
    };
    // The entrypoint and the relay enforce the timeout. This deadline ends a pod without either.
    let deadline = timeout_ms.div_ceil(1000).saturating_add(2 * pods.grace.as_secs()).saturating_add(SLACK);
    let mut metadata = json!({"name": name});
    if let Some(namespace) = &script.namespace {
        metadata["namespace"] = namespace.as_str().into();
    }
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0, // The unit counts attempts.
            "activeDeadlineSeconds": deadline,
            "template": template,
        },
    }))
}

fn template(script: &ScriptTask, secret: &str, pods: &PodSettings) -> Value {
    let mut context = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    if pods.run_as_non_root {
        context["runAsNonRoot"] = true.into();
    }
    let confined = json!({GAINS: false, "capabilities": {"drop": ["ALL"]}});
    let mut init_context = confined.clone();
    init_context["runAsNonRoot"] = true.into();
    init_context["runAsUser"] = INIT_USER.into();
    json!({
        "metadata": {},
        "spec": {
            "restartPolicy": "Never",
            TOKEN: false,
            // The script gets the variables of its document only, not those of the services of the namespace.
            "enableServiceLinks": false,
            // The entrypoint needs the grace period up to twice: for the script, and to report its end.
            "terminationGracePeriodSeconds": 2 * pods.grace.as_secs() + 5,
            "securityContext": context,
            "initContainers": [{
                "name": "ebb-install",
                "image": pods.entrypoint_image,
                "command": [format!("/{PROGRAM_NAME}"), "install", FOLDER],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                "securityContext": init_context,
                "volumeMounts": [{"name": "ebb-entrypoint", "mountPath": FOLDER}],
            }],
            "containers": [{
                "name": MAIN,
                "image": script.image,
                "command": [format!("{FOLDER}/{PROGRAM_NAME}"), "run", "--spec", format!("{INPUT}/{SPEC}")],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                "securityContext": confined,
                "volumeMounts": [
                    {"name": "ebb-entrypoint", "mountPath": FOLDER},
                    {"name": "ebb-in", "mountPath": INPUT, "readOnly": true},
                ],
            }],
            "volumes": [
                {"name": "ebb-entrypoint", "emptyDir": {}},
                // The file is readable by every user, because the user of the image is unknown.
                {"name": "ebb-in", "secret": {"secretName": secret, "defaultMode": 0o444}},
            ],
        },
    })
}

/// Returns the folder in which the entrypoint writes the script.
pub(super) fn folder() -> String {
    format!("{FOLDER}/script")
}
