//! Ebb on one machine: the functions with a local table, bucket, clock and relay.

mod dev_issuer;
pub mod embedded;
pub mod files;
pub mod kubernetes;
mod open_files;
pub mod plugin_sockets;
pub mod pods;
pub mod stack;

pub use dev_issuer::DevIssuer;
pub use kubernetes::KubernetesOptions;
pub use pods::ContainerEngine;
pub use stack::{ExternalTable, RemoteRelays, SecretFile, Stack, StackError, StackSettings, UnitBackend};
