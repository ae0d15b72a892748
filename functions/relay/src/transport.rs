//! Connections of the relay: batches by push and poll, reports of entrypoints, heartbeats, registration.
mod bodies;
pub mod http;
pub(crate) mod identity;
pub(crate) mod poll;
mod reports;
pub(crate) mod standby;
