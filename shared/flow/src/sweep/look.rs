//! A look at one due run: the tries to send, the tries whose time is up, and the time of the next look.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_engine::follow::{in_flight, outcome};
use ebb_engine::{Attempt, Event, Head, Millis, RunPhase, Timestamp, Unit, View, accept};
use ebb_store::{Due, Patched, RunHead};
use ebb_wire::id::RunId;

use super::place::{Entered, Place};
use super::tries::{Look, expire};
use super::{LONGEST_HINT, When};
use crate::breaker;
use crate::dispatch::{self, Try};
use crate::drive::{Behalf, Work, drive, drive_for};
use crate::env::Env;
use crate::error::FlowError;
use crate::inputs::Memory;
use crate::ports::Message;
use crate::records;
use crate::results;
use crate::run::{self, Run};
use crate::settle;
use crate::switch::{self, Rule};

/// How often a run is looked at again at once because it changed meanwhile.
const LOOKS: usize = 4;
/// The wait of a run that others change all the time, and of one whose clusters could not be asked in time.
const BUSY_WAIT: Millis = Millis(5_000);

/// Looks at one run. A hint that comes before the run is due finds nothing to do: each wake-up has its own.
///
/// # Errors
/// The store's; the run is due again.
pub async fn sweep_run(env: &Env, id: &RunId, when: When) -> Result<(), FlowError> {
    look_at(env, id, when, &mut Place::alone(env)).await
}

/// Looks at a run from a place of a sweep. One that cannot be dealt with is due again later.
#[tracing::instrument(name = "look", skip_all, fields(run = %id))]
pub(super) async fn look_at<'a>(
    env: &'a Env,
    id: &RunId,
    when: When,
    place: &mut Place<'a>,
) -> Result<(), FlowError> {
    let due = Due::Run(id.clone());
    let mut when = when;
    for _ in 0..LOOKS {
        match Box::pin(once(env, id, when, place)).await {
            Ok(Looked::Done) => {
                env.warm.failing.ended(&due);
                return Ok(());
            }
            Ok(Looked::Changed) => {}
            // This process may have requests under way now.
            Ok(Looked::Acted) => when = When::Due,
            Err(error) => {
                put_off(env, id, env.warm.failing.wait(&due, error.is_retryable())).await;
                return Err(error);
            }
        }
    }
    put_off(env, id, BUSY_WAIT).await;
    Ok(())
}

/// Makes a run whose look failed due again after `wait`, even if the run has changed since. It changes only the due time.
pub(super) async fn put_off(env: &Env, id: &RunId, wait: Millis) {
    if !switch::holds(Rule::FailedLookIsDue) {
        return;
    }
    if let Err(error) = postpone(env, id, wait).await {
        tracing::warn!(run = %id, %error, "the run stays due");
    }
}

async fn postpone(env: &Env, id: &RunId, wait: Millis) -> Result<(), FlowError> {
    let mut seen = env.store.read_root(id).await?.and_then(|root| root.head.due);
    for _ in 0..crate::ATTEMPTS {
        let now = env.now();
        let Some(due) = seen.filter(|&due| due <= now) else { return Ok(()) };
        let next = now.plus(wait);
        match env.store.patch_run(id, &accept(Event::Postponed { seen: due, next })).await? {
            Patched::Written(_) => {
                dispatch::hint(env, id, next).await;
                return Ok(());
            }
            Patched::Refused(image) => seen = image.and_then(|image| image.head.due),
        }
    }
    Ok(())
}

/// The outcome of a look at a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// The run waits, is over, or another invocation takes care of it.
    Done,
    /// The run has changed since it was read. Nothing was done.
    Changed,
    /// During the look, another write made the run due earlier.
    Acted,
}

