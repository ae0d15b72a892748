//! Queries of people and programs: plugins, targets, runs, logs, causes. They read and decide nothing.

pub mod checks;
pub mod clusters;
pub mod logs;
pub mod plans;
pub mod plugins;
pub mod runs;
pub mod targets;
pub mod waits;
pub mod why;
