//! Sources: webhooks of third parties that create, change and delete targets.
//!
//! An event becomes the desired state of its target, in one conditional write that also deduplicates it. The newest event
//! wins, so events that arrive out of order, repeated or at the same time have the effect of the newest one. Then the
//! state is applied like a lifecycle webhook. After a crash `sweep` applies it.

pub mod delivery;
mod drift;
mod fetch;
mod list;
pub mod observe;
pub mod reconcile;
pub mod record;
pub mod trial;