async fn once<'a>(env: &'a Env, id: &RunId, when: When, place: &mut Place<'a>) -> Result<Looked, FlowError> {
    let heads = env.store.read_run(id).await?;
    let Some(RunHead { head: root, facts: Some(facts), .. }) = heads.first().cloned() else {
        return Ok(Looked::Done);
    };
    let stops = root.phase == RunPhase::Stopping;
    let asleep = when == When::Due && root.due.is_some_and(|due| due > env.now());
    if root.phase == RunPhase::Closed || (asleep && !stops) {
        return Ok(Looked::Done);
    }
    let run = Run::of(env, id, facts).await?;
    let view = View::whole(run.graph(), run::heads(heads));
    let open = in_flight(run.graph(), &view);
    let clusters = clusters(env, &run, &open);
    if place.enter(env, clusters.clone()).await == Entered::Later {
        return Ok(Looked::Changed);
    }
    if place.is_late(env) {
        let waits = match open.iter().all(|(unit, _)| run.is_relayed(*unit)) {
            true => silent_until(env, &clusters),
            false => None,
        };
        return later(env, id, &root, waits, when).await;
    }
    if stops {
        if let Some(work) = settle::settle(env, &run, &view).await? {
            drive(env, work).await?;
        }
        return Ok(Looked::Done);
    }
    let memory = Memory::default();
    let epoch = run::epoch(&view);
    if open.is_empty() {
        drive(env, Work { run, epoch, ready: Vec::new(), over: Some(outcome(&view)), memory }).await?;
        return Ok(Looked::Done);
    }
    let units: Vec<Unit> = open.iter().map(|(unit, _)| *unit).collect();
    let records = records::of_open(env, &run, &units).await?;
    let now = env.now();
    let mut look = Look::new(now, when, now.plus(interval(env, &run, &view)));
    if !switch::holds(Rule::RearmAfterActing) {
        rearm(env, id, &root, look.next).await?;
    }
    let mut progress = results::Progress::default();
    for (unit, attempt) in open {
        let this = Try { unit, attempt, epoch };
        if let Some(result) = look.judge(env, &run, this, &records) {
            // Recorded, and its writer died before the head knew.
            add(&mut progress, results::resume(env, &run, this, &result, &memory).await?);
        }
    }
    look.begin(env, &run).await?;
    add(&mut progress, expire(env, &run, &memory, &mut look).await?);
    let behalf = Behalf {
        unstarted: look.unstarted.clone(),
        again: now.plus(env.settings.first_look),
        is_slice: false,
    };
    let mut ready = look.sends(env, &run);
    ready.append(&mut progress.ready);
    let wake = drive_for(env, Work { run, epoch, ready, over: progress.over, memory }, &behalf).await?;
    wake.into_iter().for_each(|at| look.not_before(at));
    rearm(env, id, &root, look.next).await
}

fn add(all: &mut results::Progress, more: results::Progress) {
    all.ready.extend(more.ready);
    all.over = all.over.or(more.over);
}

/// The clusters where units may be.
fn clusters(env: &Env, run: &Run, units: &[(Unit, Attempt)]) -> BTreeSet<String> {
    let relayed = units.iter().map(|(unit, _)| *unit);
    let relayed = relayed.filter(|&unit| run.is_relayed(unit));
    let named: BTreeSet<Option<&str>> = relayed.map(|unit| run.cluster(unit)).collect();
    named.into_iter().map(|cluster| breaker::name(env, cluster)).collect()
}

/// Returns when the first of `clusters` is asked again; `None` if one of them may be asked now.
fn silent_until(env: &Env, clusters: &BTreeSet<String>) -> Option<Timestamp> {
    let times: Option<Vec<_>> = clusters.iter().map(|cluster| breaker::open_until(env, cluster)).collect();
    times?.into_iter().min()
}

/// Leaves a run to a later look, because too little time is left to wait for its clusters. `asked`: nothing of the run can
/// be done before that.
async fn later(
    env: &Env,
    id: &RunId,
    root: &Head,
    asked: Option<Timestamp>,
    when: When,
) -> Result<Looked, FlowError> {
    let soonest = env.now().plus(BUSY_WAIT);
    let next = asked.map_or(soonest, |at| at.max(soonest));
    if when == When::Anyway {
        // The look that is due then would take what a dead sender has left for what is under way.
        let wait = Duration::from_millis(next.since(env.now()).0).min(LONGEST_HINT);
        env.queue.send(Message::Recover(id.clone()), wait).await;
    }
    if root.due.is_none_or(|due| due > env.now()) {
        return Ok(Looked::Done);
    }
    rearm(env, id, root, next).await
}

