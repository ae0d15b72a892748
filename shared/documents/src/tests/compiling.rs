//! Tests the compilation of documents and the rendering of units.

mod cases;
pub(super) mod fixtures;
mod plans;
mod properties;
mod rendering;
mod repairs;
mod sealed;
mod updates;
