//! Limits concurrent sweeps of runs and targets, and those that wait for a cluster.

use std::collections::BTreeSet;

use ebb_engine::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::env::Env;
use crate::guarded_relay::{self, ClusterPermit};
use crate::run::wakeup::START_WINDOW_MS;

/// Maximum concurrent runs and targets of one sweep.
const MAX_CONCURRENT: usize = 16;

pub(super) struct SweepPermits {
    free: Semaphore,
    begun: Timestamp,
}

impl SweepPermits {
    pub(super) fn new(begun: Timestamp) -> Self {
        Self { free: Semaphore::new(MAX_CONCURRENT), begun }
    }

    pub(super) async fn acquire(&self) -> SweepPermit<'_> {
        SweepPermit { all: Some(self), own: self.free.acquire().await.ok(), begun: self.begun, cluster_permit: None }
    }
}

/// The permit to sweep one run or target.
pub(super) struct SweepPermit<'a> {
    all: Option<&'a SweepPermits>,
    own: Option<SemaphorePermit<'a>>,
    begun: Timestamp,
    cluster_permit: Option<ClusterPermit<'a>>,
}

/// The result of a wait for the clusters of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterAdmission {
    /// The sweep did not wait.
    Immediate,
    /// The sweep waited, so its reads may be out of date.
    Delayed,
}

impl<'a> SweepPermit<'a> {
    /// Returns a permit for a run or target outside of a scheduled sweep.
    pub(super) fn standalone(env: &Env) -> Self {
        Self { all: None, own: None, begun: env.now(), cluster_permit: None }
    }

    /// Waits until requests to `clusters` are permitted. Meanwhile another run or target can use the permit.
    pub(super) async fn acquire_clusters(&mut self, env: &'a Env, clusters: BTreeSet<String>) -> ClusterAdmission {
        if self.cluster_permit.as_ref().is_some_and(|permit| permit.covers(&clusters)) {
            return ClusterAdmission::Immediate;
        }
        self.cluster_permit = None;
        match guarded_relay::try_acquire(env, clusters) {
            Ok(permit) => {
                self.cluster_permit = Some(permit);
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

    /// Returns true if no request to another server may start.
    pub(super) fn is_out_of_time(&self, env: &Env) -> bool {
        env.now().since(self.begun).0 >= START_WINDOW_MS
    }
}
