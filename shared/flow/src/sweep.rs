//! The only place where time acts: due retries, deadlines, lost dispatches, lost callbacks, times to live, outcomes
//! that were not accepted.
//!
//! The index is a hint. Each thing is read strongly, acted on, and only then made due again: two sweeps at a time do no
//! harm, and one that dies in between leaves it due.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_engine::follow::{in_flight, outcome};
use ebb_engine::{Attempt, Epoch, Event, Millis, RunPhase, TargetPhase, Timestamp, Unit, View, accept};
use ebb_spec::plan::Work as Kind;
use ebb_store::{Due, Note, RunHead, Transition};
use ebb_wire::id::RunId;
use ebb_wire::record::{Record, Verdict};
use ebb_wire::relay::WorkState;

use crate::complete;
use crate::dispatch::{self, Try};
use crate::drive::{Work, drive, slice};
use crate::env::{Env, SweepStore};
use crate::error::FlowError;
use crate::finish;
use crate::inputs::Memory;
use crate::outcome::Ended;
use crate::ports::Message;
use crate::receive;
use crate::results;
use crate::run::{self, Run};
use crate::settle;
use crate::tell;

/// Things that one sweep looks at.
const AT_ONCE: usize = 200;
/// A pod's deadline is its relay's; `sweep` steps in when the relay is this late.
const RELAY_LATE_MS: u64 = 15_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Things that it looked at.
    pub looked: usize,
    /// Things that could not be dealt with; they stay due.
    pub failed: usize,
}

/// Looks at everything that is due.
///
/// # Errors
/// The index cannot be asked. What fails later stays due and is counted.
pub async fn sweep(env: &Env, store: &dyn SweepStore) -> Result<Swept, FlowError> {
    let mut swept = Swept::default();
    for (_, due) in store.query_due(env.now(), AT_ONCE).await? {
        swept.looked += 1;
        let done = match &due {
            Due::Run(run) => sweep_run(env, run).await,
            Due::Target(kind, name) => sweep_target(env, kind, name).await,
        };
        if let Err(error) = done {
            swept.failed += 1;
            tracing::warn!(?due, %error, "stays due");
        }
    }
    Ok(swept)
}

/// Takes a message of the queue.
///
/// # Errors
/// The store's; the message may be delivered again.
pub async fn receive_message(env: &Env, message: &Message) -> Result<(), FlowError> {
    match message {
        Message::Run(run) => sweep_run(env, run).await,
        Message::Target(kind, name) => sweep_target(env, kind, name).await,
        Message::Dispatch { run, epoch, units } => {
            let units: Vec<(Unit, Attempt)> =
                units.iter().map(|&(unit, attempt)| (Unit(unit), Attempt(attempt))).collect();
            slice(env, run, Epoch(*epoch), &units).await
        }
    }
}

/// Looks at one run.
///
/// # Errors
/// The store's; the run stays due.
pub async fn sweep_run(env: &Env, id: &RunId) -> Result<(), FlowError> {
    let heads = env.store.read_run(id).await?;
    let Some(RunHead { head: root, facts: Some(facts), .. }) = heads.first().cloned() else { return Ok(()) };
    if root.phase == RunPhase::Closed {
        return Ok(());
    }
    let run = Run::of(env, id, facts).await?;
    let view = View::whole(run.graph(), run::heads(heads));
    if root.phase == RunPhase::Stopping {
        if let Some(work) = settle::settle(env, &run, &view).await? {
            drive(env, work).await?;
        }
        return Ok(());
    }
    let now = env.now();
    let mut looked = Looked { now, work: Vec::new(), next: now.plus(interval(env, &run, &view)) };
    let memory = Memory::default();
    let open = in_flight(run.graph(), &view);
    let epoch = run::epoch(&view);
    if open.is_empty() {
        drive(env, Work { run, epoch, ready: Vec::new(), over: Some(outcome(&view)), memory }).await?;
        return Ok(());
    }
    let units: Vec<Unit> = open.iter().map(|(unit, _)| *unit).collect();
    let found = env.store.read_records(id, &units).await?;
    let records: BTreeMap<(Unit, Attempt), Record> =
        found.into_iter().map(|(unit, attempt, record)| ((unit, attempt), record)).collect();
    let mut over = None;
    for (unit, attempt) in open {
        let this = Try { unit, attempt, epoch };
        let progress = look(env, &run, this, &records, &memory, &mut looked).await?;
        looked.work.extend(progress.ready);
        over = over.or(progress.over);
    }
    let next = looked.next;
    drive(env, Work { run, epoch, ready: looked.work, over, memory }).await?;
    rearm(env, id, &root, next).await
}

/// Until when an open run may be left alone: no longer than the shortest time that any of its open units may take, so
/// that a unit which starts in between is found at its deadline or soon after.
fn interval(env: &Env, run: &Run, view: &View) -> Millis {
    let open = run.graph().units().filter(|&unit| !results::is_over(view, unit));
    let shortest = open.filter_map(|unit| run.unit(unit)).map(|unit| unit.timeout_ms).min();
    let shortest = Millis(shortest.unwrap_or(u64::MAX)).max(env.settings.first_look);
    shortest.min(env.settings.horizon)
}

async fn rearm(env: &Env, id: &RunId, seen: &ebb_engine::Head, next: Timestamp) -> Result<(), FlowError> {
    let Some(due) = seen.due else { return Ok(()) };
    // Refused: somebody has made it due earlier, or it is closed.
    let event = Event::Rearmed { seen: due, version: seen.version, next };
    env.store.patch_run(id, &accept(event)).await?;
    let wait = next.since(env.now());
    if wait < Millis(900_000) {
        env.queue.send(Message::Run(id.clone()), Duration::from_millis(wait.0)).await;
    }
    Ok(())
}

