//! The only place where time acts: due retries, deadlines, lost dispatches, lost callbacks, times to live, outcomes
//! that were not accepted.
//!
//! The index is a hint. Each thing is read strongly, acted on, and only then made due again: two sweeps at a time do no
//! harm, and one that dies in between leaves it due.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_engine::follow::{in_flight, outcome};
use ebb_engine::retry::used;
use ebb_engine::{Attempt, Epoch, Event, Millis, RunPhase, TargetPhase, Timestamp, Unit, View, accept};
use ebb_spec::plan::UnitPlan;
use ebb_store::{Due, Mark, Note, Patched, RunHead, Transition};
use ebb_wire::id::RunId;
use ebb_wire::record::{Record, Verdict};
use ebb_wire::relay::WorkState;
use futures::StreamExt as _;

use crate::claim;
use crate::complete;
use crate::dispatch::{self, Try};
use crate::drive::{Work, drive, slice};
use crate::env::{Env, SweepStore};
use crate::error::FlowError;
use crate::finish;
use crate::inputs::Memory;
use crate::observe;
use crate::outcome::Ended;
use crate::ports::Message;
use crate::receive;
use crate::release;
use crate::results;
use crate::run::{self, Run};
use crate::settle;
use crate::switch::{self, Rule};
use crate::tell;
use crate::undo;

/// Things that one sweep looks at.
const AT_ONCE: usize = 200;
/// Of these, so many at a time. So many relays at a time are asked about one run, too.
const TOGETHER: usize = 16;
/// For how many milliseconds an invocation begins anything that may wait for a server outside: with what that takes it still
/// has to end before it is killed.
pub(crate) const BEGINS: u64 = 5_000;
/// How often a run is looked at anew because it changed meanwhile.
const LOOKS: usize = 4;
/// No hint is sent further ahead: SQS delays no message for longer, and the schedule comes by anyway.
const LONGEST_HINT: Duration = Duration::from_secs(900);
/// The deadline of what a relay does is the relay's; `sweep` steps in when the relay is this late.
const RELAY_LATE_MS: u64 = 15_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Things that it looked at.
    pub looked: usize,
    /// Things that could not be dealt with; they stay due.
    pub failed: usize,
    /// Milliseconds that the most urgent one was due for when it was found.
    pub late_ms: u64,
}

/// Whether a look has to wait until the run is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Yes.
    Due,
    /// No: whoever was sending may have died, and nothing is under way from here.
    Anyway,
}

/// Looks at everything that is due.
///
/// # Errors
/// The index cannot be asked. What fails later stays due and is counted.
pub async fn sweep(env: &Env, store: &dyn SweepStore) -> Result<Swept, FlowError> {
    let now = env.now();
    let due = store.query_due(now, AT_ONCE).await?;
    let late_ms = due.first().map_or(0, |(first, _)| now.0.saturating_sub(first.0));
    let mut swept = Swept { late_ms, ..Swept::default() };
    // Told at once: what hangs must not hide that it is late.
    observe::swept(0, late_ms);
    // Servers that hang must not keep everybody else waiting. What is not looked at now is the first thing of the next sweep:
    // what was looked at is due later.
    let looks = due.into_iter().take_while(|_| env.now().since(now).0 < BEGINS).map(|(_, due)| async move {
        let done = match &due {
            Due::Run(run) => sweep_run(env, run, When::Due).await,
            Due::Target(kind, name) => sweep_target(env, kind, name).await,
        };
        done.inspect_err(|error| tracing::warn!(?due, %error, "stays due")).is_ok()
    });
    let mut looks = futures::stream::iter(looks).buffer_unordered(TOGETHER);
    while let Some(done) = looks.next().await {
        swept.looked += 1;
        swept.failed += usize::from(!done);
    }
    observe::swept(swept.looked, late_ms);
    Ok(swept)
}

/// Marks that a minute of the schedule has come.
///
/// # Errors
/// The store's.
pub async fn minute(env: &Env) -> Result<(), FlowError> {
    Ok(env.store.mark(Mark::Schedule, env.now()).await?)
}

/// Takes a message of the queue.
///
/// # Errors
/// The store's; the message may be delivered again.
pub async fn receive_message(env: &Env, message: &Message) -> Result<(), FlowError> {
    match message {
        Message::Run(run) => sweep_run(env, run, When::Due).await,
        Message::Recover(run) => sweep_run(env, run, When::Anyway).await,
        Message::Unit { run, unit, attempt } => sweep_unit(env, run, Unit(*unit), Attempt(*attempt)).await,
        Message::Target(kind, name) => sweep_target(env, kind, name).await,
        Message::Mark => Ok(env.store.mark(Mark::Queue, env.now()).await?),
        Message::Dispatch { run, epoch, units } => {
            let units: Vec<(Unit, Attempt)> =
                units.iter().map(|&(unit, attempt)| (Unit(unit), Attempt(attempt))).collect();
            slice(env, run, Epoch(*epoch), &units).await
        }
    }
}

