//! Finds and deletes orphans: objects in clusters whose instance has ended or is unknown.
//!
//! A scan lists the cluster before it reads the table. A target and its run are in the table before a cluster gets
//! their tasks, so the owner of each listed object is found. Tasks of other control planes are ignored.
//!
//! The relay deletes an object only if it recorded the object's UID, on condition of that UID, and if the labels name
//! the same task. [`scan`] deletes only objects of ended instances. A lost or restored table may lack active targets,
//! so an operator decides about unknown ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ebb_engine::{Hook, TargetPhase, Timestamp};
use ebb_protocol::limits::message;
use ebb_protocol::listing::{ObjectSummary, TaskSummary, UnmanagedObject};
use ebb_protocol::{ClusterError, DeleteOrphansResponse, Orphan, OrphanList, RunId, TaskId};
use ebb_store::RunFacts;

use crate::{Counter, Env, FlowResult, RelayError, telemetry};

const SCAN_INTERVAL_MS: u64 = 15 * 60 * 1000;
/// Minimum age of a task that a scan deletes, and minimum time since its instance ended. Late results arrive earlier.
const MIN_AGE_MS: u64 = 60 * 60 * 1000;
const MAX_DELETES: usize = 20;
/// The time within which a scan starts requests. It shares an invocation with the sweep.
const SCAN_TIME: Duration = Duration::from_secs(8);
/// Maximum duration of an API request.
const REQUEST_TIME: Duration = Duration::from_secs(20);
/// The time between two delete requests for a task.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnerState {
    /// The instance is active, or its teardown runs.
    Active,
    /// The instance of this target has ended. The time is present if it is known.
    Ended(String, Option<Timestamp>),
    Unknown,
}

struct OrphanTask {
    task: TaskId,
    age_ms: u64,
    owner: OwnerState,
    objects: Vec<Orphan>,
}

#[derive(Default)]
struct ClusterOrphans {
    tasks: Vec<OrphanTask>,
    unmanaged: Vec<Orphan>,
    errors: Vec<String>,
}

/// Lists the orphans of all clusters. A relay without a response is an error in the list.
pub async fn list(env: &Env) -> FlowResult<OrphanList> {
    let end = Instant::now() + REQUEST_TIME;
    let clusters = env.relay.clusters().await;
    let listings = clusters.iter().map(|cluster| scan_cluster(env, &cluster.name, end));
    let mut list = OrphanList::default();
    for (cluster, found) in clusters.iter().zip(futures::future::join_all(listings).await) {
        let ClusterOrphans { tasks, unmanaged, errors } = found?;
        list.orphans.extend(tasks.into_iter().flat_map(|task| task.objects).chain(unmanaged));
        let errors = errors.into_iter().map(|reason| ClusterError { cluster: cluster.name.clone(), reason });
        list.errors.extend(errors);
    }
    Ok(list)
}

/// Deletes the owned ones of the given orphans, with the other objects of their tasks, and waits for their end.
pub async fn delete(env: &Env, uids: &[String]) -> FlowResult<DeleteOrphansResponse> {
    let end = Instant::now() + REQUEST_TIME;
    let mut response = DeleteOrphansResponse::default();
    for cluster in env.relay.clusters().await {
        let found = scan_cluster(env, &cluster.name, end).await?;
        let failed = |reason| ClusterError { cluster: cluster.name.clone(), reason };
        response.remaining.extend(found.errors.into_iter().map(failed));
        for task in found.tasks {
            let is_meant = task.objects.iter().any(|orphan| orphan.owned && uids.contains(&orphan.uid));
            if !is_meant {
                continue;
            }
            match delete_task(env, &cluster.name, &task, end).await? {
                None => response.deleted.extend(task.objects.into_iter().filter(|orphan| orphan.owned)),
                Some(reason) => response.remaining.push(ClusterError { cluster: cluster.name.clone(), reason }),
            }
        }
    }
    Ok(response)
}

