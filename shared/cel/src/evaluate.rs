//! Evaluates expressions within a bounded cost.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelBytes, CelString, STRING_TYPE};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::extractors::This;
use cel::{Context, Env, ExecutionError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use crate::convert::{self, CelOutput};
use crate::cost::{self, CostBound};
use crate::{CelVariables, Expression, MAX_COST, MAX_VALUE_BYTES, walk};

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
    #[error("the expression could touch {0} values; the limit is {MAX_COST}: read fewer, by a search or `?per_page`")]
    TooCostly(u64),
}

/// The functions of all expressions. The parser rejects those that are not [`functions`](crate::names::functions).
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    let extensions = [cel::extensions::strings, cel::extensions::encoders, own_functions];
    let extended = extensions.into_iter().try_for_each(|extension| env.add_extension(extension));
    extended.expect("the extensions of CEL have no name twice");
    Arc::new(env)
});

fn own_functions(env: &mut Env) -> Result<(), cel::DeclarationError> {
    env.add_overload(convert::JSON_PARSE, "json.parse(string)", vec![STRING_TYPE], parse_json)?;
    cel::add_overload!(env, fn encode_url: (CelString) -> CelString, name = "url.encode")?;
    cel::add_overload!(env, fn sha256_of_text: (CelString) -> CelString, name = "sha256")?;
    cel::add_overload!(env, fn sha256_of_bytes: (CelBytes) -> CelString, name = "sha256")
}

fn parse_json<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let text = arguments.first().and_then(|text| text.downcast_ref::<CelString<'_>>());
    match serde_json::from_str(text.map_or("", CelString::inner)) {
        Ok(json) => Ok(CowVal::Owned(convert::from_owned_json(json))),
        Err(error) => Err(ExecutionError::function_error(convert::JSON_PARSE, convert::json_position(&error))),
    }
}

fn encode_url(text: &CelString<'_>) -> CelString<'static> {
    url_encoded(text.inner()).into()
}

/// All characters except the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns a value as a part of a URL. It cannot end the part.
pub fn url_encoded(value: &str) -> String {
    utf8_percent_encode(value, ENCODED).to_string()
}

fn sha256_of_text(text: &CelString<'_>) -> CelString<'static> {
    hex::encode(Sha256::digest(text.inner())).into()
}

fn sha256_of_bytes(bytes: &CelBytes<'_>) -> CelString<'static> {
    hex::encode(Sha256::digest(bytes.inner())).into()
}

/// Lends the variables to an evaluation, which would otherwise copy them.
struct BorrowedVariables<'a>(&'a CelVariables<'a>);

impl VariableResolver for BorrowedVariables<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        self.0.get(variable).map(|value| CowVal::Borrowed(value.as_ref()))
    }
}

/// Evaluates an expression. The result depends only on the arguments.
pub fn evaluate(expression: &Expression, variables: &CelVariables<'_>) -> Result<CelOutput, EvaluationError> {
    evaluate_within(expression, variables, &SharedCost::new(u64::MAX), MAX_VALUE_BYTES)
}

/// The cost of several expressions together.
pub struct SharedCost {
    limit: u64,
    pub(crate) spent: Cell<u64>,
}

impl SharedCost {
    pub fn new(limit: u64) -> Self {
        Self { limit, spent: Cell::new(0) }
    }
}

/// Evaluates one of several expressions that share a limit. `max_bytes` is the maximum size of the JSON of the result.
///
/// # Errors
/// Returns an error as [`evaluate`] does, and [`EvaluationError::Evaluation`] if the cost exceeds the limit, or if the
/// size certainly exceeds its maximum. It does not compute the size of all results.
pub fn evaluate_within(
    expression: &Expression,
    variables: &CelVariables<'_>,
    shared: &SharedCost,
    max_bytes: usize,
) -> Result<CelOutput, EvaluationError> {
    let CostBound { cost, size, .. } = cost::bound(expression, variables).map_err(EvaluationError::TooCostly)?;
    // The result is copied, so it counts, too.
    shared.spent.set(shared.spent.get().saturating_add(cost).saturating_add(size));
    if shared.spent.get() > shared.limit {
        let reason = format!("this expression and those before it could touch more than {} values", shared.limit);
        return Err(EvaluationError::Evaluation(reason));
    }
    let resolver = BorrowedVariables(variables);
    let mut context = Context::with_env(Arc::clone(&ENV));
    context.set_variable_resolver(&resolver);
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
    let value = cel::Value::resolve_val(&expression.tree, &context).and_then(|value| {
        // Each value takes a byte, and a separator or the brackets of its list or map.
        let is_large = cost::size(&*value).saturating_mul(2) > max_bytes as u64 + 1;
        if is_large { Ok(None) } else { cel::Value::try_from(&*value).map(Some) }
    });
    let value = value.map_err(|error| match &error {
        cel::ExecutionError::NoSuchKey(_) | cel::ExecutionError::IndexOutOfBounds(_) => {
            EvaluationError::MissingValue(convert::reason(expression, &error))
        }
        error if convert::is_about_null(error) => {
            EvaluationError::MissingValue(match expression.null_field(variables) {
                Some(field) => format!("`{field}` is null"),
                None => "a value that it reads is null".to_owned(),
            })
        }
        error => EvaluationError::Evaluation(convert::reason(expression, error)),
    })?;
    let value =
        value.ok_or_else(|| EvaluationError::Evaluation(format!("the value has more than {max_bytes} bytes")))?;
    convert::to_value(&value).map_err(|kind| EvaluationError::Evaluation(format!("the expression gives {kind}")))
}
