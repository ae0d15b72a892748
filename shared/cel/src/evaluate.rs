//! The evaluation of an expression within its bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::{Context, Env};

use crate::convert::{self, CelOutput};
use crate::{Expression, MAX_COST, cost, walk};

/// Why an expression gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// It fails on these values. The text has no value in it.
    #[error("{0}")]
    Evaluation(String),
    /// It could touch this many values, more than [`MAX_COST`]; nothing was evaluated.
    #[error("the expression could touch {0} values; the limit is {MAX_COST}")]
    TooCostly(u64),
}

/// What all expressions may use. Every function of it that is not in [`FUNCTIONS`](crate::FUNCTIONS) is refused when an
/// expression is parsed.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let extended =
        env.add_extension(cel::extensions::strings).and_then(|()| env.add_extension(cel::extensions::encoders));
    extended.expect("the extensions of CEL have no name twice");
    Arc::new(env)
});

/// What an expression gives over these variables.
///
/// # Errors
/// [`EvaluationError`]; the same expression and variables give the same.
pub fn evaluate(expression: &Expression, variables: BTreeMap<&str, cel::Value>) -> Result<CelOutput, EvaluationError> {
    let cost = cost::bound(expression, &variables);
    if cost > MAX_COST {
        return Err(EvaluationError::TooCostly(cost));
    }
    let mut context = Context::with_env(Arc::clone(&ENV));
    // A sensitive value is its name and key in here, so there is nothing left to do.
    let declared = context.add_function("secretRef", |value: cel::Value| value);
    declared.map_err(|error| EvaluationError::Evaluation(error.to_string()))?;
    if !expression.patterns.is_empty() {
        let patterns = Arc::clone(&expression.patterns);
        let declared = context.add_function(walk::MATCHES, move |This(text): This<Arc<String>>, of: Arc<String>| {
            // Only literals are patterns, and each was compiled when the expression was read.
            patterns.get(of.as_str()).is_some_and(|pattern| pattern.is_match(&text))
        });
        declared.map_err(|error| EvaluationError::Evaluation(error.to_string()))?;
    }
    for (name, value) in variables {
        context.add_variable_from_value(name, value);
    }
    let made = cel::Value::resolve(&expression.tree, &context)
        .map_err(|error| EvaluationError::Evaluation(convert::reason(expression, &error)))?;
    convert::to_value(&made).map_err(|kind| EvaluationError::Evaluation(format!("the expression gives {kind}")))
}
