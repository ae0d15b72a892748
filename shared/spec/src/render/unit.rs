//! One unit.
use super::{Compiled, Facts, Known, RenderError, Rendered};
use crate::plan::{Plan, UnitAt};
/// What is to be done with the unit.
///
/// # Errors
/// [`RenderError`].
pub fn unit(
    _plan: &Plan,
    _compiled: &Compiled,
    at: UnitAt,
    _facts: &Facts,
    _known: &Known,
) -> Result<Rendered, RenderError> {
    Err(RenderError::NoUnit(at))
}
