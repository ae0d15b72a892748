//! The control plane's side of units in a cluster.
//!
//! A cluster's relay knows objects and nothing of scripts: [`script`] makes a Job and a Secret of a script, and
//! [`ClusterRelay`] sends it to the relay of the cluster that is named, signed. What is made and how is decided here, so
//! that it changes without anything in a cluster changing. A relay that nobody reaches finds what it is asked in a mailbox
//! ([`PostOffice`]); to whoever asks there is no difference.

mod batches;
mod clusters;
mod job;
mod mail;
mod office;
mod relay;
pub mod script;
mod sender;

pub use clusters::{Cluster, Clusters, ClustersError, Way};
pub use job::{Pods, User};
pub use office::{NotServed, PostOffice};
pub use relay::ClusterRelay;
