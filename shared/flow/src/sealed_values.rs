//! Encrypts sensitive values that the control plane stores, and decrypts them for a request, a task or an answer.
//!
//! The keys are the root secrets of the deployment: the first one encrypts, and each one decrypts.

use ebb_documents::plan::{PlainLiteral, Plan, Template, UnitPlan};
use ebb_documents::render::SealedValue;
use ebb_protocol::{Outputs, RunId, Unit, UnitValue, WebhookKeys, open_value, seal_value};

use crate::error::{FlowError, FlowResult};

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
) -> FlowResult<Outputs> {
    let sealed = outputs.into_iter().map(|(name, value)| {
        let is_sensitive = unit.outputs.get(&name).is_some_and(|output| output.sensitive);
        let value = match value {
            // Readers treat `null` of an optional output as missing.
            UnitValue::Json(serde_json::Value::Null) => value,
            UnitValue::Json(_) | UnitValue::Bytes(_) if is_sensitive => {
                UnitValue::Sealed(seal_value(keys, &output_place(run, at, &name), &as_json(&value)?))
            }
            value => value,
        };
        Ok::<_, FlowError>((name, value))
    });
    sealed.collect()
}

/// Encrypts the literals of sensitive params for their places in the instance with the key `at`. A literal that `current`
/// has, too, keeps its text, so that the rotation of a root secret does not change a plan.
pub(crate) fn seal_params(keys: &WebhookKeys, at: &str, plan: &mut Plan, current: Option<&Plan>) -> FlowResult<()> {
    for (name, resource) in &mut plan.resources {
        let before = current.and_then(|current| current.resources.get(name));
        for (param, given) in &mut resource.params {
            let Template::Plain(PlainLiteral(literal)) = given else { continue };
            let mut literal = std::mem::take(literal);
            literal.sort_all_objects();
            let json = as_json(&UnitValue::Json(literal))?;
            let place = SealedValue::param_place(at, name, param);
            let is_same = |text: &&String| open_value(keys, &place, text).is_some_and(|known| known == json);
            let kept = match before.and_then(|before| before.params.get(param)) {
                Some(Template::Sealed(text)) => Some(text).filter(is_same).cloned(),
                _ => None,
            };
            *given = Template::Sealed(kept.unwrap_or_else(|| seal_value(keys, &place, &json)));
        }
    }
    Ok(())
}

/// Returns a resource and its param with an encrypted literal.
pub(crate) fn sealed_param(plan: &Plan) -> Option<(&str, &str)> {
    plan.resources.iter().find_map(|(resource, given)| {
        let param = given.params.iter().find(|(_, value)| matches!(value, Template::Sealed(_)));
        Some((resource.as_str(), param?.0.as_str()))
    })
}

fn as_json(value: &UnitValue) -> FlowResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(|_| FlowError::Broken("a sensitive value cannot be written as JSON".to_owned()))
}

/// Decrypts a value. Returns `None` if the root secret that encrypted it is missing.
pub(crate) fn open(keys: &WebhookKeys, sealed: &SealedValue) -> Option<UnitValue> {
    serde_json::from_slice(&open_value(keys, &sealed.place, &sealed.text)?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ebb_documents::plan::Resource;
    use ebb_protocol::sign::WebhookSecret;
    use serde_json::{Value, json};

    use super::*;

    fn unit_keys(bytes: &[u8]) -> WebhookKeys {
        let secrets = bytes.iter().map(|&byte| WebhookSecret::from_bytes(&[byte; 32]).unwrap());
        let mut secrets = secrets.collect::<Vec<_>>().into_iter();
        WebhookKeys::new(secrets.next().unwrap(), secrets.collect()).unwrap()
    }

    /// Returns a plan with a literal for a sensitive param.
    fn plan(literal: Value) -> Plan {
        let params = BTreeMap::from([("token".to_owned(), Template::Plain(PlainLiteral(literal)))]);
        let resource = json!({"plugin": "p@1.0.0", "digest": "sha256:00", "params": {}, "outputs": {}});
        let resource = Resource { params, ..serde_json::from_value(resource).unwrap() };
        Plan { resources: BTreeMap::from([("r".to_owned(), resource)]), ..Plan::empty() }
    }

    fn sealed(keys: &WebhookKeys, literal: Value, current: Option<&Plan>) -> Plan {
        let mut plan = plan(literal);
        seal_params(keys, "one", &mut plan, current).unwrap();
        plan
    }

    fn text(plan: &Plan) -> &str {
        match &plan.resources["r"].params["token"] {
            Template::Sealed(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_plan_has_the_literal_of_a_sensitive_param() {
        let plain = plan(json!("the value"));
        assert!(!plain.to_json().contains("the value") && !format!("{plain:?}").contains("the value"));
        let keys = unit_keys(&[1]);
        let made = sealed(&keys, json!("the value"), None);
        assert!(!made.to_json().contains("the value"), "{}", made.to_json());
        assert_eq!(Plan::from_json(&made.to_json()).unwrap(), made);
        let value = |instance, resource, param| {
            let place = SealedValue::param_place(instance, resource, param);
            SealedValue { place, text: text(&made).to_owned() }
        };
        let own = value("one", "r", "token");
        assert_eq!(open(&keys, &own), Some(UnitValue::Json(json!("the value"))));
        assert_eq!(open(&unit_keys(&[2]), &own), None);
        assert_eq!(value("one", "r~2", "token"), own);
        // A text that is moved is not decrypted.
        for moved in [value("two", "r", "token"), value("one", "q", "token"), value("one", "r", "other")] {
            assert_eq!(open(&keys, &moved), None, "{moved:?}");
        }
        let mut other = plain;
        seal_params(&keys, "two", &mut other, None).unwrap();
        assert_ne!(text(&other), text(&made));
    }

    #[test]
    fn an_equal_literal_keeps_its_text() {
        let (old, rotated, other) = (unit_keys(&[1]), unit_keys(&[2, 1]), unit_keys(&[2]));
        let first = sealed(&old, json!({"a": 1, "b": 2}), None);
        assert_eq!(text(&sealed(&old, json!({"b": 2, "a": 1}), None)), text(&first));
        assert_eq!(text(&sealed(&rotated, json!({"b": 2, "a": 1}), Some(&first))), text(&first));
        assert_ne!(text(&sealed(&rotated, json!({"a": 1, "b": 3}), Some(&first))), text(&first));
        // The text of a lost root secret is replaced.
        assert_ne!(text(&sealed(&other, json!({"a": 1, "b": 2}), Some(&first))), text(&first));
    }
}
