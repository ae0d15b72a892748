//! How many looks go on at a time, and which of them may wait for a cluster.

use std::collections::BTreeSet;

use ebb_engine::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::breaker::{self, Leave};
use crate::env::Env;

/// Looks of one sweep that go on at a time.
const PLACES: usize = 16;
/// For how many milliseconds an invocation begins anything that may wait for a server outside: with what that takes it still
/// has to end before it is killed.
pub(crate) const BEGINS: u64 = 5_000;

/// The places of one sweep.
pub(super) struct Places {
    free: Semaphore,
    begun: Timestamp,
}

impl Places {
    pub(super) fn new(begun: Timestamp) -> Self {
        Self { free: Semaphore::new(PLACES), begun }
    }

    /// Waits for a place.
    pub(super) async fn take(&self) -> Place<'_> {
        Place { all: Some(self), own: self.free.acquire().await.ok(), begun: self.begun, leave: None }
    }
}

/// A place of one look.
pub(super) struct Place<'a> {
    all: Option<&'a Places>,
    own: Option<SemaphorePermit<'a>>,
    begun: Timestamp,
    leave: Option<Leave<'a>>,
}

/// True if a look had to wait for leave to ask clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// The look did not wait.
    AtOnce,
    /// The look waited, so its reads may be out of date.
    Later,
}

impl<'a> Place<'a> {
    /// The place of a look that no sweep has begun.
    pub(super) fn alone(env: &Env) -> Self {
        Self { all: None, own: None, begun: env.now(), leave: None }
    }

    /// Waits until `clusters` may be asked. Meanwhile the place is another look's.
    pub(super) async fn enter(&mut self, env: &'a Env, clusters: BTreeSet<String>) -> Entered {
        if self.leave.as_ref().is_some_and(|leave| leave.covers(&clusters)) {
            return Entered::AtOnce;
        }
        self.leave = None;
        match breaker::try_enter(env, clusters) {
            Ok(leave) => {
                self.leave = Some(leave);
                Entered::AtOnce
            }
            Err(clusters) => {
                self.own = None;
                self.leave = Some(breaker::enter(env, clusters).await);
                if let Some(all) = self.all {
                    self.own = all.free.acquire().await.ok();
                }
                Entered::Later
            }
        }
    }

    /// Returns whether nothing may begin any more that waits for a server outside.
    pub(super) fn is_late(&self, env: &Env) -> bool {
        env.now().since(self.begun).0 >= BEGINS
    }
}
