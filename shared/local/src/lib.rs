//! Ebb on one machine: the same functions, over stores, a clock and a relay of this machine.

pub mod embedded;
pub mod kubernetes;
pub mod pods;
mod private;
pub mod stack;

pub use kubernetes::KubernetesOptions;
pub use pods::ContainerEngine;
pub use stack::{ExternalTable, RemoteRelays, Stack, StackError, StackSettings, UnitBackend};
