//! Moves a target through its phases, from the lifecycle webhook that creates an instance to its end.

pub mod changes;
pub(crate) mod document_update;
pub mod due;
pub mod events;
pub mod lifecycle;
pub(crate) mod next_run;
pub mod notify;
pub mod outbox;
pub(crate) mod rejection;
pub mod secrets;
pub(crate) mod subscription_cache;
pub mod target_document;
pub mod transition;
pub(crate) mod update;
