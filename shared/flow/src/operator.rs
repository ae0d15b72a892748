//! Decisions of operators about a teardown that does not succeed.

pub mod overrides;
pub mod retry;
