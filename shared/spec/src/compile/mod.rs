//! From documents to the frozen plan.
//!
//! [`check_plugin`] finds everything that one plugin can tell alone, [`plan`] what the sandbox adds: which plugins,
//! which params, which wires. Both report all semantic errors together, each with its place.

mod canonical;
mod edges;
mod version;

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{Plugin, Sandbox};
use crate::plan::Plan;

pub use canonical::PlanError;
pub use edges::{Edge, Why, edges};
pub use version::resolve_version;

/// The plugin that a resource is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// The document.
    pub plugin: &'a Plugin,
    /// Its exact version.
    pub version: &'a semver::Version,
    /// `sha256:…` of the document after embedding.
    pub digest: &'a str,
}

/// Compiles a sandbox with the plugin of each of its resources (by the resource's name) to the plan that is frozen.
/// Gives the plan and the warnings.
///
/// # Errors
/// Every semantic error of the sandbox and its plugins, in the order of files and places.
pub fn plan(
    sandbox: &Sandbox,
    plugins: &BTreeMap<String, Bound<'_>>,
) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let _ = (sandbox, plugins);
    Err(Diagnostics::new())
}

/// Checks everything that one plugin can tell alone. Gives the warnings.
///
/// # Errors
/// Every semantic error, in the order of places.
pub fn check_plugin(plugin: &Plugin) -> Result<Vec<Diagnostic>, Diagnostics> {
    let _ = plugin;
    Ok(Vec::new())
}
