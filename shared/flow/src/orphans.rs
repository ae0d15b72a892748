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
use ebb_store::Rounds;
use ebb_wire::api::{Orphan, OrphanList, OrphansDeleted, Unseen};
use ebb_wire::id::RunId;
use ebb_wire::limits::message;
use ebb_wire::listing::{Listed, Object, Stranger};
use ebb_wire::relay::WorkName;

use crate::env::Env;
use crate::error::FlowError;
use crate::observe;
use crate::ports::RelayError;

/// Between two rounds over one cluster.
const EVERY_MS: u64 = 15 * 60 * 1000;
/// How long what a round deletes was asked for, and how long its life is over: no late result changes that any more.
const OLD_MS: u64 = 60 * 60 * 1000;
const AT_A_TIME: usize = 20;
/// How long a round begins anything: it shares an invocation with the sweep.
const ROUND: Duration = Duration::from_secs(8);
/// How long a person is made to wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at what ends.
const LOOK: Duration = Duration::from_secs(1);

/// What the table says of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    /// It goes on, or is being taken away.
    Lives,
    /// It was this target's and is over; since when, if that is known.
    Over(String, Option<Timestamp>),
    /// No run of this name is known.
    Unknown,
}

/// A work of which something is left.
struct Left {
    name: WorkName,
    age_ms: u64,
    life: Life,
    objects: Vec<Orphan>,
}

/// What was found in one cluster.
#[derive(Default)]
struct Found {
    works: Vec<Left>,
    strangers: Vec<Orphan>,
    unseen: Vec<String>,
}

/// Lists what is left in all clusters.
///
/// # Errors
/// The store's. A relay that does not answer is told of in the list.
pub async fn list(env: &Env) -> Result<OrphanList, FlowError> {
    let end = Instant::now() + PATIENCE;
    let clusters = env.relay.clusters();
    let looks = clusters.iter().map(|cluster| find(env, &cluster.name, end));
    let mut list = OrphanList::default();
    for (cluster, found) in clusters.iter().zip(futures::future::join_all(looks).await) {
        let Found { works, strangers, unseen } = found?;
        list.orphans.extend(works.into_iter().flat_map(|work| work.objects).chain(strangers));
        let unseen = unseen.into_iter().map(|why| Unseen { cluster: cluster.name.clone(), why });
        list.unseen.extend(unseen);
    }
    Ok(list)
}

