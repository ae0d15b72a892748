//! Retention: the stored data of a life is removed some days after it is gone.
//!
//! An [`Expiry`] is written before a life begins to end. When it is due, and the life is gone with nothing left of it, its
//! runs, records, outputs and logs are deleted, and so is its plan, unless another life holds it. Every step may be
//! repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_engine::{Millis, Moment, RunPhase, TargetPhase, Timestamp};
use ebb_spec::plan::Work;
use ebb_store::{DamagedExpiry, Expiries, Expiry, RunFacts, TargetHead, TargetList, Transition, Waiting};
use ebb_wire::id::{self, RunId};
use tokio::time::timeout;

use crate::api::existing;
use crate::env::{Env, Loaded};
use crate::error::FlowError;
use crate::run::Run;

/// Lives that one round looks at.
const LIVES: usize = 50;
/// For how long a round begins to remove lives.
const BEGINS: Duration = Duration::from_secs(5);
/// A life that cannot be removed yet is looked at again after this long.
const AGAIN: Millis = Millis(86_400_000);
/// One look may take so long. A removal that is cut short goes on with the next look.
const LOOK: Duration = Duration::from_secs(3);
/// The wait after the first failed look; it doubles with each further one.
const FIRST_WAIT_MS: u64 = 60 * 60 * 1000;
/// The longest wait after a failed look.
const LONGEST_WAIT_MS: u64 = 7 * 86_400_000;

/// Schedules the removal of the stored data of a target, before the target begins to end.
///
/// # Errors
/// The store's.
pub async fn note(env: &Env, target: &TargetHead) -> Result<(), FlowError> {
    let TargetHead { uid, generation, plan, .. } = target;
    write(env, target, (uid, *generation, plan), env.now()).await
}

/// Notes when what is stored of a gone target is to be removed, before another life takes its name. From then on the
/// target does not say when it became gone.
///
/// # Errors
/// The store's.
pub async fn note_gone(env: &Env, target: &TargetHead) -> Result<(), FlowError> {
    let TargetHead { uid, generation, plan, since, .. } = target;
    // Nothing is stored of a target without a plan.
    if target.phase != TargetPhase::Gone || plan.is_empty() {
        return Ok(());
    }
    write(env, target, (uid, *generation, plan), *since).await
}

/// Notes that the plan of a life is to be removed that waits for the name of a target and will not begin.
///
/// # Errors
/// The store's.
pub async fn note_waiting(env: &Env, target: &TargetHead, waiting: &Waiting) -> Result<(), FlowError> {
    let Waiting { uid, generation, plan, .. } = waiting;
    write(env, target, (uid, *generation, plan), env.now()).await
}

/// Gives a gone target that an earlier version stored an expiry, and moves it to the list of gone ones.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn adopt(env: &Env, target: &TargetHead) -> Result<(), FlowError> {
    note_gone(env, target).await?;
    let seen = Some(target.version);
    let target = TargetHead { version: target.version + 1, ..target.clone() };
    // Refused: another write has moved it.
    env.store.move_target(&Transition { target, seen, run: None, tombstone: None }).await?;
    Ok(())
}

async fn write(
    env: &Env,
    named: &TargetHead,
    (uid, generation, plan): (&str, u64, &str),
    ended: Timestamp,
) -> Result<(), FlowError> {
    let Some(retention) = env.settings.retention else { return Ok(()) };
    let expiry = Expiry {
        kind: named.kind.clone(),
        name: named.name.clone(),
        uid: uid.to_owned(),
        generation,
        plan: plan.to_owned(),
        due: ended.plus(retention),
        failures: 0,
    };
    Ok(env.store.put_expiry(&expiry).await?)
}

