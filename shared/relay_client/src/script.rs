//! Converts a script into Kubernetes objects: a Job, and a Secret with the spec of its entrypoint.
//!
//! The Job has Ebb's pod template (`script/pod.yaml`), merged with the author's pod template.

use std::sync::LazyLock;
use std::time::Duration;

use ebb_kube::podspec::{PodspecViolation, RESERVED_PREFIX, named_account};
use ebb_protocol::entrypoint::{self, EntrypointSpec};
use ebb_protocol::relay::{
    DocumentFill, EnsureTask, FillWith, ObjectTask, ScriptInput, ScriptTask, SecretDocument, TaskBody, TaskCompletion,
    TaskNames,
};
use ebb_protocol::{Millis, TaskId, UnitValue, short_digest};
use serde_json::{Value, json};

use super::pod_template;
use super::registry::ClusterConfig;

/// Maximum bytes of a Secret in Kubernetes.
const MAX_SECRET: usize = 1 << 20;
/// The pod of a script without its images, its Secret and its grace period.
static TEMPLATE: LazyLock<Value> =
    LazyLock::new(|| pod_template::parse(include_str!("script/pod.yaml")).expect("the file has a pod template"));
/// The key of the Secret, a file in the volume `ebb-in`.
const SPEC: &str = "spec.json";
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

#[derive(Clone, Copy)]
pub(super) struct PodSettings<'a> {
    pub(super) cluster: &'a ClusterConfig,
    /// The time between `SIGTERM` and `SIGKILL` of a script.
    pub(super) grace: Duration,
}

/// Returns the request for the relay. Objects are unchanged; a script becomes a Job and its Secret.
///
/// # Errors
/// Returns the reason why a script cannot be sent to the cluster. Repeating the request does not help.
pub(super) fn objects(request: EnsureTask, pods: PodSettings<'_>) -> Result<EnsureTask<ObjectTask>, String> {
    let EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body } = request;
    let body = match body {
        TaskBody::Objects(objects) => objects,
        TaskBody::Script(script) => {
            let name = job_name(&task, &names);
            ObjectTask {
                instance: task.instance().to_owned(),
                namespace: script.namespace.clone(),
                apply: vec![job(&script, timeout_ms, &name, pods)?],
                secrets: vec![document(script, name, timeout_ms, pods)?],
                until: TaskCompletion::Ended { container: "main".to_owned() },
                ..ObjectTask::default()
            }
        }
    };
    Ok(EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body })
}

/// Returns the Secret with the spec of the entrypoint. The relay fills in values of other Secrets and its report URL.
fn document(
    script: ScriptTask,
    name: String,
    timeout_ms: u64,
    pods: PodSettings<'_>,
) -> Result<SecretDocument, String> {
    let mut fill = vec![DocumentFill { pointer: "/relay".to_owned(), with: FillWith::Report }];
    let mut inputs = Vec::with_capacity(script.inputs.len());
    for (number, input) in script.inputs.into_iter().enumerate() {
        inputs.push(match input.value {
            Some(UnitValue::Secret(secret)) => {
                fill.push(DocumentFill { pointer: format!("/inputs/{number}/value"), with: FillWith::Secret(secret) });
                ScriptInput { value: None, ..input }
            }
            _ => input,
        });
    }
    let spec = EntrypointSpec {
        v: entrypoint::VERSION,
        text: script.text,
        env: script.env,
        inputs,
        outputs: script.outputs,
        timeout_ms,
        grace_ms: Millis::from(pods.grace).0,
        folder: "/ebb/script".to_owned(),
        termination_log: "/dev/termination-log".to_owned(),
        relay: None,
    };
    let mut document = serde_json::to_value(spec).map_err(|error| error.to_string())?;
    for fill in &fill {
        // The relay replaces existing members only.
        let (parent, key) = fill.pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(parent)) = document.pointer_mut(parent) {
            parent.insert(key.to_owned(), Value::Null);
        }
    }
    match document.to_string().len() {
        bytes if bytes > MAX_SECRET => Err(format!(
            "script and inputs have {bytes} bytes together, and their Secret holds at most {MAX_SECRET}; let the script \
             fetch large inputs"
        )),
        _ => Ok(SecretDocument { name, key: SPEC.to_owned(), document, fill }),
    }
}

/// Returns the name of the Job and the Secret of an attempt: `ebb-TARGET-RESOURCE-UNIT-DIGEST`. It is deterministic,
/// and its prefix is reserved. The digest identifies the attempt.
fn job_name(task: &TaskId, names: &TaskNames) -> String {
    let mut parts: Vec<String> = [&names.target, &names.resource, &names.unit].map(|name| dns_label(name)).into();
    parts.retain(|part| !part.is_empty());
    if !parts.is_empty() {
        let digest = short_digest(&[&task.unit, &task.attempt.to_string()], DIGEST);
        let longest = MAX_NAME - POD_SUFFIX - RESERVED_PREFIX.len() - DIGEST;
        while parts.iter().map(|part| part.len() + 1).sum::<usize>() > longest {
            // The longest part is shortened, so that a long target does not displace the unit.
            if let Some(longest) = parts.iter_mut().max_by_key(|part| part.len()) {
                longest.pop();
            }
        }
        let parts: Vec<&str> = parts.iter().map(|part| part.trim_end_matches('-')).collect();
        return format!("{RESERVED_PREFIX}{}-{digest}", parts.join("-"));
    }
    // A script without a target.
    let name = format!("{RESERVED_PREFIX}{}-{}", task.unit, task.attempt);
    if name.len() <= MAX_NAME {
        return name;
    }
    format!("{RESERVED_PREFIX}{}", short_digest(&[&task.unit, &task.attempt.to_string()], 32))
}

fn dns_label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(plain).take(MAX_NAME).collect();
    label.trim_matches('-').to_owned()
}

/// Returns the Job of a script. It has the name of the Secret that it mounts.
///
/// # Errors
/// Returns the reason if the author's pod template is not YAML, cannot be merged, or changes a reserved field.
fn job(script: &ScriptTask, timeout_ms: u64, name: &str, pods: PodSettings<'_>) -> Result<Value, String> {
    let refused = |violations: Vec<PodspecViolation>| {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        format!("pod template: {}", list.join("\n"))
    };
    let base = template(script, name, pods);
    let template = match &script.pod_template {
        Some(text) => {
            let overlay = pod_template::parse(text).map_err(|violation| refused(vec![violation]))?;
            let mut merged = pod_template::merge(&base, &overlay).map_err(refused)?;
            // Kubernetes gives a pod the token of the account that it names, if the policy of the cluster allows it.
            if overlay["spec"][TOKEN].is_null()
                && named_account(&merged["spec"]).is_some()
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

fn template(script: &ScriptTask, secret: &str, pods: PodSettings<'_>) -> Value {
    let mut template = TEMPLATE.clone();
    let pod = &mut template["spec"];
    pod["terminationGracePeriodSeconds"] = (2 * pods.grace.as_secs() + 5).into();
    pod["initContainers"][0]["image"] = pods.cluster.entrypoint_image.as_str().into();
    pod["containers"][0]["image"] = script.image.as_str().into();
    pod["volumes"][1]["secret"]["secretName"] = secret.into();
    template
}

#[cfg(test)]
mod tests;
