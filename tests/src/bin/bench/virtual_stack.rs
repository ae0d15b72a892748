//! A measured store and a queue in virtual time, and the events of one sandbox.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use ebb_egress::HttpCall;
use ebb_engine::Millis;
use ebb_flow::Env;
use ebb_protocol::id::TargetKey;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_store::TargetHead;
use ebb_tests::simulation::{KIND, SimRandom};
use ebb_tests::virtual_clock::{ManualClock, ManualQueue};
use ebb_tests::{fakes, platform};

use crate::measured_store::MeasuredStore;

/// 22 November 2026, in milliseconds since 1970.
pub(crate) const START: u64 = 1_795_305_600_000;
pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// The state that the functions share.
pub(crate) struct VirtualStack {
    pub(crate) stored: MeasuredStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) messages: Arc<ManualQueue>,
}

impl VirtualStack {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let clock = Arc::new(ManualClock::at(START));
        let messages = Arc::new(ManualQueue::new(clock.clone()));
        Ok(Self { stored: MeasuredStore::new().await?, clock, messages })
    }

    /// Returns the environment of a function with an empty cache. `server` receives its requests.
    pub(crate) fn env(&self, server: Arc<dyn HttpCall>, platform: Option<String>) -> Env {
        let settings = fakes::settings("https://ebb.test", platform, Millis(60_000));
        let env = fakes::env(self.stored.store.clone(), server, self.messages.clone(), settings);
        Env { clock: self.clock.clone(), random: Arc::new(SimRandom::new(1)), ..env }
    }

    /// Returns a sandbox, which must exist. The request is not counted.
    pub(crate) async fn target(&self, name: &str) -> anyhow::Result<TargetHead> {
        self.stored.unmetered.read_target(TargetKey::new(KIND, name)).await?.context("the target does not exist")
    }

    /// Runs a sweep, which must not fail for any item. Its queries of the index are not counted.
    pub(crate) async fn sweep(&self, env: &Env) -> anyhow::Result<()> {
        let swept = Box::pin(ebb_flow::sweep::sweep(env, self.stored.unmetered.as_ref())).await?;
        ensure!(swept.failed == 0, "{} of {} items failed", swept.failed, swept.processed);
        Ok(())
    }
}

/// Returns the event that creates a sandbox of the plugin `measured`.
pub(crate) fn created(name: &str) -> LifecycleData {
    platform::sandbox(name, UID, "resources:\n  r0: {plugin: measured}\n")
}
