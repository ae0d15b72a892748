//! Expressions over objects of a cluster.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::convert::{CelOutput, from_json, json_type};
use crate::{EvaluationError, Expression, MAX_VALUE_BYTES, Scope, evaluate, parse_checked};

#[derive(Clone, Debug)]
pub struct ObjectExpression(Expression);

/// The error of an expression. The texts contain no values of objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectExpressionError {
    /// The expression is invalid, unknown names included, or too large. Permanent.
    #[error("{0}")]
    NotAnExpression(String),
    /// The evaluation fails, or does not start.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// The result is an optional without a value.
    #[error("there is no value")]
    Nothing,
    #[error("expected {wanted}, got {got}")]
    Type { wanted: &'static str, got: &'static str },
    #[error("its value has {0} bytes; the limit is {MAX_VALUE_BYTES}")]
    TooLarge(usize),
}

impl ObjectExpression {
    /// Parses an expression over `object` and `objects`. Returns the first issue as an error.
    pub fn new(text: &str) -> Result<Self, ObjectExpressionError> {
        parse_checked(text, Scope::Objects).map(Self).map_err(ObjectExpressionError::NotAnExpression)
    }

    /// Returns the fields that the expression reads, such as `object.status.phase`. A field ends before a computed key.
    pub fn fields(&self) -> BTreeSet<String> {
        self.0.fields()
    }

    /// Returns the result as JSON. Bytes that are UTF-8 become text.
    pub fn evaluate(&self, variables: &[(&str, &Json)]) -> Result<Json, ObjectExpressionError> {
        let variables = variables.iter().map(|(name, value)| (*name, from_json(value))).collect();
        let json = match evaluate(&self.0, &variables)? {
            CelOutput::Json(json) => json,
            CelOutput::Bytes(_) => {
                return Err(ObjectExpressionError::Type { wanted: "JSON", got: "bytes that are not UTF-8" });
            }
            CelOutput::Nothing => return Err(ObjectExpressionError::Nothing),
        };
        match json.to_string().len() {
            bytes if bytes > MAX_VALUE_BYTES => Err(ObjectExpressionError::TooLarge(bytes)),
            _ => Ok(json),
        }
    }

    /// Evaluates a rule. A rule that reads missing fields is false.
    ///
    /// # Errors
    /// Returns [`ObjectExpressionError::Type`] if the result is not a boolean, and [`EvaluationError::TooCostly`] or
    /// [`ObjectExpressionError::TooLarge`] if a limit is exceeded.
    pub fn holds(&self, variables: &[(&str, &Json)]) -> Result<bool, ObjectExpressionError> {
        match self.evaluate(variables) {
            Ok(Json::Bool(holds)) => Ok(holds),
            Ok(other) => Err(ObjectExpressionError::Type { wanted: "true or false", got: json_type(&other) }),
            Err(
                ObjectExpressionError::Evaluation(EvaluationError::Evaluation(_) | EvaluationError::MissingValue(_))
                | ObjectExpressionError::Nothing,
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::rows;

    #[test]
    fn values_and_rules() {
        let object = json!({
            "status": {"phase": "Up", "host": "h", "n": 3, "empty": null, "bytes": "/w==", "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Stalled"},
            ]},
            "data": {"dsn": "YQ=="},
        });
        let objects = json!([object, {"metadata": {"name": "second"}}]);
        for (text, value, holds) in rows::<(String, Result<Json, String>, Result<bool, String>)>("values_and_rules") {
            let variables = [("object", &object), ("objects", &objects)];
            let program = ObjectExpression::new(&text).unwrap();
            assert_eq!(program.evaluate(&variables).map_err(|error| format!("{error:?}")), value, "{text}");
            assert_eq!(program.holds(&variables).map_err(|error| format!("{error:?}")), holds, "{text}");
        }
        for (text, mistake) in rows::<(String, String)>("expressions_over_objects_that_are_refused") {
            let refused = ObjectExpression::new(&text).unwrap_err();
            assert_eq!(refused, ObjectExpressionError::NotAnExpression(mistake), "{text}");
        }
        let large = json!({"text": "x".repeat(600_000), "many": vec![1; 2_000]});
        let refused = |text| ObjectExpression::new(text).unwrap().holds(&[("object", &large)]).unwrap_err();
        assert_eq!(refused("object.text + object.text"), ObjectExpressionError::TooLarge(1_200_002));
        let ready = "object.conditions.exists(c, c.type == 'Ready' && c.status == 'True')";
        let much_else = json!({"much": vec![1; 20_000], "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(ObjectExpression::new(ready).unwrap().holds(&[("object", &much_else)]), Ok(true));
        let costly = refused("object.many.map(a, object.many.map(b, object.many + [a, b]))");
        let ObjectExpressionError::Evaluation(EvaluationError::TooCostly(cost)) = costly else { panic!("{costly:?}") };
        assert!(cost > crate::MAX_COST, "{cost}");
    }
}
