//! What people and programs ask: plugins, targets, runs, logs, reasons.

pub mod checks;
pub mod clusters;
pub mod existing;
pub mod logs;
pub mod plans;
pub mod plugins;
pub mod retry;
pub mod runs;
pub mod targets;
pub mod waits;
pub mod waive;
pub mod why;
