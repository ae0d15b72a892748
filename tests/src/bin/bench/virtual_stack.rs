//! A counted table and bucket, a queue and the servers of units in virtual time, and the life of one sandbox.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, anyhow, bail, ensure};
use ebb_egress::{CallResult, HttpCall, HttpRequest, HttpResponse};
use ebb_engine::{Millis, TargetPhase};
use ebb_flow::Env;
use ebb_flow::advance::callback::CallbackOutcome;
use ebb_flow::ports::Clock as _;
use ebb_flow::telemetry::{FunctionKind, InvocationOrigin, Telemetry};
use ebb_local::embedded::EmbeddedTable;
use ebb_protocol::unit::CALLBACK_TOKEN;
use ebb_protocol::{LifecycleData, LifecycleType, TargetKey};
use ebb_store::suite::Meter;
use ebb_store::{MemoryTable, Store, TargetHead};
use ebb_tests::simulation::{KIND, SimRandom, header, lock};
use ebb_tests::virtual_clock::{ManualClock, ManualQueue};
use ebb_tests::{fakes, invocations, platform};

/// 22 November 2026, in milliseconds since 1970.
pub(crate) const START: u64 = 1_795_305_600_000;
pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// Maximum number of steps of a part of a life. A run of 1,000 units in a row has as many.
const MAX_STEPS: usize = 10_000;

/// The state that the functions share, and the servers of units.
pub(crate) struct VirtualStack {
    pub(crate) table: Arc<EmbeddedTable>,
    /// The table and a bucket.
    pub(crate) store: Arc<Store>,
    /// Counts the requests to `store`.
    pub(crate) meter: Arc<Meter>,
    /// As `store`, but its requests are not counted.
    unmetered: Store,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) messages: Arc<ManualQueue>,
    /// The callback tokens of requests that were answered 202.
    pending: Arc<Mutex<Vec<String>>>,
    pub(crate) unit_requests: Arc<AtomicUsize>,
}

pub(crate) struct VirtualFunctions {
    pub(crate) receive: Arc<Env>,
    pub(crate) complete: Arc<Env>,
    pub(crate) sweep: Arc<Env>,
    pub(crate) telemetry: Telemetry,
}

pub(crate) struct LifePart {
    pub(crate) event_type: LifecycleType,
    pub(crate) event: LifecycleData,
    pub(crate) phase: TargetPhase,
    /// The time until the callback of a unit, in milliseconds.
    pub(crate) work: u64,
    /// The time after the end in which late wake-ups arrive, in milliseconds.
    pub(crate) linger: u64,
    /// The body of each callback.
    pub(crate) result: String,
}

/// The invocations after that of the event.
#[derive(Default)]
pub(crate) struct FollowingInvocations {
    pub(crate) callbacks: usize,
    pub(crate) messages: usize,
}