/// What a sweep of one run has found so far.
struct Looked {
    now: Timestamp,
    work: Vec<(Unit, Attempt)>,
    next: Timestamp,
}

impl Looked {
    fn not_before(&mut self, at: Timestamp) {
        self.next = self.next.min(at);
    }
}

/// Looks at one unit that may be running.
async fn look(
    env: &Env,
    run: &Run,
    this: Try,
    records: &BTreeMap<(Unit, Attempt), Record>,
    memory: &Memory,
    looked: &mut Looked,
) -> Result<results::Progress, FlowError> {
    let nothing = results::Progress::default();
    let Some(unit) = run.unit(this.unit) else { return Ok(nothing) };
    let record = records.get(&(this.unit, this.attempt));
    if let Some(result) = record.and_then(|record| record.result.as_ref()) {
        // Recorded, and its writer died before the head knew.
        if result.verdict != Verdict::Cancelled {
            return results::resume(env, run, this, result, memory).await;
        }
        return Ok(nothing);
    }
    if let Some(wait) = waits_until(this, records).filter(|&until| until > looked.now) {
        looked.not_before(wait);
        return Ok(nothing);
    }
    let Some((record, begun)) = record.and_then(|record| Some((record, complete::begun(record)?))) else {
        // Sent or not, nobody knows: from now on its time runs, and sending it again asks. What says that it goes on
        // has been sent.
        env.store.note_record(&run.id, this.unit, this.attempt, &Note::Started(looked.now)).await?;
        looked.not_before(looked.now.plus(Millis(unit.timeout_ms)));
        if record.is_none_or(|record| record.beat.is_none()) {
            looked.work.push((this.unit, this.attempt));
        }
        return Ok(nothing);
    };
    let deadline = begun.plus(Millis(unit.timeout_ms));
    let is_pod = matches!(unit.work, Kind::Pod(_));
    let deadline = if is_pod { deadline.plus(Millis(RELAY_LATE_MS)) } else { deadline };
    if deadline <= looked.now {
        return expire(env, run, this, is_pod, memory, looked).await;
    }
    looked.not_before(deadline);
    match record.again.map(Timestamp) {
        Some(again) if again > looked.now => looked.not_before(again),
        // An accepted request is never sent again: its callback or the deadline decides.
        _ if record.accepted.is_some() && record.again.is_none() => {}
        _ => looked.work.push((this.unit, this.attempt)),
    }
    Ok(nothing)
}

/// When a try may start that follows a failed one.
fn waits_until(this: Try, records: &BTreeMap<(Unit, Attempt), Record>) -> Option<Timestamp> {
    let before = Attempt(this.attempt.0.checked_sub(1)?);
    let next = records.get(&(this.unit, before))?.result.as_ref()?.next?;
    Some(Timestamp(next))
}

/// A try whose time is up: killed first where that can be done.
async fn expire(
    env: &Env,
    run: &Run,
    this: Try,
    is_pod: bool,
    memory: &Memory,
    looked: &mut Looked,
) -> Result<results::Progress, FlowError> {
    let timeout = run.unit(this.unit).map_or(0, |unit| unit.timeout_ms / 1000);
    let mut ended = Ended::Failed(settle::timed_out(timeout));
    if is_pod {
        let cluster = run.loaded.plan.target.cluster.as_deref();
        let name = dispatch::work_name(run, this.unit, this.attempt);
        match env.relay.cancel(cluster, &name, env.settings.grace).await {
            Ok(WorkState::Ended(callback)) => {
                if let Some(own) = complete::ended(*callback, complete::From::Relay) {
                    ended = own;
                }
            }
            Ok(WorkState::Tombstoned) | Err(crate::ports::RelayError::Refused(_)) => {}
            Ok(_) | Err(crate::ports::RelayError::Unreachable(_)) => {
                looked.not_before(looked.now.plus(Millis(RELAY_LATE_MS)));
                return Ok(results::Progress::default());
            }
        }
    }
    let ended = match run.unit(this.unit) {
        Some(unit) => complete::checked(unit, ended),
        None => ended,
    };
    results::conclude(env, run, this, &ended, 0, memory).await
}

/// Looks at one target: tells its outcome, ends its time to live, sees its stop through.
///
/// # Errors
/// The store's; the target stays due.
pub async fn sweep_target(env: &Env, kind: &str, name: &str) -> Result<(), FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    if target.tell.is_some() {
        tell::tell(env, kind, name).await?;
    }
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    let alive = matches!(target.phase, TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Failed);
    if alive && target.expires.is_some_and(|at| at <= env.now()) {
        tracing::info!(kind, name, "its time to live is over");
        receive::delete(env, kind, name, &target.uid).await?;
        return Ok(());
    }
    if target.phase == TargetPhase::Stopping
        && let Some(moment @ (ebb_engine::Moment::BeforeReady | ebb_engine::Moment::AfterReady)) =
            target.moment
    {
        let life = ebb_wire::id::life(kind, name, &target.uid);
        let run = RunId::new(&life, target.generation, moment);
        if let Some(work) = settle::stop(env, &run).await? {
            drive(env, work).await?;
        }
    }
    if target.phase == TargetPhase::Gone
        && let Some(work) = finish::promote(env, kind, name).await?
    {
        drive(env, work).await?;
    }
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    if target.due.is_some_and(|due| due <= env.now()) {
        let mut after = target.clone();
        after.due = finish::due(env, &target);
        after.version += 1;
        let transition = Transition { target: after, seen: Some(target.version), run: None, tombstone: None };
        env.store.move_target(&transition).await?;
    }
    Ok(())
}
