//! Kubernetes objects as values: what a manifest may contain, and when an object is ready.
//!
//! - [`podspec`] merges pod templates of authors, and checks manifests by the policy of a cluster.
//! - [`readiness`] judges observed objects: pending, ready, failed or gone.
//!
//! All are pure functions. The control plane and the relay use the same ones.

#[cfg(test)]
mod generated;
pub mod podspec;
pub mod readiness;
