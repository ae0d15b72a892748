//! A preview of what a unit would be sent, before anything has run.

use super::context::PendingOutputs;
use super::{CompiledExpressions, KnownOutputs, RenderError, RenderedUnit, TargetFacts, unit};
use crate::plan::{Plan, UnitRef};

/// As [`super::unit()`], for people: an output that is not in `known` is shown as `<users/database.dsn>`, what is computed
/// with it likewise, and what is sensitive as `<sensitive>`. A `when` that cannot be decided yet counts as true.
///
/// # Errors
/// As [`super::unit()`], as far as it does not depend on what is unknown.
pub fn preview(
    plan: &Plan,
    compiled: &CompiledExpressions,
    at: UnitRef,
    facts: &TargetFacts,
    known: &KnownOutputs,
) -> Result<RenderedUnit, RenderError> {
    unit::render(plan, compiled, at, facts, known, PendingOutputs::Shown)
}
