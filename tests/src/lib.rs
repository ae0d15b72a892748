//! What the tests of the whole repository share.

#[path = "../sim/mod.rs"]
pub mod sim;
