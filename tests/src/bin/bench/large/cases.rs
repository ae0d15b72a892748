//! The cases and their limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use ebb_engine::target::Notification;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_store::{MoveTarget as _, NotificationState, ReadTarget as _, TargetList, TargetTransition};
use serde::{Deserialize, Serialize};

use super::filling::{HELD, KIND, LARGE, sandbox};
use super::harness::LargeHarness;

/// The limits of one invocation on AWS.
const TIME: Duration = Duration::from_secs(29);
const MEMORY_MIB: u64 = 256;

/// A measured case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LargeCase {
    /// The platform is told that the target of the large run is ready.
    Ready,
    /// A person looks at that target.
    Get,
    /// A page of living targets.
    List,
    /// A sandbox of many resources of one plugin is created.
    Create,
}

impl LargeCase {
    pub(crate) const ALL: [Self; 4] = [Self::Ready, Self::Get, Self::List, Self::Create];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
        }
    }
}

/// The measures of a case.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LargeMeasurement {
    case: LargeCase,
    duration_ms: u64,
    peak_mib: u64,
    requests: BTreeMap<String, u64>,
}

impl LargeMeasurement {
    pub(crate) fn line(&self) -> String {
        let requests: Vec<String> = self.requests.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let (name, took, peak) = (self.case.name(), self.duration_ms, self.peak_mib);
        format!("{name:10} {took:>7} ms {peak:>5} MiB  {}", requests.join(", "))
    }

    /// Returns the measures above the limits of one invocation.
    pub(crate) fn broken(&self) -> Vec<String> {
        let name = self.case.name();
        let mut broken = Vec::new();
        if u128::from(self.duration_ms) > TIME.as_millis() {
            broken.push(format!("{name} takes {} ms; an invocation has {TIME:?}", self.duration_ms));
        }
        if self.peak_mib > MEMORY_MIB {
            broken.push(format!("{name} takes {} MiB; a function has {MEMORY_MIB}", self.peak_mib));
        }
        broken
    }
}

/// Measures a case in a filled folder.
pub(crate) async fn measure(case: LargeCase, folder: &Path, resources: usize) -> anyhow::Result<LargeMeasurement> {
    let harness = LargeHarness::open(folder).await?;
    if case == LargeCase::Ready {
        untell(&harness).await?;
    }
    harness.requests.take();
    let begun = Instant::now();
    Box::pin(invoke(case, &harness, resources)).await?;
    let took = begun.elapsed();
    let duration_ms = u64::try_from(took.as_millis())?;
    Ok(LargeMeasurement { case, duration_ms, peak_mib: peak_mib()?, requests: harness.requests.take() })
}

/// The platform has not been told yet that the target of the large run is ready.
async fn untell(harness: &LargeHarness) -> anyhow::Result<()> {
    let seen = harness.store.read_target(KIND, LARGE).await?.context("the target")?;
    let tell =
        Some(NotificationState { notification: Notification::Ready, attempts: 0, delivered_by: None, reason: None });
    let target = ebb_store::TargetHead { notification: tell, version: seen.version + 1, ..seen.clone() };
    let transition = TargetTransition { target, expected_version: Some(seen.version), run: None, tombstone: None };
    anyhow::ensure!(harness.store.move_target(&transition).await?, "the target is changed by others");
    Ok(())
}

async fn invoke(case: LargeCase, harness: &LargeHarness, resources: usize) -> anyhow::Result<()> {
    let (env, store) = (harness.env.as_ref(), harness.store.as_ref());
    match case {
        LargeCase::Ready => {
            let target = store.read_target(KIND, LARGE).await?.context("the target")?;
            ebb_flow::target::notify::notify(env, &target).await?;
            let told = store.read_target(KIND, LARGE).await?.context("the target")?;
            anyhow::ensure!(told.notification.is_none(), "the platform was not told: {:?}", told.notification);
        }
        LargeCase::Get => {
            let target = ebb_api::queries::targets::get(env, store, KIND, LARGE).await?.context("the target")?;
            let answer = serde_json::to_vec(&target)?;
            let bytes = ebb_protocol::limits::lambda_event_size(&answer);
            anyhow::ensure!(bytes <= ebb_protocol::limits::LAMBDA_EVENT, "the answer has {bytes} bytes in an event");
        }
        LargeCase::List => {
            let page = ebb_api::queries::targets::list(store, TargetList::Active, None, None).await;
            let page = page.map_err(|error| anyhow::anyhow!("{error:?}"))?;
            anyhow::ensure!(!page.targets.is_empty(), "no target is listed");
        }
        LargeCase::Create => {
            let event = sandbox("created", HELD, resources);
            let answer = ebb_flow::target::lifecycle::receive(env, store, LifecycleType::Created, &event);
            if let Err(error) = Box::pin(answer).await {
                bail!("the target is not taken: {error:?}");
            }
        }
    }
    Ok(())
}

/// The most memory that this process has had.
fn peak_mib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib.div_ceil(1024))
}
