//! Expressions of documents over objects, until they are evaluated here: a work that has one is refused.

use ebb_readiness::{Rule, Rules};
use ebb_wire::relay::ReadyRules;
use serde_json::Value;

const NOT_HERE: &str = "this relay does not evaluate expressions (CEL)";

/// Whether an expression can be evaluated.
///
/// # Errors
/// When it cannot; says why.
pub(crate) fn check(_: &str) -> Result<(), String> {
    Err(NOT_HERE.to_owned())
}

/// What the rules of an object say of it as it is.
///
/// # Errors
/// When one cannot be evaluated at all; says why.
pub(crate) fn judge(rules: &ReadyRules, _: &Value) -> Result<Rules, String> {
    if rules.ready.is_some() || rules.fail.is_some() {
        return Err(NOT_HERE.to_owned());
    }
    Ok(Rules { ready: Rule::Absent, fail: Rule::Absent })
}

/// The value of an expression over the applied objects.
///
/// # Errors
/// When it has none; says why.
pub(crate) fn value(_: &str, _: &[Value]) -> Result<Value, String> {
    Err(NOT_HERE.to_owned())
}
