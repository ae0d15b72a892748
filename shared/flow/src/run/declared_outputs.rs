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
    use ebb_protocol::value::SecretRef;
    use serde_json::json;

    use super::*;
    use crate::tests::rows;

    fn unit_with_outputs(outputs: &Value) -> UnitPlan {
        UnitPlan { outputs: serde_json::from_value(outputs.clone()).unwrap(), ..UnitPlan::default() }
    }

    #[test]
    fn a_missing_output_is_named_beside_the_sent_ones() {
        let unit = unit_with_outputs(&json!({"id": {"from": {"file": "/id"}, "sensitive": false}}));
        let sent = |names: &[&str]| {
            names.iter().map(|&name| (name.to_owned(), UnitValue::Json(json!("x")))).collect::<Outputs>()
        };
        let cases: [(&[&str], &str); 2] = [(&[], "none"), (&["ID", "key"], "`ID`, `key`")];
        for (names, listed) in cases {
            let failure = check_outputs(&unit, None, sent(names)).unwrap_err();
            let expected = format!("the unit succeeded without its output `id`; it sent: {listed}");
            assert_eq!(failure.reason.message, expected);
        }
    }

    #[test]
    fn only_an_optional_output_may_be_null_or_missing() {
        let unit = |action: serde_json::Value, output: serde_json::Value| {
            let plan = unit_with_outputs(&json!({ "o": output }));
            UnitPlan { action: serde_json::from_value(action).unwrap(), ..plan }
        };
        let object = || json!({"object": {"manifest": {}}});
        let null = || Outputs::from([("o".to_owned(), UnitValue::Json(Value::Null))]);
        let from = |text: &str| json!({ "expression": text });
        for (action, fix) in rows::<(Value, String)>("null_outputs") {
            let failure = check_outputs(&unit(action, json!({"from": from("object.o")})), None, null()).unwrap_err();
            assert_eq!((failure.reason.code, failure.reason.message), (ReasonCode::OutputInvalid, fix));
        }
        for sensitive in [false, true] {
            let output = json!({"from": from("object.o"), "sensitive": sensitive, "optional": true});
            for sent in [null(), Outputs::new()] {
                assert_eq!(check_outputs(&unit(object(), output.clone()), None, sent), Ok(null()));
            }
        }
    }

    #[test]
    fn the_text_of_a_file_is_trimmed_or_parsed() {
        for (key, sent, expected, why) in rows::<(String, UnitValue, Option<UnitValue>, String)>("texts_of_files") {
            let unit = unit_with_outputs(&json!({"o": {"from": {"file": "/o"}, &key: true}}));
            let made = check_outputs(&unit, None, Outputs::from([("o".to_owned(), sent)]));
            let made = made.map(|mut outputs| outputs.remove("o").unwrap()).map_err(|failure| failure.reason.message);
            assert_eq!(made, expected.ok_or_else(|| format!("output `o`, the file /o: {why}")), "{key}");
        }
    }

    #[test]
    fn only_a_relay_cannot_send_a_sensitive_output_as_a_value() {
        let mut unit = unit_with_outputs(&json!({"o": {"from": {"expression": "response.o"}, "sensitive": true}}));
        let sent = || Outputs::from([("o".to_owned(), UnitValue::Json(json!("x")))]);
        let failure = check_outputs(&unit, None, sent()).unwrap_err();
        assert_eq!(failure.reason.code, ReasonCode::OutputInvalid);
        unit.action = serde_json::from_value(json!({"webhook": {"method": "POST", "url": {"literal": ""}}})).unwrap();
        assert_eq!(check_outputs(&unit, None, sent()), Ok(sent()));
    }

    #[test]
    fn references_get_the_cluster_of_the_unit() {
        let unit = unit_with_outputs(&json!({"o": {"from": {"file": "/o"}, "sensitive": true}}));
        let named = |cluster: Option<&str>| {
            let cluster = cluster.map(str::to_owned);
            let secret = SecretRef { cluster, namespace: None, name: "n".to_owned(), key: "k".to_owned() };
            Outputs::from([("o".to_owned(), UnitValue::Secret(secret))])
        };
        for reported in [None, Some("eu"), Some("other")] {
            for own in [None, Some("eu")] {
                assert_eq!(check_outputs(&unit, own, named(reported)), Ok(named(own)), "{reported:?} {own:?}");
            }
        }
    }
}
