//! The Job that runs a script: our pod template, the author's overlay on it, and the Job around both.

use std::time::Duration;

use ebb_podspec::PodspecViolation;
use ebb_protocol::entrypoint::PROGRAM_NAME;
use ebb_protocol::id::short_digest;
use ebb_protocol::relay::{ScriptTask, TaskId};
use serde_json::{Value, json};

/// The folder of the entrypoint, and of the script below it.
const FOLDER: &str = "/ebb";
/// The folder of [`super::script`]'s Secret.
const INPUT: &str = "/ebb-in";
/// The key of that Secret, a file in [`INPUT`].
pub(super) const SPEC: &str = "spec.json";
/// The container that the script runs in.
pub(super) const MAIN: &str = "main";
/// Characters of a name that is a label's value, too.
const LONGEST_NAME: usize = 63;
/// Seconds beside the entrypoint's grace that the Job controller waits before it ends a pod that its relay has forgotten.
const SLACK: u64 = 60;
/// The user of the init container: any but root, for the folder that it writes to is everybody's.
const NOBODY: u64 = 65532;

/// How the pods of a cluster are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// The image with the entrypoint, as `/ebb-entrypoint`.
    pub entrypoint_image: String,
    /// Between `SIGTERM` and `SIGKILL` of a script.
    pub grace: Duration,
    pub user: PodUser,
}

/// Who scripts run as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodUser {
    /// The image's user. Stock images run as root, so this is what works with them; all else that the level `restricted`
    /// of the Pod Security Standards asks for is there.
    #[default]
    Image,
    /// Anybody but root, as the level `restricted` asks: an image that says otherwise does not start.
    NonRoot,
}

/// Returns the name of an attempt's Job and Secret: the same for the same attempt, and with a prefix that no author's object
/// may have.
pub(super) fn name(task: &TaskId) -> String {
    let name = format!("{}{}-{}", ebb_podspec::RESERVED_PREFIX, task.unit, task.attempt);
    match name.len() > LONGEST_NAME {
        true => {
            format!("{}{}", ebb_podspec::RESERVED_PREFIX, short_digest(&[&task.unit, &task.attempt.to_string()], 32))
        }
        false => name,
    }
}

/// The Job of a script, `named` like the Secret that it mounts.
///
/// # Errors
/// What of the author's pod template is no YAML, does not fit, or changes what is ours.
pub(super) fn job(
    script: &ScriptTask,
    timeout_ms: u64,
    named: &str,
    pods: &PodSettings,
) -> Result<Value, Vec<PodspecViolation>> {
    let base = template(script, named, pods);
    let template = match &script.pod_template {
        Some(text) => {
            let overlay = ebb_podspec::parse(text).map_err(|refusal| vec![refusal])?;
            ebb_podspec::merge(&base, &overlay)?
        }
        None => base,
    };
    // The entrypoint and the relay keep the deadline; this is for a pod that neither of them ends.
    let deadline = timeout_ms.div_ceil(1000).saturating_add(2 * pods.grace.as_secs()).saturating_add(SLACK);
    let mut metadata = json!({"name": named});
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
    if pods.user == PodUser::NonRoot {
        context["runAsNonRoot"] = true.into();
    }
    let confined = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let mut installing = confined.clone();
    installing["runAsNonRoot"] = true.into();
    installing["runAsUser"] = NOBODY.into();
    json!({
        "metadata": {},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            // A script's variables are those of its document, not the services of a namespace.
            "enableServiceLinks": false,
            // The entrypoint needs the grace twice at most: for the script, and to report its end.
            "terminationGracePeriodSeconds": 2 * pods.grace.as_secs() + 5,
            "securityContext": context,
            "initContainers": [{
                "name": "ebb-install",
                "image": pods.entrypoint_image,
                "command": [format!("/{PROGRAM_NAME}"), "install", FOLDER],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                "securityContext": installing,
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
                // Readable for whoever the image runs as.
                {"name": "ebb-in", "secret": {"secretName": secret, "defaultMode": 0o444}},
            ],
        },
    })
}

/// A folder for the script itself.
pub(super) fn folder() -> String {
    format!("{FOLDER}/script")
}
