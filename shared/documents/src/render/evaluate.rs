//! Parses the expressions of a plan, and evaluates them.

use serde_json::Value as Json;

use super::{RenderError, RenderResult, RenderValue};
use crate::cel::convert::CelOutput;
use crate::{Expression, ParsedText, Scope, cel};

#[derive(Clone, Debug)]
pub(crate) enum LookupResult {
    Value(RenderValue),
    Nothing,
    /// The value does not exist yet, or must not be shown.
    Placeholder(String),
}

impl From<Json> for LookupResult {
    fn from(value: Json) -> Self {
        Self::Value(RenderValue::Json(value))
    }
}

pub(super) fn text(text: &str, place: &str) -> RenderResult<ParsedText> {
    ParsedText::new(text, Scope::Plan).map_err(|reason| RenderError::Plan { place: place.to_owned(), reason })
}

pub(super) fn expression(text: &str, place: &str) -> RenderResult<Expression> {
    cel::parse_checked(text, Scope::Plan).map_err(|reason| RenderError::Plan { place: place.to_owned(), reason })
}

pub(super) fn run(
    expression: &Expression,
    variables: &cel::CelVariables<'_>,
    place: &str,
) -> RenderResult<LookupResult> {
    match cel::evaluate(expression, variables) {
        Ok(CelOutput::Json(json)) => Ok(json.into()),
        Ok(CelOutput::Bytes(bytes)) => Ok(LookupResult::Value(RenderValue::Bytes(bytes))),
        Ok(CelOutput::Nothing) => Ok(LookupResult::Nothing),
        Err(error) => Err(RenderError::Evaluation { place: place.to_owned(), error }),
    }
}
