//! The expressions of contracts, and what they know of an object.

use ebb_cel::convert::{CelOutput, from_json, from_owned_json};
use ebb_cel::{CelVariables, EvaluationError, Expression, Scope, evaluate, parse_checked};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::contract::object::ObjectView;

/// An expression over `object`, and over facts about it:
///
/// - `conditions`, by type, with `status`, `reason`, `message`, `severity`, `since`, `word` (the reason, or the type without one)
///   and `text`;
/// - `current`, which has only the conditions of this generation;
/// - `vars`, the named values of the contract, and `words`, those of all contracts;
/// - in `shown`, `why`, the reason of a pending object;
/// - in causes, `events`, the warnings about the object, `facts`, what the caller knows, and `it`, an element of a list.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ContractExpression(Expression);

impl TryFrom<String> for ContractExpression {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_checked(&text, Scope::Contract).map(Self).map_err(|error| format!("`{text}`: {error}"))
    }
}

/// An object with the variables of expressions about it.
pub(super) struct ObjectFacts<'a> {
    pub(super) object: ObjectView<'a>,
    variables: CelVariables<'a>,
}

impl<'a> ObjectFacts<'a> {
    pub(super) fn new(object: ObjectView<'a>, words: &Map<String, Value>) -> Self {
        let (mut all, mut current) = (Map::new(), Map::new());
        for it in object.conditions() {
            // The first one of a type counts.
            if all.contains_key(it.kind) {
                continue;
            }
            let status = ["True", "False"].into_iter().find(|known| it.is(known)).unwrap_or(it.status);
            let entry = json!({
                "status": status, "reason": it.reason, "message": it.message, "severity": it.severity,
                "since": it.since, "word": it.word(), "text": it.describe(),
            });
            if !it.is_stale(object) {
                current.insert(it.kind.to_owned(), entry.clone());
            }
            all.insert(it.kind.to_owned(), entry);
        }
        let variables = [
            ("object", from_json(object.0)),
            ("conditions", from_owned_json(all.into())),
            ("current", from_owned_json(current.into())),
            ("words", from_owned_json(words.clone().into())),
        ];
        Self { object, variables: variables.into() }
    }

    pub(super) fn set(&mut self, name: &'a str, value: Value) {
        self.variables.insert(name, from_owned_json(value));
    }

    /// Computes named values. Each may use those before it.
    pub(super) fn add_vars(&mut self, vars: &[(String, ContractExpression)]) {
        let mut made = Map::new();
        for (name, expression) in vars {
            if let Some(value) = self.value(expression) {
                made.insert(name.clone(), value);
            }
            self.set("vars", made.clone().into());
        }
    }

    /// Returns `None` for an optional without a value.
    pub(super) fn evaluate(&self, expression: &ContractExpression) -> Result<Option<Value>, EvaluationError> {
        Ok(match evaluate(&expression.0, &self.variables)? {
            CelOutput::Json(value) => Some(value),
            CelOutput::Bytes(_) | CelOutput::Nothing => None,
        })
    }

    /// Returns `None` for an expression that cannot be evaluated, too.
    pub(super) fn value(&self, expression: &ContractExpression) -> Option<Value> {
        self.evaluate(expression).ok().flatten()
    }

    pub(super) fn text(&self, expression: &ContractExpression) -> Result<String, EvaluationError> {
        Ok(self.evaluate(expression)?.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default())
    }
}
