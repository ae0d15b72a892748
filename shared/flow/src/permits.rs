//! Limits concurrent sweeps of runs and targets, and those that wait for one destination: a cluster, or the origin of a
//! URL. One that waits for its turn at a destination gives its place to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::circuit::{CircuitBreakers, MAX_WAITING_SWEEPS};
use crate::{Env, START_WINDOW_MS, SteadyTime, lock};

/// Maximum concurrent runs and targets of one sweep.
const MAX_CONCURRENT: usize = 16;
/// Those of them that may wait for a destination with a recent response. It may stop to respond.
const MAX_AT_DESTINATION: usize = 12;

tokio::task_local! {
    static CURRENT: Arc<SweepPermit>;
}

pub(crate) struct SweepPermits {
    free: Arc<Semaphore>,
    begun: SteadyTime,
}

impl SweepPermits {
    pub(crate) fn new(begun: SteadyTime) -> Self {
        Self { free: Arc::new(Semaphore::new(MAX_CONCURRENT)), begun }
    }

    pub(crate) async fn acquire(&self) -> Arc<SweepPermit> {
        let place = Arc::clone(&self.free).acquire_owned().await.ok();
        let held = Mutex::new(HeldPermits { place, ..HeldPermits::default() });
        Arc::new(SweepPermit { free: Some(Arc::clone(&self.free)), begun: self.begun, held })
    }
}

pub(crate) struct SweepPermit {
    /// The places of a scheduled sweep.
    free: Option<Arc<Semaphore>>,
    begun: SteadyTime,
    held: Mutex<HeldPermits>,
}

#[derive(Default)]
struct HeldPermits {
    place: Option<OwnedSemaphorePermit>,
    /// The permit for the clusters of all open units.
    clusters: Option<DestinationPermit>,
    /// The permits of requests in progress, by destination.
    requests: BTreeMap<String, Weak<DestinationPermit>>,
}

impl SweepPermit {
    /// Returns a permit for a run or target outside of a scheduled sweep.
    pub(crate) fn standalone(env: &Env) -> Self {
        Self { free: None, begun: env.steady(), held: Mutex::default() }
    }

    /// Limits the requests of a sweep per destination, see [`admit`].
    pub(crate) async fn limit<T>(self: &Arc<Self>, sweep: impl Future<Output = T>) -> T {
        CURRENT.scope(Arc::clone(self), sweep).await
    }

    /// Waits until requests to `clusters` are permitted. Meanwhile another run or target can use the place. Returns true if
    /// it has waited, so that earlier reads may be out of date.
    pub(crate) async fn acquire_clusters(&self, env: &Env, clusters: BTreeSet<String>) -> bool {
        if self.held().clusters.as_ref().is_some_and(|permit| permit.destinations.is_superset(&clusters)) {
            return false;
        }
        self.held().clusters = None;
        let (permit, has_waited) = match DestinationPermit::try_acquire(env, clusters, self.most()) {
            Ok(permit) => (permit, false),
            Err(clusters) => (self.wait(env, clusters).await, true),
        };
        self.held().clusters = Some(permit);
        has_waited
    }

    /// Returns true if the scheduled sweep waits for this run or target.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.free.is_some()
    }

    /// Gives the place, and the permit for clusters, to other runs and targets.
    pub(crate) fn leave_place(&self) {
        let mut held = self.held();
        (held.place, held.clusters) = (None, None);
    }

    /// Returns true if no request to another server may start.
    pub(crate) fn is_out_of_time(&self, env: &Env) -> bool {
        env.steady().since(self.begun).0 >= START_WINDOW_MS
    }

    fn held(&self) -> MutexGuard<'_, HeldPermits> {
        lock(&self.held)
    }

    fn most(&self) -> usize {
        if self.free.is_some() { MAX_AT_DESTINATION } else { usize::MAX }
    }

    /// Waits for a permit, and then for a place. Meanwhile only requests in progress hold permits, so that sweeps do not
    /// wait for each other.
    async fn wait(&self, env: &Env, destinations: BTreeSet<String>) -> DestinationPermit {
        self.leave_place();
        let permit = DestinationPermit::acquire(env, destinations, self.most()).await;
        if let Some(free) = &self.free {
            let place = Arc::clone(free).acquire_owned().await.ok();
            self.held().place = place;
        }
        permit
    }
}

