//! What the tests of the whole repository share.

#[path = "../sim/mod.rs"]
pub mod sim;

pub mod fakes;
pub mod log_buffer;
pub mod virtual_clock;

#[cfg(feature = "verify")]
#[path = "../model/mod.rs"]
pub mod model;
