//! Evaluates expressions over `object`, or over `objects`.

use ebb_cel::{ObjectExpression, ObjectExpressionError};
use ebb_protocol::relay::ReadyRules;
use ebb_readiness::{DocumentRules, RuleState};
use serde_json::Value;

/// Checks that an expression compiles.
pub(crate) fn check(text: &str) -> Result<(), String> {
    ObjectExpression::new(text).map(drop).map_err(|error| error.to_string())
}

/// Evaluates the rules of an object. Fails if a rule is not a boolean.
pub(crate) fn judge(rules: &ReadyRules, object: &Value) -> Result<DocumentRules, String> {
    let rule = |text: &Option<String>| -> Result<RuleState, String> {
        let Some(text) = text else { return Ok(RuleState::Absent) };
        let holds = ObjectExpression::new(text).and_then(|program| program.holds(&[("object", object)]));
        match holds.map_err(|error| format!("`{text}`: {error}"))? {
            true => Ok(RuleState::Holds),
            false => Ok(RuleState::DoesNotHold),
        }
    };
    Ok(DocumentRules { ready: rule(&rules.ready)?, fail: rule(&rules.fail)? })
}

/// Evaluates an expression over the applied objects.
pub(crate) fn evaluate(text: &str, objects: &[Value]) -> Result<Value, ObjectExpressionError> {
    let (all, first) = (Value::from(objects.to_vec()), objects.first().unwrap_or(&Value::Null));
    ObjectExpression::new(text)?.evaluate(&[("object", first), ("objects", &all)])
}
