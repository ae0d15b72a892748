//! Evaluates expressions over `object`, or over `objects`.

use ebb_cel::{ObjectExpression, ObjectExpressionError};
use ebb_kube::contract::{DocumentRules, ObjectReadiness};
use ebb_protocol::limits::{excerpt, printable};
use ebb_protocol::relay::ReadyRules;
use serde_json::{Value, json};

/// Characters of a reported value, without the ellipsis.
const MAX_VALUE: usize = 199;
/// Reported fields of a rule.
const MAX_FIELDS: usize = 5;

/// Evaluates the rules of an object. Fails if a rule is not a boolean.
pub(crate) fn judge(rules: &ReadyRules, object: &Value) -> Result<DocumentRules, String> {
    let holds = |text: &String| {
        let holds = ObjectExpression::new(text).and_then(|program| program.holds(&[("object", object)]));
        holds.map_err(|error| format!("`{text}`: {error}"))
    };
    Ok(DocumentRules {
        ready: rules.ready.as_ref().map(holds).transpose()?,
        fail: rules.fail.as_ref().map(holds).transpose()?,
    })
}

/// Returns the awaited fields of a pending object with their values as JSON: those that its rule `ready` reads, or the
/// one of its contract. Several fields are one text, and their values one JSON object.
pub(crate) fn awaited(readiness: &ObjectReadiness, ready: Option<&str>, object: &Value) -> Option<(String, String)> {
    let fields: Vec<String> = match (readiness.awaited_field(), ready) {
        (Some(field), _) => vec![field.to_owned()],
        (None, Some(ready)) => {
            let fields = ObjectExpression::new(ready).ok()?.fields();
            fields
                .iter()
                .filter_map(|field| field.strip_prefix("object."))
                .map(str::to_owned)
                .take(MAX_FIELDS)
                .collect()
        }
        (None, None) => return None,
    };
    let values = match fields.as_slice() {
        [] => return None,
        [field] => value_of(field, object),
        several => several.iter().map(|field| (field.clone(), value_of(field, object))).collect(),
    };
    Some((fields.join(", "), printable(&excerpt(&values.to_string(), MAX_VALUE))))
}

/// Returns the value of a field, or null. Of a Secret, it only shows that there is a value.
fn value_of(field: &str, object: &Value) -> Value {
    let program = ObjectExpression::new(&format!("object.{field}"));
    let value = program.and_then(|program| program.evaluate(&[("object", object)])).unwrap_or_default();
    if object["kind"] == "Secret" && !value.is_null() { json!("(set)") } else { value }
}

pub(crate) fn evaluate(text: &str, objects: &[Value]) -> Result<Value, ObjectExpressionError> {
    let (all, first) = (Value::from(objects.to_vec()), objects.first().unwrap_or(&Value::Null));
    ObjectExpression::new(text)?.evaluate(&[("object", first), ("objects", &all)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_api::rows;

    #[test]
    fn awaited_fields_have_their_values() {
        let pending = |reason: &str| ObjectReadiness::Pending { reason: reason.to_owned() };
        let rule = || pending("its `ready` is not true yet");
        let status = json!({"phase": "Down", "n": 0, "long": "é".repeat(500)});
        let object = |kind: &str| json!({"kind": kind, "data": {"a": "hunter2"}, "status": status});
        type Row = (String, Option<String>, Option<String>, Option<(String, String)>);
        for (kind, reason, ready, expected) in rows::<Row>("awaited_fields_have_their_values") {
            let readiness = reason.map_or_else(rule, |reason| pending(&reason));
            assert_eq!(awaited(&readiness, ready.as_deref(), &object(&kind)), expected, "{readiness:?} {ready:?}");
        }
        let (_, last) = awaited(&rule(), Some("object.status.long == ''"), &object("A")).unwrap();
        assert_eq!(last.chars().count(), 200);
    }
}
