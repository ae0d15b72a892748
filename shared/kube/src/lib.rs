//! Kubernetes objects as values: what a manifest may contain, and when an object is ready.
//!
//! - [`podspec`] checks manifests by the policy of a cluster.
//! - [`contract`] judges observed objects: pending, ready, failed or gone. It finds out why they wait or have failed.
//!
//! All are pure functions. The control plane checks documents with those of the relay.

pub mod contract;
#[cfg(test)]
mod generated;
pub mod podspec;
