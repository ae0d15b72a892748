//! Parses the expressions of a plan, and evaluates them.

use std::collections::BTreeMap;

use super::{RenderError, RenderResult};
use crate::cel::convert::CelOutput;
use crate::cel::{self, Expression, Scope};
use crate::template::ParsedText;

/// Parses a text of a plan.
pub(super) fn text(text: &str, place: &str) -> RenderResult<ParsedText> {
    ParsedText::new(text, Scope::Plan).map_err(|reason| RenderError::Plan { place: place.to_owned(), reason })
}

/// Parses an expression of a plan.
pub(super) fn expression(text: &str, place: &str) -> RenderResult<Expression> {
    cel::parse_checked(text, Scope::Plan).map_err(|reason| RenderError::Plan { place: place.to_owned(), reason })
}

/// Evaluates an expression over these variables.
pub(super) fn run(
    expression: &Expression,
    variables: &BTreeMap<&str, cel::CelValue<'_>>,
    place: &str,
) -> RenderResult<CelOutput> {
    cel::evaluate(expression, variables).map_err(|error| RenderError::Evaluation { place: place.to_owned(), error })
}