/// The permit of a sweep to wait for destinations.
pub(crate) struct DestinationPermit {
    breakers: Arc<CircuitBreakers>,
    destinations: BTreeSet<String>,
}

impl DestinationPermit {
    /// Returns a permit, unless `most` sweeps have one for a destination, or [`MAX_WAITING_SWEEPS`] for one without a
    /// recent response.
    fn try_acquire(env: &Env, destinations: BTreeSet<String>, most: usize) -> Result<Self, BTreeSet<String>> {
        let (now, breakers) = (env.steady(), Arc::clone(&env.cache.breakers));
        let mut circuits = breakers.lock();
        let is_free = |destination: &String| {
            circuits.get(destination).is_none_or(|one| {
                let most = if one.is_healthy(now) { most } else { MAX_WAITING_SWEEPS };
                one.permits < most || one.is_open(now)
            })
        };
        if !destinations.iter().all(is_free) {
            return Err(destinations);
        }
        for destination in &destinations {
            circuits.entry(destination.clone()).or_default().permits += 1;
        }
        drop(circuits);
        Ok(Self { breakers, destinations })
    }

    /// Waits for a permit in the form of [`Self::try_acquire`].
    async fn acquire(env: &Env, mut destinations: BTreeSet<String>, most: usize) -> Self {
        loop {
            let mut changed = pin!(env.cache.breakers.changed.notified());
            changed.as_mut().enable();
            match Self::try_acquire(env, destinations, most) {
                Ok(permit) => return permit,
                Err(refused) => destinations = refused,
            }
            changed.await;
        }
    }
}

impl Drop for DestinationPermit {
    fn drop(&mut self) {
        for destination in &self.destinations {
            self.breakers.change(destination, |circuit| circuit.permits -= 1);
        }
    }
}

/// The permit of a request. It is empty outside of a scheduled sweep, and for a cluster that the sweep has acquired.
pub(crate) struct RequestPermit(#[allow(dead_code, reason = "its drop counts")] Option<Arc<DestinationPermit>>);

/// Waits until a request to `destination` may start. Returns `None` if it must not start any more, because the sweep has
/// waited too long. Concurrent requests of one run to one destination count as one.
pub(crate) async fn admit(env: &Env, destination: &str) -> Option<RequestPermit> {
    let Ok(place) = CURRENT.try_with(Arc::clone) else { return Some(RequestPermit(None)) };
    {
        let held = place.held();
        if held.clusters.as_ref().is_some_and(|permit| permit.destinations.contains(destination)) {
            return Some(RequestPermit(None));
        }
        if let Some(permit) = held.requests.get(destination).and_then(Weak::upgrade) {
            return Some(RequestPermit(Some(permit)));
        }
    }
    let permit = match DestinationPermit::try_acquire(env, [destination.to_owned()].into(), place.most()) {
        Ok(permit) => permit,
        Err(destinations) => {
            let permit = place.wait(env, destinations).await;
            if place.is_out_of_time(env) {
                return None;
            }
            permit
        }
    };
    let permit = Arc::new(permit);
    place.held().requests.insert(destination.to_owned(), Arc::downgrade(&permit));
    Some(RequestPermit(Some(permit)))
}

/// The permit of a request to a server that is not a relay.
pub(crate) struct OriginPermit {
    origin: String,
    begun: SteadyTime,
    _permit: RequestPermit,
}

impl OriginPermit {
    /// Does the same as [`admit`] for the server of `url`. Services of different clusters can have the same name.
    pub(crate) async fn acquire(env: &Env, cluster: Option<&str>, url: &str) -> Option<Self> {
        let origin = url::Url::parse(url).map_or_else(|_| url.to_owned(), |url| url.origin().ascii_serialization());
        let origin = format!("{origin} {}", cluster.unwrap_or_default());
        let permit = admit(env, &origin).await?;
        Some(Self { origin, begun: env.steady(), _permit: permit })
    }

    /// Records the end of the request. The time since the permit shows whether the server responds.
    pub(crate) fn end(self, env: &Env) {
        env.cache.breakers.change(&self.origin, |circuit| circuit.record_busy(self.begun, env.steady()));
    }
}
