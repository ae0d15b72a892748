//! Compares the outputs of a success with those that the unit declares.

use ebb_documents::cel::convert::json_position;
use ebb_documents::plan::{Action, OutputFrom, OutputPlan, UnitPlan};
use ebb_protocol::{Outputs, ReasonCode, UnitValue, limits};
use serde_json::Value;

use crate::run::attempt_end::AttemptFailure;

/// Checks the outputs of a success against the declared outputs of the unit, and drops undeclared ones. Sets the
/// cluster of sensitive outputs to that of the unit, whatever the relay reports. A missing optional output becomes null.
///
/// # Errors
/// Returns the failure that replaces the success if a declared output is missing or null and not optional, too large, or
/// sensitive and sent as a value by a relay. It has the other outputs, which an undo reads.
pub fn check_outputs(unit: &UnitPlan, cluster: Option<&str>, mut outputs: Outputs) -> Result<Outputs, AttemptFailure> {
    let sent: Vec<String> = outputs.keys().map(|name| format!("`{name}`")).collect();
    let sent = if sent.is_empty() { "none".to_owned() } else { sent.join(", ") };
    outputs.retain(|name, _| {
        let declared = unit.outputs.contains_key(name);
        if !declared {
            tracing::warn!(unit = unit.key, output = name, "dropped an undeclared output");
        }
        declared
    });
    let mut first: Option<(ReasonCode, String)> = None;
    for (name, declared) in &unit.outputs {
        if declared.optional {
            outputs.entry(name.clone()).or_insert(UnitValue::Json(Value::Null));
        }
        let problem = match outputs.get_mut(name) {
            Some(UnitValue::Secret(secret)) if declared.sensitive => {
                secret.cluster = cluster.map(str::to_owned);
                None
            }
            Some(value) => read_file(name, declared, value).or_else(|| problem(unit, name, declared, value)),
            None => {
                let text = format!("the unit succeeded without its output `{name}`; it sent: {sent}");
                Some((ReasonCode::OutputMissing, text))
            }
        };
        if let Some(problem) = problem {
            outputs.remove(name);
            first = first.or(Some(problem));
        }
    }
    let total: usize = outputs.values().map(UnitValue::size).sum();
    if total > limits::OUTPUTS {
        outputs.clear();
        let text = format!("the outputs have {total} bytes together; the limit is {}", limits::OUTPUTS);
        first = first.or(Some((ReasonCode::OutputTooLarge, text)));
    }
    match first {
        Some((code, text)) => Err(AttemptFailure { outputs: outputs.into(), ..AttemptFailure::new(code, &text) }),
        None => Ok(outputs),
    }
}

/// Returns the reason why a declared output cannot have this value.
fn problem(unit: &UnitPlan, name: &str, declared: &OutputPlan, value: &UnitValue) -> Option<(ReasonCode, String)> {
    if *value == UnitValue::Json(Value::Null) {
        return (!declared.optional).then(|| (ReasonCode::OutputInvalid, null_text(unit, name, declared)));
    }
    let size = value.size();
    if size > limits::OUTPUT {
        let text = format!("output `{name}` has {size} bytes; the limit is {}", limits::OUTPUT);
        return Some((ReasonCode::OutputTooLarge, text));
    }
    let is_reference = matches!(value, UnitValue::Secret(_));
    let wrong = if declared.sensitive && !is_reference && unit.action.is_relayed() {
        "is sensitive and was sent as a value instead of a reference"
    } else if is_reference && !declared.sensitive {
        "was sent as a reference and is not declared sensitive"
    } else {
        return None;
    };
    Some((ReasonCode::OutputInvalid, format!("output `{name}` {wrong}")))
}

/// Parses the text of a file as JSON, or removes the white space at its ends, as the output declares. Returns the reason why
/// it cannot.
fn read_file(name: &str, declared: &OutputPlan, value: &mut UnitValue) -> Option<(ReasonCode, String)> {
    let OutputFrom::File(path) = &declared.from else { return None };
    let why = match value {
        UnitValue::Json(Value::String(text)) if declared.json => match serde_json::from_str(text) {
            Ok(Value::Null) => "the JSON is null".to_owned(),
            Ok(json) => {
                *value = UnitValue::Json(json);
                return None;
            }
            Err(error) => json_position(&error),
        },
        UnitValue::Json(Value::String(text)) if declared.trim => {
            *text = text.trim().to_owned();
            return None;
        }
        UnitValue::Bytes(_) if declared.json || declared.trim => "the bytes are not UTF-8".to_owned(),
        _ => return None,
    };
    Some((ReasonCode::OutputInvalid, format!("output `{name}`, the file {path}: {why}")))
}

fn null_text(unit: &UnitPlan, name: &str, declared: &OutputPlan) -> String {
    let (expression, fix) = match (&unit.action, &declared.from) {
        (Action::Object(_), OutputFrom::Expression(text)) => (format!(": `{text}`"), "wait for it with `ready`"),
        _ => (String::new(), "send one"),
    };
    format!("output `{name}` is null{expression}; expected a value; {fix}, or add `optional: true`")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::tests::rows;

    /// The outputs of a unit, its action and its cluster, what it sends, and what is recorded: outputs, or a failure.
    type Row = (BTreeMap<String, OutputPlan>, Action, Option<String>, Outputs, Result<Outputs, (ReasonCode, String)>);

    fn check(name: &str) {
        for (outputs, action, cluster, sent, expected) in rows::<Row>(name) {
            let unit = UnitPlan { outputs, action, ..UnitPlan::default() };
            let made = check_outputs(&unit, cluster.as_deref(), sent.clone());
            let made = made.map_err(|failure| (failure.reason.code, failure.reason.message));
            assert_eq!(made, expected, "{sent:?} of {unit:?} in {cluster:?}");
        }
    }

    #[test]
    fn outputs_have_the_declared_names_and_forms() {
        check("checked_outputs");
    }

    #[test]
    fn only_a_relay_cannot_send_a_sensitive_output_as_a_value() {
        check("sensitive_values");
    }

    #[test]
    fn references_get_the_cluster_of_the_unit() {
        check("references_to_secrets");
    }
}
