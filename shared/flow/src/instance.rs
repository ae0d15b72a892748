//! The document of an instance, its due time, its notifications and the retention of its data.

pub mod change_watch;
pub mod changes;
pub mod due;
pub mod history;
pub(crate) mod living;
pub mod notify;
pub mod outbox;
pub mod rejected_events;
pub(crate) mod rejection;
pub(crate) mod requester;
pub mod retention;
pub mod secrets;
pub mod target_document;
pub mod target_outputs;
