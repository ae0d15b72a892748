//! Measures single invocations with large runs and large tables: time, requests and memory.
//!
//! One process fills a table and a bucket. Each case is measured in its own process. Its peak memory includes the
//! embedded table and bucket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use clap::ValueEnum;
use ebb_api::queries::targets::TargetFilter;
use ebb_egress::{CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_engine::Millis;
use ebb_engine::target::Notification;
use ebb_flow::Env;
use ebb_flow::ports::MessageQueue;
use ebb_local::embedded::{EmbeddedTable, StateDurability};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_store::{MoveTarget as _, NotificationState, ReadTarget as _, TargetList, TargetTransition};
use ebb_tests::fakes;
use serde::{Deserialize, Serialize};

pub(crate) mod filling;

use crate::measured_store::MeasuredStore;
use crate::{memory_mib, word};
use filling::{KIND, LARGE, SMALL, TableSizes, event};

/// The limits of one invocation on AWS.
const TIME: Duration = Duration::from_secs(29);
const MEMORY_MIB: u64 = 256;
/// Size of the output of each unit, which is stored in the bucket.
const OUTPUT: usize = 4 << 10;
/// Longer than a measurement, so that no sweep runs in it.
const NEVER: Millis = Millis(86_400_000);

/// The sizes.
#[derive(clap::Args)]
pub(crate) struct LargeArgs {
    /// Units of the run whose target becomes ready, each with 4 KiB of outputs
    #[arg(long, default_value_t = 10_000)]
    units: usize,
    /// Gone targets
    #[arg(long, default_value_t = 1_000_000)]
    gone: usize,
    /// Active targets
    #[arg(long, default_value_t = 10_000)]
    living: usize,
    /// Resources of the sandbox that is created, all of one plugin
    #[arg(long, default_value_t = 500)]
    resources: usize,
    /// Measures one case in a filled folder
    #[arg(long, hide = true, requires = "folder")]
    measure: Option<LargeCase>,
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

/// A measured case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum LargeCase {
    /// The platform is notified that the target of the large run is ready.
    Ready,
    /// A client reads this target.
    Get,
    /// A client lists active targets.
    List,
    /// A sandbox of many resources of one plugin is created.
    Create,
}

/// The measures of a case.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LargeMeasurement {
    duration_ms: u64,
    peak_mib: u64,
    requests: BTreeMap<String, u64>,
}

/// Measures all cases and returns the limits that do not hold.
pub(crate) fn measured(arguments: &LargeArgs) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Runtime::new()?;
    if let (Some(case), Some(folder)) = (arguments.measure, &arguments.folder) {
        let measured = runtime.block_on(measure(case, folder, arguments.resources))?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(Vec::new());
    }
    let folder = tempfile::tempdir()?;
    let sizes = TableSizes { units: arguments.units, gone: arguments.gone, living: arguments.living };
    runtime.block_on(filling::fill(folder.path(), &sizes))?;
    drop(runtime);
    let mut broken = Vec::new();
    for &case in LargeCase::value_variants() {
        let name = word(case);
        let LargeMeasurement { duration_ms, peak_mib, requests } = child(&name, folder.path(), arguments.resources)?;
        let requests: Vec<String> = requests.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("{name:10} {duration_ms:>7} ms {peak_mib:>5} MiB  {}", requests.join(", "));
        if u128::from(duration_ms) > TIME.as_millis() {
            broken.push(format!("{name} takes {duration_ms} ms, the limit of an invocation is {TIME:?}"));
        }
        if peak_mib > MEMORY_MIB {
            broken.push(format!("{name} takes {peak_mib} MiB, the limit of a function is {MEMORY_MIB}"));
        }
    }
    Ok(broken)
}

/// Measures a case in a child process.
fn child(case: &str, folder: &Path, resources: usize) -> anyhow::Result<LargeMeasurement> {
    let output = Command::new(std::env::current_exe()?)
        .args(["large", "--measure", case, "--resources", &resources.to_string(), "--folder"])
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{case}: {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("the output of {case}"))
}

/// Responds to each request with outputs at once.
struct InstantServer;

