//! Applies requests of people and programs: targets, and decisions about failed units.

pub mod overrides;
pub mod repair;
pub mod target_request;