/// Deletes those of these orphans that are proven ours, and waits a while for their end. What belongs to the same work goes
/// with them.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn delete(env: &Env, uids: &[String]) -> Result<OrphansDeleted, FlowError> {
    let end = Instant::now() + PATIENCE;
    let mut done = OrphansDeleted::default();
    for cluster in env.relay.clusters() {
        let found = find(env, &cluster.name, end).await?;
        for why in found.unseen {
            done.left.push(Unseen { cluster: cluster.name.clone(), why });
        }
        for work in found.works {
            let is_meant = work.objects.iter().any(|orphan| orphan.proven && uids.contains(&orphan.uid));
            if !is_meant {
                continue;
            }
            match discard(env, &cluster.name, &work, end).await? {
                Ok(()) => done.deleted.extend(work.objects.into_iter().filter(|orphan| orphan.proven)),
                Err(why) => done.left.push(Unseen { cluster: cluster.name.clone(), why }),
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
pub async fn round(env: &Env, rounds: &dyn Rounds) -> Result<usize, FlowError> {
    let clusters = env.relay.clusters();
    if clusters.is_empty() {
        return Ok(0);
    }
    let (now, known) = (env.now(), rounds.read_rounds().await?);
    let due = clusters.iter().find(|cluster| known.get(&cluster.name).is_none_or(|next| *next <= now));
    let Some(cluster) = due else { return Ok(0) };
    let (seen, next) = (known.get(&cluster.name).copied(), Timestamp(now.0.saturating_add(EVERY_MS)));
    if !rounds.begin_round(&cluster.name, seen, next).await? {
        return Ok(0);
    }
    let end = Instant::now() + ROUND;
    let Found { works, strangers, unseen } = find(env, &cluster.name, end).await?;
    observe::orphaned(works.iter().map(|work| work.objects.len()).sum::<usize>() + strangers.len());
    for why in unseen {
        tracing::info!(cluster = cluster.name, why, "not everything was looked at for orphans");
    }
    for orphan in strangers {
        let Orphan { cluster, kind, namespace, name, uid, why, .. } = orphan;
        tracing::info!(cluster, kind, namespace, name, uid, why, "may be an orphan; it is left alone");
    }
    let mut dealt = 0;
    for work in works.iter().filter(|work| work.is_old(now)).take(AT_A_TIME) {
        if Instant::now() >= end {
            break;
        }
        dealt += 1;
        let outcome = discard(env, &cluster.name, work, Instant::now()).await?;
        for orphan in work.objects.iter().filter(|orphan| orphan.proven) {
            let Orphan { cluster, kind, namespace, name, uid, why, .. } = orphan;
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

impl Left {
    /// Whether it may go without anybody being asked.
    fn is_old(&self, now: Timestamp) -> bool {
        let Life::Over(_, since) = &self.life else { return false };
        let over = since.is_none_or(|since| now.since(since).0 >= OLD_MS);
        over && self.age_ms >= OLD_MS && self.objects.iter().any(|orphan| orphan.proven)
    }
}

/// What is left in a cluster, as far as `end` lets it be looked at.
async fn find(env: &Env, cluster: &str, end: Instant) -> Result<Found, FlowError> {
    let mut found = Found::default();
    let mut lives: HashMap<String, Life> = HashMap::new();
    let mut after = None;
    loop {
        let listing = match env.relay.list(cluster, after.take()).await {
            Ok(listing) => listing,
            Err(RelayError::Unreachable(why) | RelayError::Busy(why) | RelayError::Refused(why)) => {
                found.unseen.push(why);
                return Ok(found);
            }
        };
        found.unseen.extend(listing.unseen.iter().map(|why| message(why)));
        for work in listing.works {
            if !is_ours(env, &work) || work.objects.is_empty() {
                continue;
            }
            let life = known(env, &mut lives, &work.name.unit).await?;
            if let Some(why) = why(&life, &work.name.unit) {
                let objects = work.objects.iter().map(|object| of_work(cluster, &work, object, &why));
                let objects = objects.collect();
                found.works.push(Left { age_ms: work.age_ms, name: work.name, life, objects });
            }
        }
        for stranger in listing.strangers {
            let life = known(env, &mut lives, &stranger.unit).await?;
            if let Some(why) = why(&life, &stranger.unit) {
                found.strangers.push(of_nobody(cluster, stranger, &why));
            }
        }
        after = listing.next;
        if after.is_none() {
            return Ok(found);
        }
        if Instant::now() >= end {
            found.unseen.push("there is more than can be looked at in one go".to_owned());
            return Ok(found);
        }
    }
}

/// Returns whether this installation has asked for a work, at whatever URL it took callbacks then.
fn is_ours(env: &Env, work: &Listed) -> bool {
    work.callback == env.settings.callback_url || work.installation == env.settings.installation
}

async fn known(env: &Env, lives: &mut HashMap<String, Life>, unit: &str) -> Result<Life, FlowError> {
    let Some(run) = run_of(unit) else { return Ok(Life::Unknown) };
    if let Some(life) = lives.get(run.as_str()) {
        return Ok(life.clone());
    }
    let life = read(env, &run).await?;
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
async fn read(env: &Env, run: &RunId) -> Result<Life, FlowError> {
    let Some(facts) = env.store.read_root(run).await?.and_then(|root| root.facts) else {
        return Ok(Life::Unknown);
    };
    let target = env.store.read_target(&facts.kind, &facts.name).await?;
    let named = format!("{}/{}", facts.kind, facts.name);
    Ok(match target {
        Some(target) if target.uid == facts.uid && target.phase != TargetPhase::Gone => Life::Lives,
        Some(target) if target.uid == facts.uid => Life::Over(named, Some(target.since)),
        // Another life has the name since, or the table has outlived it.
        Some(target) => Life::Over(named, Some(target.created)),
        None => Life::Over(named, None),
    })
}

fn why(life: &Life, unit: &str) -> Option<String> {
    match life {
        Life::Lives => None,
        Life::Over(target, _) => Some(format!("{target}, for which it was made, is gone")),
        Life::Unknown => Some(format!("nothing is known of what it was made for, {}", message(unit))),
    }
}

fn orphan(cluster: &str, object: &Object) -> Orphan {
    Orphan {
        cluster: cluster.to_owned(),
        kind: message(&object.kind),
        namespace: object.namespace.as_deref().map(message),
        name: message(&object.name),
        uid: message(&object.uid),
        life: String::new(),
        age_seconds: 0,
        why: String::new(),
        proven: false,
    }
}

fn of_work(cluster: &str, work: &Listed, object: &Object, why: &str) -> Orphan {
    let (life, age_seconds) = (message(&work.life), work.age_ms / 1000);
    let why = match object.labelled {
        true => why.to_owned(),
        false => format!("{why}; its labels name another work"),
    };
    Orphan { life, age_seconds, why, proven: object.labelled, ..orphan(cluster, object) }
}

fn of_nobody(cluster: &str, stranger: Stranger, why: &str) -> Orphan {
    let life = WorkName { unit: message(&stranger.unit), attempt: 1 }.life().to_owned();
    let why = format!("{why}; no record of the relay has its uid");
    Orphan { life, age_seconds: stranger.age_ms / 1000, why, ..orphan(cluster, &stranger.object) }
}

/// Has the relay delete what is left of a work, and waits until `end` for that. A life that goes on again keeps it.
async fn discard(
    env: &Env,
    cluster: &str,
    work: &Left,
    end: Instant,
) -> Result<Result<(), String>, FlowError> {
    let run = run_of(&work.name.unit);
    let lives = match &run {
        Some(run) => read(env, run).await? == Life::Lives,
        None => false,
    };
    if lives {
        return Ok(Err(format!("the life of {} goes on", work.name.unit)));
    }
    loop {
        match env.relay.discard(cluster, &work.name).await {
            Ok(()) => return Ok(Ok(())),
            Err(RelayError::Unreachable(_) | RelayError::Busy(_)) if Instant::now() + LOOK < end => {
                tokio::time::sleep(LOOK).await;
            }
            Err(RelayError::Unreachable(why) | RelayError::Busy(why) | RelayError::Refused(why)) => {
                return Ok(Err(why));
            }
        }
    }
}