/// Scans one cluster whose scan is due, and deletes orphans of instances that ended at least an hour ago. Returns the
/// number of tasks whose deletion was requested. Removes the recorded state of clusters that do not exist any more.
pub async fn scan(env: &Env) -> FlowResult<usize> {
    let clusters = env.relay.clusters().await;
    if clusters.is_empty() {
        return Ok(0);
    }
    let (now, known) = (env.now(), env.store.read_scans().await?);
    let is_connected = |name: &str| clusters.iter().any(|cluster| cluster.name == name);
    forget_deleted(env, known.keys().filter(|name| !is_connected(name)).collect()).await?;
    let next_of = |name: &str| known.get(name).copied().flatten();
    let due = clusters.iter().find(|cluster| next_of(&cluster.name).is_none_or(|next| next <= now));
    let Some(cluster) = due else { return Ok(0) };
    let next = Timestamp(now.0.saturating_add(SCAN_INTERVAL_MS));
    if !env.store.claim_scan(&cluster.name, next_of(&cluster.name), next).await? {
        return Ok(0);
    }
    let end = Instant::now() + SCAN_TIME;
    let ClusterOrphans { tasks, unmanaged, errors } = scan_cluster(env, &cluster.name, end).await?;
    let found = tasks.iter().map(|task| task.objects.len()).sum::<usize>() + unmanaged.len();
    telemetry::count(Counter::Orphaned, found as u64);
    for reason in errors {
        tracing::info!(cluster = cluster.name, reason, "the scan for orphans is incomplete");
    }
    for orphan in unmanaged {
        let Orphan { cluster, kind, namespace, name, uid, reason, .. } = orphan;
        tracing::info!(cluster, kind, namespace, name, uid, reason, "did not delete an unmanaged object");
    }
    let mut requested = 0;
    let is_deletable = |task: &&OrphanTask| {
        let OwnerState::Ended(_, since) = &task.owner else { return false };
        let ended = since.is_none_or(|since| now.since(since).0 >= MIN_AGE_MS);
        ended && task.age_ms >= MIN_AGE_MS && task.objects.iter().any(|orphan| orphan.owned)
    };
    for task in tasks.iter().filter(is_deletable).take(MAX_DELETES) {
        if Instant::now() >= end {
            break;
        }
        requested += 1;
        let pending = delete_task(env, &cluster.name, task, Instant::now()).await?;
        for orphan in task.objects.iter().filter(|orphan| orphan.owned) {
            let Orphan { cluster, kind, namespace, name, uid, reason, .. } = orphan;
            tracing::warn!(
                cluster,
                kind,
                namespace,
                name,
                uid,
                reason,
                pending,
                "requested the deletion of an orphan, which is complete unless it is pending"
            );
        }
    }
    Ok(requested)
}

/// Removes the recorded state of those of the `unconnected` clusters that are not registered. A deletion removes the state of
/// its cluster, but a function that has not seen the deletion yet may record more, and a cluster of the configuration has
/// no deletion.
async fn forget_deleted(env: &Env, unconnected: Vec<&String>) -> FlowResult<()> {
    if unconnected.is_empty() {
        return Ok(());
    }
    // The connected clusters are those of the last seconds.
    let registered = env.store.list_clusters().await?;
    for name in unconnected.into_iter().filter(|name| registered.iter().all(|cluster| cluster.name != **name)) {
        env.store.forget_cluster(name).await?;
    }
    Ok(())
}

async fn scan_cluster(env: &Env, cluster: &str, end: Instant) -> FlowResult<ClusterOrphans> {
    let mut found = ClusterOrphans::default();
    let mut owners: HashMap<String, OwnerState> = HashMap::new();
    let mut after = None;
    loop {
        let listing = match env.relay.list(cluster, after.take()).await {
            Ok(listing) => listing,
            Err(RelayError::Unreachable(reason) | RelayError::Busy(reason) | RelayError::Refused(reason)) => {
                found.errors.push(reason);
                return Ok(found);
            }
        };
        found.errors.extend(listing.errors.iter().map(|reason| message(reason)));
        for task in listing.tasks {
            if !is_ours(env, &task) || task.objects.is_empty() {
                continue;
            }
            let owner = cached_owner(env, &mut owners, &task.task.unit).await?;
            if let Some(reason) = orphan_reason(&owner, &task.task.unit) {
                let objects = task.objects.iter().map(|object| Orphan {
                    reason: match object.labelled {
                        true => reason.clone(),
                        false => format!("{reason}; another task has taken it over"),
                    },
                    owned: object.labelled,
                    ..orphan((cluster, &task.instance), object, task.age_ms)
                });
                let objects = objects.collect();
                found.tasks.push(OrphanTask { age_ms: task.age_ms, task: task.task, owner, objects });
            }
        }
        for unmanaged in listing.unmanaged {
            let owner = cached_owner(env, &mut owners, &unmanaged.unit).await?;
            if let Some(reason) = orphan_reason(&owner, &unmanaged.unit) {
                let UnmanagedObject { unit, object, age_ms } = unmanaged;
                let task = TaskId { unit: message(&unit), attempt: 1 };
                let reason = format!("{reason}; no record of the relay has its uid");
                found.unmanaged.push(Orphan { reason, ..orphan((cluster, task.instance()), &object, age_ms) });
            }
        }
        after = listing.next_token;
        if after.is_none() {
            return Ok(found);
        }
        if Instant::now() >= end {
            found.errors.push("the list is incomplete: the cluster has more than one request can list".to_owned());
            return Ok(found);
        }
    }
}