/// Looks at one run. A hint that comes before the run is due finds nothing to do: each wake-up has its own.
///
/// # Errors
/// The store's; the run stays due.
#[tracing::instrument(name = "look", skip_all, fields(run = %id))]
pub async fn sweep_run(env: &Env, id: &RunId, when: When) -> Result<(), FlowError> {
    let mut when = when;
    for _ in 0..LOOKS {
        match Box::pin(sweep_once(env, id, when)).await? {
            Looked::Done => return Ok(()),
            Looked::Changed => {}
        }
        // What is under way now may be from here.
        when = When::Due;
    }
    Ok(())
}

/// What became of a look at a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// The run sleeps, is over, or somebody else sees to it.
    Done,
    /// While it was looked at, somebody wanted it to be looked at earlier than was known.
    Changed,
}

async fn sweep_once(env: &Env, id: &RunId, when: When) -> Result<Looked, FlowError> {
    let heads = env.store.read_run(id).await?;
    let Some(RunHead { head: root, facts: Some(facts), .. }) = heads.first().cloned() else {
        return Ok(Looked::Done);
    };
    if root.phase == RunPhase::Closed {
        return Ok(Looked::Done);
    }
    let run = Run::of(env, id, facts).await?;
    let view = View::whole(run.graph(), run::heads(heads));
    if root.phase == RunPhase::Stopping {
        if let Some(work) = settle::settle(env, &run, &view).await? {
            drive(env, work).await?;
        }
        return Ok(Looked::Done);
    }
    let now = env.now();
    if when == When::Due && root.due.is_some_and(|due| due > now) {
        return Ok(Looked::Done);
    }
    let memory = Memory::default();
    let open = in_flight(run.graph(), &view);
    let epoch = run::epoch(&view);
    if open.is_empty() {
        drive(env, Work { run, epoch, ready: Vec::new(), over: Some(outcome(&view)), memory }).await?;
        return Ok(Looked::Done);
    }
    let units: Vec<Unit> = open.iter().map(|(unit, _)| *unit).collect();
    let found = env.store.read_records(id, &units).await?;
    let records: Records =
        found.into_iter().map(|(unit, attempt, record)| ((unit, attempt), record)).collect();
    let mut look = Look::new(now, when, now.plus(interval(env, &run, &view)));
    if !switch::holds(Rule::RearmAfterActing) {
        rearm(env, id, &root, look.next).await?;
    }
    let mut over = None;
    for (unit, attempt) in open {
        let this = Try { unit, attempt, epoch };
        let progress = look_at(env, &run, this, &records, &memory, &mut look).await?;
        look.work.extend(progress.ready);
        over = over.or(progress.over);
    }
    let progress = expire(env, &run, &memory, &mut look).await?;
    look.work.extend(progress.ready);
    over = over.or(progress.over);
    drive(env, Work { run, epoch, ready: look.work, over, memory }).await?;
    rearm(env, id, &root, look.next).await
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
    let found = env.store.read_records(id, &[unit]).await?;
    let records: Records =
        found.into_iter().map(|(unit, attempt, record)| ((unit, attempt), record)).collect();
    let epoch = run::epoch(&view);
    let memory = Memory::default();
    let this = Try { unit, attempt, epoch };
    let mut look = Look::new(env.now(), When::Due, Timestamp(u64::MAX));
    let mut progress = look_at(env, &run, this, &records, &memory, &mut look).await?;
    if !look.expired.is_empty() {
        progress = expire(env, &run, &memory, &mut look).await?;
    }
    if progress.ready.is_empty() && progress.over.is_none() && look.work.is_empty() {
        // Woken too early, or its time was given to it later than when this was sent.
        if look.next < Timestamp(u64::MAX) && look.next > look.now {
            let wait = Duration::from_millis(look.next.since(look.now).0).min(LONGEST_HINT);
            env.queue.send(Message::unit(id, unit, attempt), wait).await;
        }
        return Ok(());
    }
    progress.ready.append(&mut look.work);
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

/// Makes the run due at `next`, unless somebody has changed when it is due since it was seen.
async fn rearm(env: &Env, id: &RunId, seen: &ebb_engine::Head, next: Timestamp) -> Result<Looked, FlowError> {
    let Some(due) = seen.due else { return Ok(Looked::Done) };
    let mut patch = accept(Event::Rearmed { seen: due, version: seen.version, next });
    if !switch::holds(Rule::VersionGuardsRearm) {
        patch.conditions.clear();
    }
    match env.store.patch_run(id, &patch).await? {
        Patched::Written(_) => {
            let wait = Duration::from_millis(next.since(env.now()).0);
            if wait < LONGEST_HINT {
                env.queue.send(Message::Run(id.clone()), wait).await;
            }
            Ok(Looked::Done)
        }
        Patched::Refused(Some(image)) if image.head.due == Some(due) => Ok(Looked::Changed),
        Patched::Refused(_) => Ok(Looked::Done),
    }
}

type Records = BTreeMap<(Unit, Attempt), Record>;

/// What a look at one run has found so far.
struct Look {
    now: Timestamp,
    when: When,
    work: Vec<(Unit, Attempt)>,
    /// Tries whose time is up.
    expired: Vec<Try>,
    next: Timestamp,
}

impl Look {
    fn new(now: Timestamp, when: When, next: Timestamp) -> Self {
        Self { now, when, work: Vec::new(), expired: Vec::new(), next }
    }

    fn not_before(&mut self, at: Timestamp) {
        self.next = self.next.min(at);
    }
}

/// Looks at one unit that may be running.
async fn look_at(
    env: &Env,
    run: &Run,
    this: Try,
    records: &Records,
    memory: &Memory,
    look: &mut Look,
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
    let waits = waits_until(this, records);
    if let Some(wait) = waits.filter(|&until| until > look.now) {
        look.not_before(wait);
        return Ok(nothing);
    }
    let is_relayed = unit.work.is_relayed();
    let put_off = record.and_then(|record| record.again).map(Timestamp);
    let begun = match switch::holds(Rule::DeadlineFromStart) {
        true => record.and_then(complete::begun),
        false => Some(run.facts.started),
    };
    let Some(begun) = begun else {
        if let Some(at) = put_off.filter(|&at| at > look.now) {
            look.not_before(at);
            return Ok(nothing);
        }
        // From now on its time runs.
        let before =
            env.store.note_record(&run.id, this.unit, this.attempt, &Note::Started(look.now)).await?;
        look.not_before(look.now.plus(Millis(unit.timeout_ms)));
        let first = before.started.is_none() && before.result.is_none();
        let says_so = record.is_some_and(|record| record.beat.is_some());
        // Sent or not, nobody knows. Asking a relay is harmless; a request may be under way right now, except that of
        // a try which only `sweep` begins.
        let begins_here = waits.is_some() || put_off.is_some() || is_reopened(unit, this, records);
        let only_here = first && (look.when == When::Anyway || begins_here);
        if !says_so && (is_relayed || only_here) {
            look.work.push((this.unit, this.attempt));
        } else if !says_so {
            look.not_before(look.now.plus(env.settings.sending()));
        }
        return Ok(nothing);
    };
    observe::begun(&run.id, this, begun);
    let record = record.cloned().unwrap_or_default();
    let deadline = begun.plus(Millis(unit.timeout_ms));
    let deadline = if is_relayed { deadline.plus(Millis(RELAY_LATE_MS)) } else { deadline };
    if deadline <= look.now {
        look.expired.push(this);
        return Ok(nothing);
    }
    look.not_before(deadline);
    // What was put off before it began is not asked again.
    match put_off.filter(|&at| at > begun) {
        Some(again) if again > look.now => look.not_before(again),
        // An accepted request is never sent again, nor one that was accepted when it was asked again: its callback or
        // the deadline decides.
        again if record.accepted.is_some_and(|at| again.is_none_or(|again| again.0 <= at)) => {}
        Some(_) => repeat(env, run, this, &record, look).await?,
        None if is_relayed || look.when == When::Anyway => repeat(env, run, this, &record, look).await?,
        None => {
            let answered = begun.plus(env.settings.sending());
            if answered <= look.now {
                repeat(env, run, this, &record, look).await?;
            } else {
                look.not_before(answered);
            }
        }
    }
    Ok(nothing)
}

/// Has a try that has begun asked for again. Relays know works by their names; a webhook is posted by one sweep at a time.
async fn repeat(env: &Env, run: &Run, this: Try, record: &Record, look: &mut Look) -> Result<(), FlowError> {
    let is_relayed = run.unit(this.unit).is_some_and(|unit| unit.work.is_relayed());
    let leased = record.leased.map(Timestamp).filter(|&until| until > look.now);
    match leased.filter(|_| !is_relayed && look.when == When::Due) {
        Some(until) => look.not_before(until),
        None if is_relayed || claim::lease(env, run, this, record).await? => {
            look.work.push((this.unit, this.attempt));
        }
        None => look.not_before(look.now.plus(env.settings.sending())),
    }
    Ok(())
}

/// When a try may start that follows a failed one.
fn waits_until(this: Try, records: &Records) -> Option<Timestamp> {
    let before = Attempt(this.attempt.0.checked_sub(1)?);
    let next = records.get(&(this.unit, before))?.result.as_ref()?.next?;
    Some(Timestamp(next))
}

/// Whether the try is the first one since its unit was reopened. That of an undo which goes on with what else is to be
/// taken away is numbered alike, but sent by whoever recorded the one before it.
fn is_reopened(unit: &UnitPlan, this: Try, records: &Records) -> bool {
    let tries = unit.retry.attempts.max(1);
    let begins_block = this.attempt > Attempt::FIRST && used(this.attempt, tries) == 1;
    let block_before = Attempt(this.attempt.0.saturating_sub(tries).max(1));
    let before = records.range((this.unit, block_before)..(this.unit, this.attempt)).next_back();
    let goes_on = before
        .and_then(|(_, record)| record.result.as_ref())
        .is_some_and(|result| result.verdict == Verdict::Succeeded && result.next.is_some());
    begins_block && !goes_on
}

/// Ends the tries whose time is up. Relays are asked beside each other: one that gives no answer must not keep the others'
/// tries alive.
async fn expire(
    env: &Env,
    run: &Run,
    memory: &Memory,
    look: &mut Look,
) -> Result<results::Progress, FlowError> {
    let begun = env.now();
    let killed = std::mem::take(&mut look.expired).into_iter().map(|this| async move {
        let known = if env.now().since(begun).0 < BEGINS { killed(env, run, this).await } else { None };
        (this, known)
    });
    let killed: Vec<_> = futures::stream::iter(killed).buffered(TOGETHER).collect().await;
    let mut all = results::Progress::default();
    for (this, ended) in killed {
        let (Some(unit), Some(ended)) = (run.unit(this.unit), ended) else {
            look.not_before(look.now.plus(Millis(RELAY_LATE_MS)));
            continue;
        };
        let ended = complete::checked(run, unit, ended);
        let more = match unit.undoes.is_empty() {
            true => 0,
            false => undo::more(env, run, unit, this.unit, memory).await?,
        };
        let progress = results::conclude(env, run, this, &ended, more, memory).await?;
        all.ready.extend(progress.ready);
        all.over = all.over.or(progress.over);
    }
    Ok(all)
}

/// How a try ends whose time is up: killed first where that can be done. `None`: its relay does not say.
async fn killed(env: &Env, run: &Run, this: Try) -> Option<Ended> {
    let unit = run.unit(this.unit)?;
    let timed_out = Ended::Failed(settle::timed_out(unit.timeout_ms / 1000));
    if !unit.work.is_relayed() {
        return Some(timed_out);
    }
    let name = dispatch::work_name(run, this.unit, this.attempt);
    match env.relay.cancel(run.cluster(this.unit), &name, env.settings.grace).await {
        Ok(WorkState::Ended(callback)) => Some(complete::ended(*callback).unwrap_or(timed_out)),
        Ok(WorkState::Tombstoned) | Err(crate::ports::RelayError::Refused(_)) => Some(timed_out),
        Ok(_) | Err(crate::ports::RelayError::Unreachable(_)) => None,
    }
}

/// Looks at one target: tells its outcome, ends its time to live, sees its stop through.
///
/// # Errors
/// The store's; the target stays due.
#[tracing::instrument(name = "look", skip_all, fields(kind, name))]
pub async fn sweep_target(env: &Env, kind: &str, name: &str) -> Result<(), FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    if target.tell.is_some()
        && let Err(error) = tell::tell(env, &target).await
    {
        // What cannot be told must not keep the target from its end.
        tracing::warn!(kind, name, %error, "the outcome could not be told");
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
    // The first look at a target that is gone is that which tells it.
    let releases = target.phase == TargetPhase::Gone && !target.release.is_empty();
    if releases || target.due.is_some_and(|due| due <= env.now()) {
        let mut after = target.clone();
        after.release = release::release(env.relay.as_ref(), &target).await;
        after.due = finish::due(env, &after);
        after.version += 1;
        let transition = Transition { target: after, seen: Some(target.version), run: None, tombstone: None };
        env.store.move_target(&transition).await?;
    }
    Ok(())
}
