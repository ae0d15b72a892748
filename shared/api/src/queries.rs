//! Reads state for people and programs: plugins, targets, runs, logs and causes. `plugins`, `sources`, `connections` and
//! `named_tokens` also change it.

mod backlog;
pub mod checks;
pub mod clusters;
pub mod connections;
pub mod logs;
mod named_documents;
pub mod named_tokens;
pub mod plans;
pub mod plugins;
pub mod runs;
pub mod sources;
pub mod subscriptions;
pub mod targets;
pub mod waits;
pub mod why;