impl VirtualStack {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let clock = Arc::new(ManualClock::at(START));
        let messages = Arc::new(ManualQueue::new(clock.clone()));
        let (table, meter) = (Arc::new(EmbeddedTable::temporary()?), Arc::<Meter>::default());
        let unmetered = Store::new(table.clone(), Arc::new(MemoryTable::default()));
        let store = Arc::new(unmetered.observed(meter.clone()));
        let (pending, unit_requests) = (Arc::default(), Arc::default());
        Ok(Self { table, store, meter, unmetered, clock, messages, pending, unit_requests })
    }

    /// Publishes a plugin. Its requests are not counted.
    pub(crate) async fn publish(&self, plugin: &str) -> anyhow::Result<()> {
        let published = ebb_api::queries::plugins::publish(&self.unmetered, plugin, self.clock.now(), |_| Ok(())).await;
        published.map(drop).map_err(|error| anyhow!("the plugin is not published: {error:?}"))
    }

    /// Returns servers that answer each request of a unit with `reply`, and accept notifications.
    pub(crate) fn servers(&self, reply: HttpResponse) -> Arc<dyn HttpCall> {
        let (pending, unit_requests) = (Arc::clone(&self.pending), Arc::clone(&self.unit_requests));
        Arc::new(move |request: HttpRequest| -> CallResult<HttpResponse> {
            let token = header(&request, CALLBACK_TOKEN);
            if token.is_empty() {
                return Ok(HttpResponse::new(204, ""));
            }
            unit_requests.fetch_add(1, Ordering::Relaxed);
            if reply.status == 202 {
                lock(&pending).push(token);
            }
            Ok(reply.clone())
        })
    }

    /// Returns the environment of a function with an empty cache. `server` receives its requests.
    pub(crate) fn env(&self, server: Arc<dyn HttpCall>, platform: Option<String>) -> Env {
        let settings = fakes::settings("https://ebb.test", platform, Millis(60_000));
        let env = fakes::env(self.store.clone(), server, self.messages.clone(), settings);
        Env { clock: self.clock.clone(), random: Arc::new(SimRandom::new(1)), ..env }
    }

    /// Returns a sandbox, which must exist. The request is not counted.
    pub(crate) async fn target(&self, name: &str) -> anyhow::Result<TargetHead> {
        self.unmetered.read_target(TargetKey::new(KIND, name)).await?.context("the target does not exist")
    }

    /// Runs a sweep, which must not fail for any item. Its queries of the index are not counted.
    pub(crate) async fn sweep(&self, env: &Env) -> anyhow::Result<()> {
        let swept = Box::pin(ebb_flow::sweep::sweep(env, &self.unmetered, std::future::pending())).await?;
        ensure!(swept.failed == 0, "{} of {} items failed", swept.failed, swept.processed);
        Ok(())
    }

    /// Sends an event, and runs the functions until the sandbox has the phase and nothing is in progress. Sweeps at each step.
    pub(crate) async fn live(
        &self,
        functions: &VirtualFunctions,
        part: &LifePart,
    ) -> anyhow::Result<FollowingInvocations> {
        let VirtualFunctions { receive, complete, sweep, telemetry } = functions;
        let LifePart { event_type, event, phase, work, linger, result } = part;
        let origin = || InvocationOrigin { request_id: UID.to_owned(), received: None };
        let received = invocations::receive(receive, self.store.as_ref(), (*event_type, "bench"), event);
        let response = telemetry.invoke(FunctionKind::Receive, origin(), Box::pin(received)).await;
        response.map_err(|error| anyhow!("the sandbox is rejected: {error:?}"))?;
        let mut following = FollowingInvocations::default();
        for _ in 0..MAX_STEPS {
            let target = self.target(&event.name).await?;
            let tokens = std::mem::take(&mut *lock(&self.pending));
            let is_over = tokens.is_empty() && target.phase == *phase && target.due.is_none();
            self.clock.advance(if is_over { *linger } else { *work });
            for message in self.messages.take_due() {
                following.messages += 1;
                let swept = Box::pin(ebb_flow::sweep::receive_message(sweep, &message));
                telemetry.invoke(FunctionKind::Sweep, origin(), swept).await?;
            }
            self.sweep(sweep).await?;
            if is_over {
                return Ok(following);
            }
            for token in tokens {
                following.callbacks += 1;
                let completed = Box::pin(invocations::complete(complete, &token, result.as_bytes()));
                let outcome = telemetry.invoke(FunctionKind::Complete, origin(), completed).await?;
                ensure!(outcome == CallbackOutcome::Accepted, "a callback is not accepted: {outcome:?}");
            }
        }
        let target = self.target(&event.name).await?;
        bail!("the target is {:?} and not {phase:?}: {:?}", target.phase, target.first_cause)
    }
}

/// Returns the event that creates a sandbox of the plugin `measured`.
pub(crate) fn created(name: &str) -> LifecycleData {
    platform::sandbox(name, UID, "resources:\n  r0: {plugin: measured}\n")
}
