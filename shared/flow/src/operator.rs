//! Applies decisions of operators about failed units.

pub mod overrides;
pub mod retry;
