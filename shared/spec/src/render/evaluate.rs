//! Compiled templates.
use crate::plan::Plan;
use super::RenderError;
/// The expressions of one plan, parsed.
#[derive(Debug, Default)]
pub struct Compiled {}
impl Compiled {
    /// Parses every expression of the plan.
    ///
    /// # Errors
    /// [`RenderError::Plan`] for a plan that this crate did not make.
    pub fn new(_plan: &Plan) -> Result<Self, RenderError> { Ok(Self {}) }
}
