//! What is left in clusters of lives that are over, or that the table does not know.
//!
//! A cluster is listed before the table is read: the target and its run are in the table before anything of them is in a
//! cluster, so whatever is listed was known by then. Work whose results go to another control plane is none of ours.
//!
//! Only what a relay has recorded by its uid, and what still carries the labels of that very work, is ever deleted: by the
//! relay, on condition of that uid. By itself [`round`] deletes only what the table says is over: to a table that was lost,
//! or was restored from a time ago, living targets are unknown, and that is for people to judge.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ebb_engine::{TargetPhase, Timestamp};
use ebb_protocol::api::{Orphan, OrphanList, OrphansDeleted, RelayProblem};
use ebb_protocol::id::RunId;
use ebb_protocol::limits::message;
use ebb_protocol::listing::{ObjectSummary, TaskSummary, UnmanagedObject};
use ebb_protocol::relay::TaskId;
use ebb_store::OrphanScans;

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::RelayError;
use crate::telemetry;

/// Between two rounds over one cluster.
const SCAN_INTERVAL_MS: u64 = 15 * 60 * 1000;
/// How long what a round deletes was asked for, and how long its life is over: no late result changes that any more.
const MIN_AGE_MS: u64 = 60 * 60 * 1000;
const MAX_DELETES: usize = 20;
/// How long a round begins anything: it shares an invocation with the sweep.
const SCAN_TIME: Duration = Duration::from_secs(8);
/// How long a person is made to wait.
const REQUEST_TIME: Duration = Duration::from_secs(20);
/// Between two looks at what ends.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What the table says of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnerState {
    /// It goes on, or is being taken away.
    Active,
    /// It was this target's and is over; since when, if that is known.
    Ended(String, Option<Timestamp>),
    /// No run of this name is known.
    Unknown,
}

/// A work of which something is left.
struct OrphanTask {
    name: TaskId,
    age_ms: u64,
    owner: OwnerState,
    objects: Vec<Orphan>,
}

/// What was found in one cluster.
#[derive(Default)]
struct ClusterOrphans {
    tasks: Vec<OrphanTask>,
    unmanaged: Vec<Orphan>,
    errors: Vec<String>,
}

/// Lists what is left in all clusters.
///
/// # Errors
/// The store's. A relay that does not answer is told of in the list.
pub async fn list(env: &Env) -> Result<OrphanList, FlowError> {
    let end = Instant::now() + REQUEST_TIME;
    let clusters = env.relay.clusters();
    let looks = clusters.iter().map(|cluster| scan_cluster(env, &cluster.name, end));
    let mut list = OrphanList::default();
    for (cluster, found) in clusters.iter().zip(futures::future::join_all(looks).await) {
        let ClusterOrphans { tasks: works, unmanaged: strangers, errors: unseen } = found?;
        list.orphans.extend(works.into_iter().flat_map(|work| work.objects).chain(strangers));
        let unseen =
            unseen.into_iter().map(|why| RelayProblem { cluster: cluster.name.clone(), reason: why });
        list.errors.extend(unseen);
    }
    Ok(list)
}

/// Deletes those of these orphans that are proven ours, and waits a while for their end. What belongs to the same work goes
/// with them.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn delete(env: &Env, uids: &[String]) -> Result<OrphansDeleted, FlowError> {
    let end = Instant::now() + REQUEST_TIME;
    let mut done = OrphansDeleted::default();
    for cluster in env.relay.clusters() {
        let found = scan_cluster(env, &cluster.name, end).await?;
        for why in found.errors {
            done.remaining.push(RelayProblem { cluster: cluster.name.clone(), reason: why });
        }
        for work in found.tasks {
            let is_meant = work.objects.iter().any(|orphan| orphan.owned && uids.contains(&orphan.uid));
            if !is_meant {
                continue;
            }
            match discard(env, &cluster.name, &work, end).await? {
                Ok(()) => done.deleted.extend(work.objects.into_iter().filter(|orphan| orphan.owned)),
                Err(why) => done.remaining.push(RelayProblem { cluster: cluster.name.clone(), reason: why }),
            }
        }
    }
    Ok(done)
}