/// Removes what is stored of lives whose retention is over at `now`. Returns how many lives were removed. A failed or
/// unfinished look is repeated after a wait that grows, so that it does not keep other lives from their turn.
///
/// # Errors
/// The store's; what is left is due in the next round.
pub async fn round(env: &Env, store: &dyn Expiries, now: Timestamp) -> Result<usize, FlowError> {
    let begun = Instant::now();
    let mut removed = 0;
    let due = store.list_expired(now, LIVES).await?;
    for damaged in due.damaged {
        let DamagedExpiry { life, failures, reason } = &damaged;
        tracing::error!(life, reason, "an expiry cannot be read; what is stored of its life stays");
        let next = now.plus(wait(*failures));
        let damaged = DamagedExpiry { failures: failures.saturating_add(1), ..damaged };
        if let Err(error) = store.postpone_damaged(&damaged, next).await {
            tracing::warn!(%error, life = damaged.life, "the damaged expiry stays due");
        }
    }
    for expiry in due.lives {
        if begun.elapsed() > BEGINS {
            break;
        }
        let looked = timeout(LOOK, Box::pin(look(env, store, &expiry, now))).await;
        match looked {
            Ok(Ok(Looked::Removed)) => removed += 1,
            Ok(Ok(Looked::Kept)) => store.delete_expiry(&life(&expiry)).await?,
            Ok(Ok(Looked::Later(due))) => put_off(env, &expiry, due).await?,
            Ok(Err(error)) => {
                tracing::warn!(%error, life = life(&expiry), "what is stored of the life is removed later");
                put_off_failed(env, &expiry, now).await?;
            }
            Err(_) => {
                tracing::warn!(
                    life = life(&expiry),
                    "the removal of the life takes too long; it goes on later"
                );
                put_off_failed(env, &expiry, now).await?;
            }
        }
    }
    Ok(removed)
}

/// Returns the wait after a failed look that came after so many others.
fn wait(failures: u32) -> Millis {
    let doubled = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
    Millis(FIRST_WAIT_MS.saturating_mul(doubled).min(LONGEST_WAIT_MS))
}

/// The outcome of a look at a life that is due.
enum Looked {
    /// Its items and objects are removed.
    Removed,
    /// Nothing is removed any more.
    Kept,
    /// It is to be looked at again then.
    Later(Timestamp),
}

fn life(expiry: &Expiry) -> String {
    id::life(&expiry.kind, &expiry.name, &expiry.uid)
}

async fn put_off(env: &Env, expiry: &Expiry, due: Timestamp) -> Result<(), FlowError> {
    Ok(env.store.put_expiry(&Expiry { due, failures: 0, ..expiry.clone() }).await?)
}

async fn put_off_failed(env: &Env, expiry: &Expiry, now: Timestamp) -> Result<(), FlowError> {
    let due = now.plus(wait(expiry.failures));
    let failures = expiry.failures.saturating_add(1);
    Ok(env.store.put_expiry(&Expiry { due, failures, ..expiry.clone() }).await?)
}

/// Returns whether the run of `facts` may have been removed, by this instance or another one.
pub(crate) fn is_due(env: &Env, facts: &RunFacts) -> bool {
    env.settings.retention.is_some_and(|retention| facts.started.plus(retention) <= env.now())
}

/// Returns whether `run` was removed, or its removal has begun.
///
/// # Errors
/// The store's.
pub(crate) async fn is_removed(env: &Env, run: &Run) -> Result<bool, FlowError> {
    let facts = &run.facts;
    if !is_due(env, facts) {
        return Ok(false);
    }
    if env.store.read_root(&run.id).await?.is_none() {
        env.forget_run(&run.id);
        return Ok(true);
    }
    let target = env.store.read_target(&facts.kind, &facts.name).await?;
    Ok(target.is_some_and(|target| target.uid == facts.uid && is_forgotten(&target)))
}

/// Returns whether what is stored of the life of a gone target is being removed, or was. Such a target has no plan.
pub(crate) fn is_forgotten(target: &TargetHead) -> bool {
    target.phase == TargetPhase::Gone && target.plan.is_empty()
}

