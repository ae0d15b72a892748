//! Outputs.
use super::{Compiled, Facts, Known, RenderError, Value};
use crate::plan::{Plan, UnitPlan};
use std::collections::BTreeMap;
/// A webhook's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Header names in lower case.
    pub headers: BTreeMap<String, String>,
    /// JSON if it parses as JSON, else text.
    pub body: serde_json::Value,
}
/// The declared outputs of a webhook unit.
///
/// # Errors
/// [`RenderError::NoOutput`].
pub fn outputs_from_response(
    _compiled: &Compiled,
    _unit: &UnitPlan,
    _response: &Response,
) -> Result<BTreeMap<String, Value>, RenderError> {
    Ok(BTreeMap::new())
}
/// The public outputs by resource.
///
/// # Errors
/// [`RenderError`].
pub fn resource_outputs(
    _plan: &Plan,
    _compiled: &Compiled,
    _facts: &Facts,
    _known: &Known,
) -> Result<BTreeMap<String, BTreeMap<String, Value>>, RenderError> {
    Ok(BTreeMap::new())
}
/// The target's environment; names without a value are left out.
///
/// # Errors
/// [`RenderError`].
pub fn env(
    _plan: &Plan,
    _compiled: &Compiled,
    _facts: &Facts,
    _known: &Known,
) -> Result<BTreeMap<String, Value>, RenderError> {
    Ok(BTreeMap::new())
}
