//! Evaluates expressions within a bounded cost.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::{Context, Env};

use crate::convert::{self, CelOutput};
use crate::{Expression, MAX_COST, cost, walk};

/// The error of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// The expression fails on these values. The text contains no value.
    #[error("{0}")]
    Evaluation(String),
    /// The expression reads a key that a mapping does not have, an element behind the end of a list, or a part of `null`.
    /// The text names the key or the field if the expression contains it.
    #[error("{0}")]
    MissingValue(String),
    /// The expression could touch this many values, more than [`MAX_COST`]. It was not evaluated.
    #[error("the expression could touch {0} values; the limit is {MAX_COST}")]
    TooCostly(u64),
}

/// The functions of all expressions. Functions that are not in [`FUNCTIONS`](crate::FUNCTIONS) are rejected by the
/// parser.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let extended =
        env.add_extension(cel::extensions::strings).and_then(|()| env.add_extension(cel::extensions::encoders));
    extended.expect("the extensions of CEL have no name twice");
    Arc::new(env)
});

/// Evaluates an expression. The result depends only on the arguments.
pub fn evaluate(expression: &Expression, variables: BTreeMap<&str, cel::Value>) -> Result<CelOutput, EvaluationError> {
    let cost = cost::bound(expression, &variables);
    if cost > MAX_COST {
        return Err(EvaluationError::TooCostly(cost));
    }
    let mut context = Context::with_env(Arc::clone(&ENV));
    // A sensitive value is a reference here, so the function returns its argument.
    let mut declared = context.add_function("secretRef", |value: cel::Value| value);
    if !expression.patterns.is_empty() {
        let patterns = Arc::clone(&expression.patterns);
        declared =
            declared.and(context.add_function(walk::MATCHES, move |This(text): This<Arc<String>>, of: Arc<String>| {
                // Patterns are literals that were compiled by the parser.
                patterns.get(of.as_str()).is_some_and(|pattern| pattern.is_match(&text))
            }));
    }
    declared.map_err(|error| EvaluationError::Evaluation(error.to_string()))?;
    for (name, value) in &variables {
        context.add_variable_from_value(*name, value.clone());
    }
    let value = cel::Value::resolve(&expression.tree, &context).map_err(|error| match &error {
        cel::ExecutionError::NoSuchKey(_) | cel::ExecutionError::IndexOutOfBounds(_) => {
            EvaluationError::MissingValue(convert::reason(expression, &error))
        }
        error if convert::is_about_null(error) => {
            EvaluationError::MissingValue(match expression.null_field(&variables) {
                Some(field) => format!("`{field}` is null"),
                None => "a value that it reads is null".to_owned(),
            })
        }
        error => EvaluationError::Evaluation(convert::reason(expression, error)),
    })?;
    convert::to_value(&value).map_err(|kind| EvaluationError::Evaluation(format!("the expression gives {kind}")))
}