/// Looks at one cluster whose round is due, and deletes what is left there of lives that are over for an hour. Gives how many
/// works were dealt with.
///
/// # Errors
/// The store's; the next round looks again.
pub async fn scan(env: &Env, rounds: &dyn OrphanScans) -> Result<usize, FlowError> {
    let clusters = env.relay.clusters();
    if clusters.is_empty() {
        return Ok(0);
    }
    let (now, known) = (env.now(), rounds.read_scans().await?);
    let due = clusters.iter().find(|cluster| known.get(&cluster.name).is_none_or(|next| *next <= now));
    let Some(cluster) = due else { return Ok(0) };
    let (seen, next) = (known.get(&cluster.name).copied(), Timestamp(now.0.saturating_add(SCAN_INTERVAL_MS)));
    if !rounds.claim_scan(&cluster.name, seen, next).await? {
        return Ok(0);
    }
    let end = Instant::now() + SCAN_TIME;
    let ClusterOrphans { tasks: works, unmanaged: strangers, errors: unseen } =
        scan_cluster(env, &cluster.name, end).await?;
    telemetry::orphans_found(works.iter().map(|work| work.objects.len()).sum::<usize>() + strangers.len());
    for why in unseen {
        tracing::info!(cluster = cluster.name, why, "not everything was looked at for orphans");
    }
    for orphan in strangers {
        let Orphan { cluster, kind, namespace, name, uid, reason: why, .. } = orphan;
        tracing::info!(cluster, kind, namespace, name, uid, why, "may be an orphan; it is left alone");
    }
    let mut dealt = 0;
    for work in works.iter().filter(|work| work.is_deletable(now)).take(MAX_DELETES) {
        if Instant::now() >= end {
            break;
        }
        dealt += 1;
        let outcome = discard(env, &cluster.name, work, Instant::now()).await?;
        for orphan in work.objects.iter().filter(|orphan| orphan.owned) {
            let Orphan { cluster, kind, namespace, name, uid, reason: why, .. } = orphan;
            match &outcome {
                Ok(()) => tracing::warn!(cluster, kind, namespace, name, uid, why, "an orphan was deleted"),
                Err(later) => {
                    tracing::warn!(
                        cluster,
                        kind,
                        namespace,
                        name,
                        uid,
                        why,
                        later,
                        "an orphan is being deleted"
                    );
                }
            }
        }
    }
    Ok(dealt)
}

impl OrphanTask {
    /// Whether it may go without anybody being asked.
    fn is_deletable(&self, now: Timestamp) -> bool {
        let OwnerState::Ended(_, since) = &self.owner else { return false };
        let over = since.is_none_or(|since| now.since(since).0 >= MIN_AGE_MS);
        over && self.age_ms >= MIN_AGE_MS && self.objects.iter().any(|orphan| orphan.owned)
    }
}

/// What is left in a cluster, as far as `end` lets it be looked at.
async fn scan_cluster(env: &Env, cluster: &str, end: Instant) -> Result<ClusterOrphans, FlowError> {
    let mut found = ClusterOrphans::default();
    let mut lives: HashMap<String, OwnerState> = HashMap::new();
    let mut after = None;
    loop {
        let listing = match env.relay.list(cluster, after.take()).await {
            Ok(listing) => listing,
            Err(RelayError::Unreachable(why) | RelayError::Busy(why) | RelayError::Refused(why)) => {
                found.errors.push(why);
                return Ok(found);
            }
        };
        found.errors.extend(listing.errors.iter().map(|why| message(why)));
        for work in listing.tasks {
            if !is_ours(env, &work) || work.objects.is_empty() {
                continue;
            }
            let life = cached_owner(env, &mut lives, &work.name.unit).await?;
            if let Some(why) = orphan_reason(&life, &work.name.unit) {
                let objects = work.objects.iter().map(|object| owned_orphan(cluster, &work, object, &why));
                let objects = objects.collect();
                found.tasks.push(OrphanTask { age_ms: work.age_ms, name: work.name, owner: life, objects });
            }
        }
        for stranger in listing.unmanaged {
            let life = cached_owner(env, &mut lives, &stranger.unit).await?;
            if let Some(why) = orphan_reason(&life, &stranger.unit) {
                found.unmanaged.push(unmanaged_orphan(cluster, stranger, &why));
            }
        }
        after = listing.next;
        if after.is_none() {
            return Ok(found);
        }
        if Instant::now() >= end {
            found.errors.push("there is more than can be looked at in one go".to_owned());
            return Ok(found);
        }
    }
}

