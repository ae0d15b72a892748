//! Encrypts sensitive values that the control plane stores, and decrypts them for a request, a task or an answer.
//!
//! The keys are the root secrets of the deployment: the first one encrypts, and each one decrypts.

use ebb_documents::plan::UnitPlan;
use ebb_documents::render::SealedValue;
use ebb_engine::Unit;
use ebb_protocol::id::RunId;
use ebb_protocol::seal::{open_value, seal_value};
use ebb_protocol::sign::WebhookKeys;
use ebb_protocol::value::{Outputs, UnitValue};

use crate::error::FlowError;

/// Returns the place for which an output is encrypted. Updates keep the positions of units, but not their keys.
pub(crate) fn output_place(run: &RunId, unit: Unit, output: &str) -> String {
    format!("output {run} {} {output}", unit.0)
}

/// Encrypts the sensitive outputs of a unit that are values. References to Secrets stay. A repetition returns the same
/// texts.
pub(crate) fn seal_outputs(
    keys: &WebhookKeys,
    (run, at): (&RunId, Unit),
    unit: &UnitPlan,
    outputs: Outputs,
) -> Result<Outputs, FlowError> {
    let sealed = outputs.into_iter().map(|(name, value)| {
        let is_sensitive = unit.outputs.get(&name).is_some_and(|output| output.sensitive);
        let value = match value {
            UnitValue::Json(_) | UnitValue::Bytes(_) if is_sensitive => {
                UnitValue::Sealed(seal(keys, &output_place(run, at, &name), &value)?)
            }
            value => value,
        };
        Ok::<_, FlowError>((name, value))
    });
    sealed.collect()
}

fn seal(keys: &WebhookKeys, place: &str, value: &UnitValue) -> Result<String, FlowError> {
    let json = serde_json::to_vec(value)
        .map_err(|_| FlowError::Broken("a sensitive value cannot be written as JSON".to_owned()))?;
    Ok(seal_value(keys, place, &json))
}

/// Decrypts a value. Returns `None` if the root secret that encrypted it is missing.
pub(crate) fn open(keys: &WebhookKeys, sealed: &SealedValue) -> Option<UnitValue> {
    serde_json::from_slice(&open_value(keys, &sealed.place, &sealed.text)?).ok()
}