/// Looks at one try whose time may be up.
///
/// # Errors
/// The store's; the deadline is found when the run is due.
#[tracing::instrument(name = "look", skip_all, fields(run = %id))]
pub async fn sweep_unit(env: &Env, id: &RunId, unit: Unit, attempt: Attempt) -> Result<(), FlowError> {
    let Some(run) = Run::load(env, id).await? else { return Ok(()) };
    let view = run.look(env).await?;
    let running = view.root().is_some_and(|root| root.phase == RunPhase::Running);
    if !running || view.status(unit) != ebb_engine::Status::Open(attempt) {
        return Ok(());
    }
    let records = records::of_open(env, &run, &[unit]).await?;
    let epoch = run::epoch(&view);
    let memory = Memory::default();
    let this = Try { unit, attempt, epoch };
    let mut look = Look::new(env.now(), When::Due, Timestamp(u64::MAX));
    let mut progress = match look.judge(env, &run, this, &records) {
        Some(result) => results::resume(env, &run, this, &result, &memory).await?,
        None => results::Progress::default(),
    };
    look.begin(env, &run).await?;
    add(&mut progress, expire(env, &run, &memory, &mut look).await?);
    let mut sends = look.sends(env, &run);
    if progress.ready.is_empty() && progress.over.is_none() && sends.is_empty() {
        // Woken too early, or its time was given to it later than when this was sent.
        if look.next < Timestamp(u64::MAX) && look.next > look.now {
            let wait = Duration::from_millis(look.next.since(look.now).0).min(LONGEST_HINT);
            env.queue.send(Message::unit(id, unit, attempt), wait).await;
        }
        return Ok(());
    }
    progress.ready.append(&mut sends);
    drive(env, Work::of(run, epoch, progress, memory)).await
}

/// Until when an open run may be left alone: no longer than the shortest time that any of its open units may take, so
/// that a unit which starts in between is found at its deadline or soon after.
fn interval(env: &Env, run: &Run, view: &View) -> Millis {
    let open = run.graph().units().filter(|&unit| !results::is_over(view, unit));
    let shortest = open.filter_map(|unit| run.unit(unit)).map(|unit| unit.timeout_ms).min();
    let shortest = Millis(shortest.unwrap_or(u64::MAX)).max(env.settings.first_look);
    shortest.min(env.settings.horizon)
}

/// Makes a run due at `next` that is due later. It changes only the due time, so that a run that is over may be closed.
async fn advance(env: &Env, id: &RunId, next: Timestamp) -> Result<(), FlowError> {
    if let Patched::Written(_) = env.store.patch_run(id, &accept(Event::Advanced { due: next })).await? {
        dispatch::hint(env, id, next).await;
    }
    Ok(())
}

/// Makes the run due at `next`, unless its due time has changed since it was read.
async fn rearm(env: &Env, id: &RunId, seen: &Head, next: Timestamp) -> Result<Looked, FlowError> {
    let Some(due) = seen.due else { return Ok(Looked::Done) };
    // A look takes its time.
    let next = next.max(env.now().plus(Millis(1)));
    let mut patch = accept(Event::Rearmed { seen: due, version: seen.version, next });
    if !switch::holds(Rule::VersionGuardsRearm) {
        patch.conditions.clear();
    }
    match env.store.patch_run(id, &patch).await? {
        Patched::Written(_) => dispatch::hint(env, id, next).await,
        // Written before, and its answer was lost.
        Patched::Refused(Some(image)) if image.head.due == Some(next) => dispatch::hint(env, id, next).await,
        Patched::Refused(Some(image)) if image.head.due == Some(due) => return Ok(Looked::Acted),
        // Another look has put it off, and does not know of what this one has begun.
        Patched::Refused(Some(image)) if image.head.due > Some(next) => advance(env, id, next).await?,
        Patched::Refused(_) => {}
    }
    Ok(Looked::Done)
}
