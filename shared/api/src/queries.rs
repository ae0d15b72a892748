//! Reads state for people and programs: plugins, targets, runs, logs and causes. `plugins` and `sources` also publish.

pub mod checks;
pub mod clusters;
pub mod logs;
pub mod plans;
pub mod plugins;
pub mod runs;
pub mod sources;
pub mod targets;
pub mod waits;
pub mod why;
