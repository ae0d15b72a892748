//! What people and programs ask: plugins, targets, runs, logs, reasons.

pub mod checks;
pub mod clusters;
pub mod logs;
pub mod overrides;
pub mod plans;
pub mod plugins;
pub mod possible_resources;
pub mod retry;
pub mod runs;
pub mod targets;
pub mod waits;
pub mod why;
