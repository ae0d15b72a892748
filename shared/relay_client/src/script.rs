//! A script as objects of a cluster: a Job, and a Secret with the spec of its entrypoint.

use ebb_protocol::entrypoint::{self, EntrypointSpec};
use ebb_protocol::relay::{
    DocumentFill, EnsureTask, FillWith, ObjectTask, ScriptInput, ScriptTask, SecretDocument, TaskBody, TaskCompletion,
    TaskId,
};
use ebb_protocol::value::UnitValue;
use serde_json::Value as Json;

use super::job::{self, MAIN, PodSettings, SPEC};

/// Bytes that a Secret may hold.
pub const MAX_SECRET: usize = 1 << 20;

/// The reason why a script cannot be sent to a cluster. For people.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The pod template cannot be laid onto ours.
    #[error("pod template: {0}")]
    PodTemplate(String),
    /// Script and inputs have this many bytes.
    #[error(
        "script and inputs have {0} bytes together, and the Secret that carries them holds at most {MAX_SECRET}; let \
         the script fetch what is large"
    )]
    TooLarge(usize),
    /// Never: a message of ours that is no JSON.
    #[error("{0}")]
    Unwritable(#[from] serde_json::Error),
}

/// What a cluster's relay is asked for. Objects are passed on; a script becomes a Job and its Secret.
///
/// # Errors
/// [`ScriptError`]: it will never be possible as it is written.
pub fn objects(request: EnsureTask, pods: &PodSettings) -> Result<EnsureTask<ObjectTask>, ScriptError> {
    let EnsureTask { v, task, valid_for_ms, timeout_ms, callback, body } = request;
    let body = match body {
        TaskBody::Objects(objects) => objects,
        TaskBody::Script(script) => of_script(script, &task, timeout_ms, pods)?,
    };
    Ok(EnsureTask { v, task, valid_for_ms, timeout_ms, callback, body })
}

fn of_script(
    script: ScriptTask,
    name: &TaskId,
    timeout_ms: u64,
    pods: &PodSettings,
) -> Result<ObjectTask, ScriptError> {
    let named = job::name(name);
    let job = job::job(&script, timeout_ms, &named, pods).map_err(|refusals| {
        let list: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        ScriptError::PodTemplate(list.join("\n"))
    })?;
    let namespace = script.namespace.clone();
    let secret = document(script, named, timeout_ms, pods)?;
    Ok(ObjectTask {
        instance: name.instance().to_owned(),
        namespace,
        apply: vec![job],
        secrets: vec![secret],
        until: TaskCompletion::Ended { container: MAIN.to_owned() },
        ..ObjectTask::default()
    })
}

/// The spec of the entrypoint. What only the cluster knows is `null` and filled in there.
fn document(
    script: ScriptTask,
    named: String,
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
        grace_ms: u64::try_from(pods.grace.as_millis()).unwrap_or(u64::MAX),
        log_tail: ebb_protocol::limits::LOG_TAIL,
        folder: job::folder(),
        termination_log: "/dev/termination-log".to_owned(),
        relay: None,
    };
    let mut document = serde_json::to_value(spec)?;
    for fill in &fill {
        // What is replaced has to be there.
        let (parent, key) = fill.pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Json::Object(parent)) = document.pointer_mut(parent) {
            parent.insert(key.to_owned(), Json::Null);
        }
    }
    match document.to_string().len() {
        bytes if bytes > MAX_SECRET => Err(ScriptError::TooLarge(bytes)),
        _ => Ok(SecretDocument { name: named, key: SPEC.to_owned(), document, fill }),
    }
}

#[cfg(test)]
mod tests;
