//! Values that never leave the machine: `<state>/secrets/NAME/KEY`, files of mode 0600 in folders of mode 0700.
//!
//! They are the counterpart of Secrets in a cluster. Log lines and errors never contain a value.

use std::fs;
use std::path::{Path, PathBuf};

use ebb_protocol::relay::ScriptInput;
use ebb_protocol::{SecretRef, TaskId, UnitValue, short_digest};

use super::PodsError;
use crate::files;

/// The longest name or key, in bytes.
pub const NAME_MAX: usize = 253;
/// Prefix of the secrets with sensitive outputs. The name of the unit follows, which starts with its instance.
const OF_OUTPUTS: &str = "out-";
/// Prefix of the secrets with sensitive inputs that arrived as values. The name of the unit follows.
const OF_INPUTS: &str = "in-";

/// Stores `value` as key `key` of secret `name`, and replaces an earlier value. `state` is the state folder of the
/// relay.
///
/// # Errors
/// Returns [`PodsError::SecretName`] if a name is empty, longer than [`NAME_MAX`] or has other characters than ASCII
/// letters, digits, `-`, `_` and `.`. Returns [`PodsError::File`] if the file cannot be written.
pub fn put(state: &Path, name: &str, key: &str, value: &[u8]) -> Result<(), PodsError> {
    let path = path(state, name, key)?;
    let folder = path.parent().expect("a secret's path has two names below the state folder");
    files::private_folder(folder)?;
    Ok(files::write_whole(&path, value)?)
}

/// Returns the value of key `key` of secret `name`.
///
/// # Errors
/// Returns the same errors as [`put`].
pub fn get(state: &Path, name: &str, key: &str) -> Result<Option<Vec<u8>>, PodsError> {
    Ok(files::read(&path(state, name, key)?)?)
}

/// Stores the sensitive inputs of a task that arrived as values, and replaces them by references. The request of the task
/// is then free of them.
///
/// # Errors
/// Returns [`PodsError::File`] if a file cannot be written.
pub(super) fn keep_inputs(state: &Path, id: &TaskId, inputs: &mut [ScriptInput]) -> Result<(), PodsError> {
    for input in inputs.iter_mut().filter(|input| input.sensitive) {
        let Some(bytes) = input.value.as_ref().and_then(UnitValue::to_bytes) else { continue };
        let (name, key) = (of_inputs(id), key(&input.name));
        put(state, &name, &key, &bytes)?;
        input.value = Some(UnitValue::Secret(SecretRef { cluster: None, namespace: None, name, key }));
    }
    Ok(())
}

/// Removes the stored inputs of a task that does not run any more.
///
/// # Errors
/// Returns [`PodsError::File`] if the folder cannot be removed. The call can be repeated.
pub(super) fn remove_inputs(state: &Path, id: &TaskId) -> Result<(), PodsError> {
    remove(&state.join("secrets").join(of_inputs(id)))
}

fn of_inputs(id: &TaskId) -> String {
    format!("{OF_INPUTS}{}-{}", id.unit, id.attempt)
}

/// Removes the sensitive outputs and inputs of every run of the instance with the key `life`, as returned by
/// [`ebb_protocol::id::instance_key`]. Secrets of users stay.
///
/// # Errors
/// Returns [`PodsError::File`] if a folder cannot be read or removed. The call can be repeated.
pub(super) fn release(state: &Path, life: &str) -> Result<(), PodsError> {
    let all = state.join("secrets");
    let prefixes = [OF_OUTPUTS, OF_INPUTS].map(|prefix| format!("{prefix}{life}-"));
    for name in files::names(&all)? {
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            remove(&all.join(name))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), PodsError> {
    files::existing(fs::remove_dir_all(path)).map(drop).map_err(|error| PodsError::io(path, error))
}

/// Returns the secret and key of a sensitive output. Each attempt has its own secret, because teardown may need the
/// outputs of all attempts.
pub(super) fn of_output(id: &TaskId, output: &str) -> (String, String) {
    (format!("{OF_OUTPUTS}{}-{}", id.unit, id.attempt), key(output))
}

fn key(name: &str) -> String {
    if valid(name) { name.to_owned() } else { short_digest(&[name], 16) }
}

fn path(state: &Path, name: &str, key: &str) -> Result<PathBuf, PodsError> {
    if let Some(part) = [name, key].into_iter().find(|part| !valid(part)) {
        return Err(PodsError::SecretName(part.chars().take(80).collect()));
    }
    Ok(state.join("secrets").join(name).join(key))
}

fn valid(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
