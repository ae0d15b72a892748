//! How many looks go on at a time, and which of them may wait for a cluster.

use std::collections::BTreeSet;

use ebb_engine::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::env::Env;
use crate::guarded_relay;
use crate::guarded_relay::ClusterPermit;
use crate::run::wakeup::START_WINDOW_MS;

/// Looks of one sweep that go on at a time.
const MAX_CONCURRENT: usize = 16;

/// The places of one sweep.
pub(super) struct SweepPermits {
    free: Semaphore,
    begun: Timestamp,
}

impl SweepPermits {
    pub(super) fn new(begun: Timestamp) -> Self {
        Self { free: Semaphore::new(MAX_CONCURRENT), begun }
    }

    /// Waits for a place.
    pub(super) async fn acquire(&self) -> SweepPermit<'_> {
        SweepPermit { all: Some(self), own: self.free.acquire().await.ok(), begun: self.begun, cluster_permit: None }
    }
}

/// A place of one look.
pub(super) struct SweepPermit<'a> {
    all: Option<&'a SweepPermits>,
    own: Option<SemaphorePermit<'a>>,
    begun: Timestamp,
    cluster_permit: Option<ClusterPermit<'a>>,
}

/// True if a look had to wait for leave to ask clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterAdmission {
    /// The look did not wait.
    Immediate,
    /// The look waited, so its reads may be out of date.
    Delayed,
}

impl<'a> SweepPermit<'a> {
    /// The place of a look that no sweep has begun.
    pub(super) fn standalone(env: &Env) -> Self {
        Self { all: None, own: None, begun: env.now(), cluster_permit: None }
    }

    /// Waits until `clusters` may be asked. Meanwhile the place is another look's.
    pub(super) async fn acquire_clusters(&mut self, env: &'a Env, clusters: BTreeSet<String>) -> ClusterAdmission {
        if self.cluster_permit.as_ref().is_some_and(|leave| leave.covers(&clusters)) {
            return ClusterAdmission::Immediate;
        }
        self.cluster_permit = None;
        match guarded_relay::try_acquire(env, clusters) {
            Ok(leave) => {
                self.cluster_permit = Some(leave);
                ClusterAdmission::Immediate
            }
            Err(clusters) => {
                self.own = None;
                self.cluster_permit = Some(guarded_relay::acquire(env, clusters).await);
                if let Some(all) = self.all {
                    self.own = all.free.acquire().await.ok();
                }
                ClusterAdmission::Delayed
            }
        }
    }

    /// Returns whether nothing may begin any more that waits for a server outside.
    pub(super) fn is_out_of_time(&self, env: &Env) -> bool {
        env.now().since(self.begun).0 >= START_WINDOW_MS
    }
}
