//! Converts a script into Kubernetes objects: a Job, and a Secret with the spec of its entrypoint.

use ebb_engine::Millis;
use ebb_protocol::entrypoint::{self, EntrypointSpec};
use ebb_protocol::relay::{
    DocumentFill, EnsureTask, FillWith, ObjectTask, ScriptInput, ScriptTask, SecretDocument, TaskBody, TaskCompletion,
    TaskId,
};
use ebb_protocol::value::UnitValue;
use serde_json::Value as Json;

use super::script_job::{self, MAIN, PodSettings, SPEC};

/// Maximum bytes of a Secret in Kubernetes.
pub const MAX_SECRET: usize = 1 << 20;

/// The reason why a script cannot be sent to a cluster. Repeating the request does not help.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The author's pod template cannot be merged with Ebb's.
    #[error("pod template: {0}")]
    PodTemplate(String),
    /// The size of script and inputs, in bytes.
    #[error(
        "script and inputs have {0} bytes together, and their Secret holds at most {MAX_SECRET}; let the script fetch \
         large inputs"
    )]
    TooLarge(usize),
    /// The spec of the entrypoint cannot be encoded. This cannot happen.
    #[error("{0}")]
    Encode(#[from] serde_json::Error),
}

/// Returns the request for the relay. Objects are unchanged; a script becomes a Job and its Secret.
pub fn objects(request: EnsureTask, pods: &PodSettings) -> Result<EnsureTask<ObjectTask>, ScriptError> {
    let EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body } = request;
    let body = match body {
        TaskBody::Objects(objects) => objects,
        TaskBody::Script(script) => script_objects(script, script_job::name(&task, &names), &task, timeout_ms, pods)?,
    };
    Ok(EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body })
}

fn script_objects(
    script: ScriptTask,
    name: String,
    task: &TaskId,
    timeout_ms: u64,
    pods: &PodSettings,
) -> Result<ObjectTask, ScriptError> {
    let job = script_job::job(&script, timeout_ms, &name, pods).map_err(|violations| {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        ScriptError::PodTemplate(list.join("\n"))
    })?;
    let namespace = script.namespace.clone();
    let secret = document(script, name, timeout_ms, pods)?;
    Ok(ObjectTask {
        instance: task.instance().to_owned(),
        namespace,
        apply: vec![job],
        secrets: vec![secret],
        until: TaskCompletion::Ended { container: MAIN.to_owned() },
        ..ObjectTask::default()
    })
}

/// Returns the Secret with the spec of the entrypoint. The relay fills in values of other Secrets and its report URL.
fn document(
    script: ScriptTask,
    name: String,
    timeout_ms: u64,
    pods: &PodSettings,
) -> Result<SecretDocument, ScriptError> {
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
        folder: script_job::folder(),
        termination_log: "/dev/termination-log".to_owned(),
        relay: None,
    };
    let mut document = serde_json::to_value(spec)?;
    for fill in &fill {
        // The relay replaces existing members only.
        let (parent, key) = fill.pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Json::Object(parent)) = document.pointer_mut(parent) {
            parent.insert(key.to_owned(), Json::Null);
        }
    }
    match document.to_string().len() {
        bytes if bytes > MAX_SECRET => Err(ScriptError::TooLarge(bytes)),
        _ => Ok(SecretDocument { name, key: SPEC.to_owned(), document, fill }),
    }
}

#[cfg(test)]
mod tests;