/// Returns whether this installation has asked for a work, at whatever URL it took callbacks then.
fn is_ours(env: &Env, work: &TaskSummary) -> bool {
    work.callback == env.settings.callback_url || work.installation == env.settings.installation
}

async fn cached_owner(
    env: &Env,
    lives: &mut HashMap<String, OwnerState>,
    unit: &str,
) -> Result<OwnerState, FlowError> {
    let Some(run) = run_of(unit) else { return Ok(OwnerState::Unknown) };
    if let Some(life) = lives.get(run.as_str()) {
        return Ok(life.clone());
    }
    let life = read_owner(env, &run).await?;
    lives.insert(run.to_string(), life.clone());
    Ok(life)
}

/// The run that a unit's name at a relay names.
fn run_of(unit: &str) -> Option<RunId> {
    let (run, index) = unit.rsplit_once('-')?;
    index.parse::<u32>().ok()?;
    run.parse().ok()
}

/// What the table says, read strongly: first the run, which names its target, then the target.
async fn read_owner(env: &Env, run: &RunId) -> Result<OwnerState, FlowError> {
    let Some(facts) = env.store.read_root(run).await?.and_then(|root| root.facts) else {
        return Ok(OwnerState::Unknown);
    };
    let target = env.store.read_target(&facts.kind, &facts.name).await?;
    let named = format!("{}/{}", facts.kind, facts.name);
    Ok(match target {
        Some(target) if target.uid == facts.uid && target.phase != TargetPhase::Gone => OwnerState::Active,
        Some(target) if target.uid == facts.uid => OwnerState::Ended(named, Some(target.since)),
        // Another life has the name since, or the table has outlived it.
        Some(target) => OwnerState::Ended(named, Some(target.created)),
        None => OwnerState::Ended(named, None),
    })
}

fn orphan_reason(life: &OwnerState, unit: &str) -> Option<String> {
    match life {
        OwnerState::Active => None,
        OwnerState::Ended(target, _) => Some(format!("{target}, for which it was made, is gone")),
        OwnerState::Unknown => Some(format!("nothing is known of what it was made for, {}", message(unit))),
    }
}

fn orphan(cluster: &str, object: &ObjectSummary) -> Orphan {
    Orphan {
        cluster: cluster.to_owned(),
        kind: message(&object.kind),
        namespace: object.namespace.as_deref().map(message),
        name: message(&object.name),
        uid: message(&object.uid),
        instance: String::new(),
        age_seconds: 0,
        reason: String::new(),
        owned: false,
    }
}

fn owned_orphan(cluster: &str, work: &TaskSummary, object: &ObjectSummary, why: &str) -> Orphan {
    let (life, age_seconds) = (message(&work.instance), work.age_ms / 1000);
    let why = match object.labelled {
        true => why.to_owned(),
        false => format!("{why}; its labels name another work"),
    };
    Orphan { instance: life, age_seconds, reason: why, owned: object.labelled, ..orphan(cluster, object) }
}

fn unmanaged_orphan(cluster: &str, stranger: UnmanagedObject, why: &str) -> Orphan {
    let life = TaskId { unit: message(&stranger.unit), attempt: 1 }.instance().to_owned();
    let why = format!("{why}; no record of the relay has its uid");
    Orphan {
        instance: life,
        age_seconds: stranger.age_ms / 1000,
        reason: why,
        ..orphan(cluster, &stranger.object)
    }
}

/// Has the relay delete what is left of a work, and waits until `end` for that. A life that goes on again keeps it.
async fn discard(
    env: &Env,
    cluster: &str,
    work: &OrphanTask,
    end: Instant,
) -> Result<Result<(), String>, FlowError> {
    let run = run_of(&work.name.unit);
    let lives = match &run {
        Some(run) => read_owner(env, run).await? == OwnerState::Active,
        None => false,
    };
    if lives {
        return Ok(Err(format!("the life of {} goes on", work.name.unit)));
    }
    loop {
        match env.relay.discard(cluster, &work.name).await {
            Ok(()) => return Ok(Ok(())),
            Err(RelayError::Unreachable(_) | RelayError::Busy(_)) if Instant::now() + POLL_INTERVAL < end => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(RelayError::Unreachable(why) | RelayError::Busy(why) | RelayError::Refused(why)) => {
                return Ok(Err(why));
            }
        }
    }
}
