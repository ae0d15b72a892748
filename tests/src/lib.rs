//! What the tests of the whole repository share.

#[path = "../simulation/mod.rs"]
pub mod simulation;

pub mod fakes;
pub mod log_buffer;
pub mod virtual_clock;

#[cfg(feature = "verify")]
#[path = "../model/mod.rs"]
pub mod model;
