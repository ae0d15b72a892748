//! What the tests of the whole repository share.

#[path = "../sim/mod.rs"]
pub mod sim;

pub mod lines;
pub mod still;
pub mod surroundings;

#[cfg(feature = "switches")]
#[path = "../model/mod.rs"]
pub mod model;
