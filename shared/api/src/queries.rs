//! Reads state for people and programs: plugins, targets, runs, logs and causes. `plugins`, `named_documents`
//! and `named_tokens` also change it.

mod applied_objects;
mod backlog;
pub mod checks;
mod cluster_policies;
pub mod clusters;
mod connections;
mod live;
pub mod logs;
pub(crate) mod named_documents;
pub mod named_tokens;
mod open_units;
pub mod plans;
pub mod plugins;
pub(crate) mod rendered;
mod resource_states;
pub mod runs;
pub(crate) mod sources;
pub mod state_counts;
mod subscriptions;
pub mod target_changes;
pub(crate) mod target_history;
pub mod targets;
pub mod waits;
pub mod why;