/// Returns true if this installation requested the task, possibly with another callback URL.
fn is_ours(env: &Env, task: &TaskSummary) -> bool {
    task.callback == env.settings.callback_url || task.installation == env.settings.installation
}

async fn cached_owner(env: &Env, owners: &mut HashMap<String, OwnerState>, unit: &str) -> FlowResult<OwnerState> {
    let Some(run) = run_of(unit) else { return Ok(OwnerState::Unknown) };
    if let Some(owner) = owners.get(run.as_str()) {
        return Ok(owner.clone());
    }
    let owner = read_owner(env, &run).await?;
    owners.insert(run.to_string(), owner.clone());
    Ok(owner)
}

/// Returns the run in the name of a task's unit.
fn run_of(unit: &str) -> Option<RunId> {
    let (run, index) = unit.rsplit_once('-')?;
    index.parse::<u32>().ok()?;
    run.parse().ok()
}

/// Reads the owner with strong consistency: first the run, which names its target, and then the target.
async fn read_owner(env: &Env, run: &RunId) -> FlowResult<OwnerState> {
    let Some(facts) = read_facts(env, run).await? else { return Ok(OwnerState::Unknown) };
    let target = env.store.read_target(facts.target_key()).await?;
    let end = match target {
        Some(target) if target.uid != facts.uid => Some(target.created),
        Some(target) if target.phase != TargetPhase::Gone => return Ok(OwnerState::Active),
        Some(target) => Some(target.since),
        // The data of this instance was removed.
        None => None,
    };
    Ok(OwnerState::Ended(facts.target_key().to_string(), end))
}

/// Returns the facts of a run. Retention removes the run of an event before the other runs of its instance, and a cluster may
/// hold its sensitive outputs until the instance ends. Each of the other runs names the same target.
async fn read_facts(env: &Env, run: &RunId) -> FlowResult<Option<RunFacts>> {
    let others = Hook::ALL.into_iter().filter(|_| matches!(run.hook(), Hook::Event(_))).map(|hook| run.sibling(hook));
    let runs: Vec<RunId> = std::iter::once(run.clone()).chain(others).collect();
    for run in runs {
        if let Some(present) = env.store.read_run(&run).await? {
            return Ok(Some(present.facts));
        }
    }
    Ok(None)
}

fn orphan_reason(owner: &OwnerState, unit: &str) -> Option<String> {
    match owner {
        OwnerState::Active => None,
        OwnerState::Ended(target, _) => Some(format!("its owner {target} is gone")),
        OwnerState::Unknown => Some(format!("its owner is unknown: {}", message(unit))),
    }
}

/// Returns an object of an instance in a cluster that is not owned, and has no reason yet.
fn orphan((cluster, instance): (&str, &str), object: &ObjectSummary, age_ms: u64) -> Orphan {
    Orphan {
        cluster: cluster.to_owned(),
        kind: message(&object.kind),
        namespace: object.namespace.as_deref().map(message),
        name: message(&object.name),
        uid: message(&object.uid),
        instance: message(instance),
        age_seconds: age_ms / 1000,
        reason: String::new(),
        owned: false,
    }
}

/// Deletes the objects of a task through its relay, and waits until `end`. A task of an active instance is not deleted.
/// Returns the reason why objects remain.
async fn delete_task(env: &Env, cluster: &str, task: &OrphanTask, end: Instant) -> FlowResult<Option<String>> {
    let run = run_of(&task.task.unit);
    if let Some(run) = &run
        && read_owner(env, run).await? == OwnerState::Active
    {
        return Ok(Some(format!("the instance of {} is active", task.task.unit)));
    }
    loop {
        match env.relay.delete(cluster, &task.task).await {
            Ok(()) => return Ok(None),
            Err(RelayError::Unreachable(_) | RelayError::Busy(_)) if Instant::now() + POLL_INTERVAL < end => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(RelayError::Unreachable(reason) | RelayError::Busy(reason) | RelayError::Refused(reason)) => {
                return Ok(Some(reason));
            }
        }
    }
}
