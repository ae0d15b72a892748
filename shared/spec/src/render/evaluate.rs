//! Compiled templates.
use super::RenderError;
use crate::plan::Plan;
/// The expressions of one plan, parsed.
#[derive(Debug, Default)]
pub struct Compiled {}
impl Compiled {
    /// Parses every expression of the plan.
    ///
    /// # Errors
    /// [`RenderError::Plan`] for a plan that this crate did not make.
    pub fn new(_plan: &Plan) -> Result<Self, RenderError> {
        Ok(Self {})
    }
}
