//! Worlds with many targets that share one table, one queue and one schedule, in which anything may go wrong at any
//! time, and which know what really exists.

mod books;
mod cast;
mod checks;
mod design;
mod outside;
mod queue;
mod relay;
mod script;
mod work;
mod world;

pub use design::{Design, Published};
pub use world::{Report, Trace, happen, live};
