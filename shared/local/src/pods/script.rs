//! The spec of a script before it starts, its settings, and its result after it has ended. Processes and containers share
//! them.

use std::path::PathBuf;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::entrypoint::{self, EntrypointSpec, RelayAddress, ScriptExit};
use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::relay::{EnsureTask, ScriptInput, ScriptTask};
use ebb_protocol::{Callback, CallbackStatus, Millis, ReasonCode, SecretRef, TaskId, UnitValue};
use serde::{Deserialize, Serialize};

use super::{ContainerEngine, PodsError, TaskFolder, logs, secrets};
use crate::files::StateFileError;

/// The settings of a supervisor, which its start writes to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SupervisorConfig {
    /// The state folder of the relay.
    pub(super) state: PathBuf,
    pub(super) path: String,
    pub(super) extra_env: Vec<(String, String)>,
    /// Runs scripts as containers. `None` means that scripts are processes of this machine.
    #[serde(default)]
    pub(super) containers: Option<ContainerEngine>,
}

/// The result of a task, or `None` for a tombstone.
pub(crate) type SupervisorOutcome = Option<Callback>;

/// The failure of a task whose script has no known end.
pub(crate) struct TaskFailure(pub(super) ReasonCode, pub(super) String);

impl From<PodsError> for TaskFailure {
    fn from(error: PodsError) -> Self {
        Self(ReasonCode::Lost, error.to_string())
    }
}

impl From<StateFileError> for TaskFailure {
    fn from(error: StateFileError) -> Self {
        PodsError::from(error).into()
    }
}

/// Returns the spec of a script. Its own files are in `folder`. References to secrets are resolved.
///
/// # Errors
/// Returns the reason if an input has no value.
pub(super) fn spec(
    request: &EnsureTask<ScriptTask>,
    config: &SupervisorConfig,
    grace_ms: u64,
    folder: &str,
    relay: Option<RelayAddress>,
) -> Result<EntrypointSpec, String> {
    let script = &request.body;
    let mut inputs = Vec::with_capacity(script.inputs.len());
    for input in &script.inputs {
        let value = value(input, config).map_err(|why| format!("input {:?}: {why}", input.name))?;
        inputs.push(ScriptInput { value, ..input.clone() });
    }
    Ok(EntrypointSpec {
        v: entrypoint::VERSION,
        text: script.text.clone(),
        env: config.extra_env.iter().chain(&script.env).cloned().collect(),
        inputs,
        outputs: script.outputs.clone(),
        timeout_ms: request.timeout_ms,
        grace_ms,
        folder: format!("{folder}/script"),
        termination_log: format!("{folder}/termination"),
        relay,
    })
}

fn value(input: &ScriptInput, config: &SupervisorConfig) -> Result<Option<UnitValue>, String> {
    let Some(UnitValue::Secret(secret)) = &input.value else { return Ok(input.value.clone()) };
    match secrets::get(&config.state, &secret.name, &secret.key) {
        Ok(Some(value)) => Ok(Some(UnitValue::from_bytes(value))),
        Ok(None) => Err(format!("this machine has no key {:?} of secret {:?}", secret.key, secret.name)),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the outcome of a script that began at `begun` and has ended. `ended` is the failure if its end is not known.
/// Sensitive outputs stay on this machine, and are masked in the log.
pub(super) fn outcome(
    task: &TaskFolder,
    id: &TaskId,
    config: &SupervisorConfig,
    ended: Result<ScriptExit, TaskFailure>,
    is_cancelled: bool,
    begun: Instant,
) -> Result<SupervisorOutcome, TaskFailure> {
    let is_success = matches!(&ended, Ok(ended) if ended.result.status == CallbackStatus::Succeeded);
    let log = match &ended {
        Ok(ended) => logs::mask_outputs(&task.folder, ended)?,
        Err(_) => logs::tail_text(&task.folder, LOG_TAIL),
    };
    // The outputs of a script that succeeded despite the cancellation are known, so that they can be removed.
    if is_cancelled && !is_success {
        return Ok(None);
    }
    let mut result = match ended {
        Ok(ended) => store_outputs(id, config, ended),
        Err(TaskFailure(code, why)) => Callback::failed(code, &why),
    };
    result.duration_ms.get_or_insert_with(|| Millis::from(begun.elapsed()).0);
    result.log.get_or_insert(log);
    Ok(Some(result))
}

fn store_outputs(id: &TaskId, config: &SupervisorConfig, ended: ScriptExit) -> Callback {
    let mut result = ended.result;
    result.secrets.clear();
    // After a failure, the sensitive outputs only mask the log.
    if result.status != CallbackStatus::Succeeded {
        return result;
    }
    for (output, text) in ended.sensitive {
        match store_output(id, config, &output, &text) {
            Ok(place) => drop(result.secrets.insert(output, place)),
            Err(why) => {
                let message = format!("output {output:?} cannot be kept: {why}");
                return Callback { log: result.log, ..Callback::failed(ReasonCode::Lost, &message) };
            }
        }
    }
    result
}

fn store_output(id: &TaskId, config: &SupervisorConfig, output: &str, text: &str) -> Result<SecretRef, String> {
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let (name, key) = secrets::of_output(id, output);
    secrets::put(&config.state, &name, &key, &bytes).map_err(|error| error.to_string())?;
    Ok(SecretRef { cluster: None, namespace: None, name, key })
}
