//! What crosses a boundary of our programs: messages, stored records, signatures, limits.
//!
//! Every message carries `"v": 1`. Unknown fields are errors where a person or a foreign program wrote the message,
//! and ignored where one of our own did: an older relay must live with a newer control plane.

pub mod api;
pub mod callback;
pub mod cloudevents;
pub mod entrypoint;
pub mod evidence;
pub mod id;
pub mod lifecycle;
pub mod limits;
pub mod listing;
pub mod pull;
pub mod record;
pub mod relay;
pub mod script;
pub mod seal;
pub mod sign;
pub mod time;
pub mod token;
pub mod unit;
pub mod value;

pub use ebb_engine as engine;

#[cfg(test)]
mod tests;
