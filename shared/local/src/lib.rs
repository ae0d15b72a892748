//! Ebb on one machine: the same functions, over stores, a clock and a relay of this machine.

pub mod embedded;
pub mod kubernetes;
pub mod pods;
mod private;
pub mod stack;

pub use kubernetes::Kubernetes;
pub use pods::Containers;
pub use stack::{External, Relays, Settings, Stack, StackError, Units};
