//! What is known about the instance of a target: its document, when it is due, what is notified, and how long data is kept.

pub mod changes;
pub mod due;
pub mod notify;
pub mod outbox;
pub mod rejected_events;
pub(crate) mod rejection;
pub mod retention;
pub mod secrets;
pub(crate) mod subscription_cache;
pub mod target_document;
pub(crate) mod update;
