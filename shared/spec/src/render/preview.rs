//! Preview.
use super::{Compiled, Facts, Known, RenderError, Rendered};
use crate::plan::{Plan, UnitAt};
/// As `unit()`, with placeholders for what is not known yet: `<users/database.dsn>`, `<sensitive>`.
///
/// # Errors
/// [`RenderError`].
pub fn preview(
    _plan: &Plan,
    _compiled: &Compiled,
    at: UnitAt,
    _facts: &Facts,
    _known: &Known,
) -> Result<Rendered, RenderError> {
    Err(RenderError::NoUnit(at))
}
