//! Tests the compilation of documents and the rendering of units.

mod bound_updates;
pub(super) mod fixtures;
mod plans;
mod properties;
mod rendering;
mod repairs;
mod sealed;
mod updates;