async fn look(env: &Env, store: &dyn Expiries, expiry: &Expiry, now: Timestamp) -> Result<Looked, FlowError> {
    let Some(retention) = env.settings.retention else { return Ok(Looked::Kept) };
    let named = env.store.read_target(&expiry.kind, &expiry.name).await?;
    if let Some(target) = &named {
        if target.waiting.as_ref().is_some_and(|waiting| waiting.uid == expiry.uid) {
            return Ok(Looked::Later(now.plus(AGAIN)));
        }
        if target.uid == expiry.uid {
            let due = match (target.phase, target.list()) {
                (TargetPhase::Gone, TargetList::Gone) => target.since.plus(retention),
                _ => now.plus(AGAIN),
            };
            if due > now {
                return Ok(Looked::Later(due));
            }
        }
    }
    // Another life of the name, or no item, means that this life is gone: only a gone target is replaced or removed.
    let own = named.filter(|target| target.uid == expiry.uid);
    let plan = match remains(env, expiry).await? {
        Remains::Nothing(plan) => plan,
        Remains::Open => return Ok(Looked::Later(now.plus(AGAIN))),
        Remains::Possible => {
            tracing::warn!(life = life(expiry), "something of the life may exist; its records are kept");
            return Ok(Looked::Later(now.plus(retention)));
        }
    };
    remove(env, store, expiry, own, plan.as_deref()).await
}

/// The items and objects of a life that is gone.
enum Remains {
    /// Only stored data, and the plan if there is a run.
    Nothing(Option<Arc<Loaded>>),
    /// A run that is not closed.
    Open,
    /// Something that an undo has not removed.
    Possible,
}

async fn remains(env: &Env, expiry: &Expiry) -> Result<Remains, FlowError> {
    let mut has_run = false;
    for moment in Moment::ALL {
        let run = RunId::new(&life(expiry), expiry.generation, moment);
        match env.store.read_root(&run).await? {
            Some(root) if root.head.phase != RunPhase::Closed => return Ok(Remains::Open),
            Some(_) => has_run = true,
            None => {}
        }
    }
    // A life that never ran, or whose removal goes on: its plan may be removed already.
    if !has_run {
        return Ok(Remains::Nothing(None));
    }
    let target = TargetHead {
        generation: expiry.generation,
        plan: expiry.plan.clone(),
        ..TargetHead::new(&expiry.kind, &expiry.name, &expiry.uid, env.now())
    };
    let loaded = env.plan(&expiry.plan).await?;
    let is_over = existing::existing(env, &target, &loaded).await?.is_empty();
    Ok(if is_over { Remains::Nothing(Some(loaded)) } else { Remains::Possible })
}

fn has_scripts(plan: &Loaded, moment: Moment) -> bool {
    let mut units = plan.event(moment).into_iter().flat_map(|(event, _)| &event.units);
    units.any(|unit| !matches!(unit.work, Work::Webhook(_)))
}

async fn remove(
    env: &Env,
    store: &dyn Expiries,
    expiry: &Expiry,
    own: Option<TargetHead>,
    plan: Option<&Loaded>,
) -> Result<Looked, FlowError> {
    let life = life(expiry);
    // The target first: from then on no late success gives it back to a run, whose items may be gone.
    if let Some(seen) = own.filter(|target| !target.plan.is_empty()) {
        let target = TargetHead { plan: String::new(), version: seen.version + 1, ..seen.clone() };
        let transition = Transition { target, seen: Some(seen.version), run: None, tombstone: None };
        if !env.store.move_target(&transition).await? {
            return Ok(Looked::Later(env.now().plus(AGAIN)));
        }
    }
    // Setup runs first: as long as one is there, the teardown that proves its undos is there too.
    for moment in Moment::ALL {
        let run = RunId::new(&life, expiry.generation, moment);
        // Logs are written beside records or without them, so that no item tells of all.
        if plan.is_some_and(|plan| has_scripts(plan, moment)) {
            store.delete_objects(&run).await?;
        }
        store.delete_run(&run).await?;
        env.forget_run(&run);
    }
    if !expiry.plan.is_empty() {
        store.release_plan(&expiry.plan, &life).await?;
        env.forget_plan(&expiry.plan);
    }
    store.delete_expiry(&life).await?;
    tracing::info!(life, "what was stored of the life is removed");
    Ok(Looked::Removed)
}