#[async_trait]
impl HttpCall for InstantServer {
    async fn call(&self, _: HttpRequest) -> Result<HttpResponse, CallError> {
        let body = serde_json::json!({ "text": "x".repeat(OUTPUT) }).to_string().into_bytes();
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Ok(HttpResponse { status: 200, headers, body })
    }
}

/// Opens the table and the bucket in a folder, and the environment of a function over them.
async fn open(folder: &Path, queue: Arc<dyn MessageQueue>) -> anyhow::Result<(MeasuredStore, Arc<Env>)> {
    let stored =
        MeasuredStore::open(EmbeddedTable::open(&folder.join("table"), StateDurability::Process)?, folder).await?;
    let settings = fakes::settings("http://functions.test", Some("http://platform.test".to_owned()), NEVER)?;
    let env = fakes::env(stored.store.clone(), Arc::new(InstantServer), queue, settings);
    Ok((stored, Arc::new(env)))
}

/// Measures a case in a filled folder.
async fn measure(case: LargeCase, folder: &Path, resources: usize) -> anyhow::Result<LargeMeasurement> {
    let (queue, _, _messages) = fakes::channel();
    let (stored, env) = open(folder, Arc::new(queue)).await?;
    if case == LargeCase::Ready {
        set_pending_notification(&stored).await?;
    }
    stored.requests();
    let begun = Instant::now();
    Box::pin(invoke(case, &stored, &env, resources)).await?;
    let duration_ms = u64::try_from(begun.elapsed().as_millis())?;
    let peak_mib = memory_mib("self/status", "VmHWM")?.ceil() as u64;
    Ok(LargeMeasurement { duration_ms, peak_mib, requests: stored.requests() })
}

/// Makes the notification `ready` of the target of the large run pending.
async fn set_pending_notification(stored: &MeasuredStore) -> anyhow::Result<()> {
    let seen = stored.unmetered.read_target(KIND, LARGE).await?.context("the target")?;
    let notification =
        Some(NotificationState { notification: Notification::Ready, attempts: 0, delivered_by: None, reason: None });
    let target = ebb_store::TargetHead { notification, version: seen.version + 1, ..seen.clone() };
    let transition = TargetTransition { target, expected_version: Some(seen.version), run: None, tombstone: None };
    ensure!(stored.unmetered.move_target(&transition).await?, "another process changed the target");
    Ok(())
}

async fn invoke(case: LargeCase, stored: &MeasuredStore, env: &Env, resources: usize) -> anyhow::Result<()> {
    let store = stored.store.as_ref();
    match case {
        LargeCase::Ready => {
            let target = store.read_target(KIND, LARGE).await?.context("the target")?;
            ebb_flow::instance::notify::notify(env, &target).await?;
            let notified = store.read_target(KIND, LARGE).await?.context("the target")?;
            ensure!(notified.notification.is_none(), "the platform was not notified: {:?}", notified.notification);
        }
        LargeCase::Get => {
            let hidden = ebb_flow::instance::notify::SensitiveValues::Hidden;
            let found = ebb_api::queries::targets::get(env, store, (KIND, LARGE), None, hidden).await?;
            let (target, _) = found.context("the target")?;
            let body = serde_json::to_vec(&target)?;
            let bytes = ebb_protocol::limits::lambda_event_size(&body);
            ensure!(bytes <= ebb_protocol::limits::LAMBDA_EVENT, "the response has {bytes} bytes in an event");
        }
        LargeCase::List => {
            let page = ebb_api::queries::targets::list(store, TargetList::Active, TargetFilter::default(), None).await;
            let page = page.map_err(|error| anyhow::anyhow!("{error:?}"))?;
            ensure!(!page.targets.is_empty(), "no target is listed");
        }
        LargeCase::Create => {
            let event = event("created", SMALL, resources);
            let response =
                ebb_flow::instance::lifecycle::receive(env, store, (LifecycleType::Created, "bench"), &event);
            Box::pin(response).await.map_err(|error| anyhow::anyhow!("the target is not created: {error:?}"))?;
        }
    }
    Ok(())
}
