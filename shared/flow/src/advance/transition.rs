//! Ends a run: moves the target, closes the run, begins the next run, and sends the notification.

use std::sync::Arc;
use std::time::Duration;

use ebb_engine::{
    Attempt, Epoch, HeadState, HookSet, PhaseChange, RunEvent, RunOutcome, RunPhase, accept, in_flight, target,
};
use ebb_protocol::{EventRef, Hook, Millis, RunId, TargetKey, TargetPhase, Timestamp};
use ebb_store::{
    NewRun, NotificationState, PatchResult, PendingCreation, ReceiverState, RunFacts, TargetEvents, TargetHead,
    TargetTransition,
};

use crate::advance::{Continuation, RunEnd, ended_run, reopen};
use crate::instance::{change_watch, due, history, notify, outbox, retention, secrets};
use crate::run::cause;
use crate::run::removal::evidence;
use crate::{CompiledPlan, Counter, Env, FlowError, FlowResult, QueueMessage, Run, loaded_run, telemetry};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationSender {
    /// The invocation that ends the run.
    Invocation,
    /// The invocation that receives a queue message.
    Queue,
}

/// Ends `run`, in which no unit can run. `known` is its target as this invocation has written it. `sender` delivers the
/// notification. Returns the run that has begun, and true if none has begun and an update waits.
///
/// The target moves before the run is closed. After a crash in between, `sweep` finds the open run and the moved
/// target, and closes the run.
pub async fn end_run(
    env: &Env,
    run: &Run,
    RunEnd { outcome, head }: RunEnd,
    (known, sender): (Option<Box<TargetHead>>, NotificationSender),
) -> FlowResult<(Option<Continuation>, bool)> {
    match outcome {
        Some(RunOutcome::Succeeded) => tracing::debug!(run = %run.id, "run ended"),
        Some(outcome) => tracing::info!(run = %run.id, ?outcome, "run ended"),
        None => tracing::info!(run = %run.id, "run cancelled"),
    }
    let known = if Box::pin(ended_run::report(env, run, outcome)).await? { None } else { known };
    let moved = move_target(env, run, known, |engine, hooks| match (engine.phase, run.hook()) {
        // The run was cancelled, or the target was stopped while the run was ending, so there is nothing to cancel.
        (TargetPhase::Stopping, hook) if !hook.is_teardown() && engine.hook == Some(hook) => {
            Some(target::teardown(target::TeardownStage::cancelled_in(hook), hooks))
        }
        (_, hook) => target::run_ended(engine, hook, outcome?, hooks),
    })
    .await?;
    if moved.is_some() {
        telemetry::run_ended(run, outcome, env.now());
    }
    let head = match head.filter(|_| moved.as_ref().is_some_and(|(moved, _)| stays_done(run, outcome, moved))) {
        Some(head) => Some(*head),
        None => {
            // The open units of a cancelled run never start.
            let is_over = |head: &HeadState| outcome.is_none() || in_flight(run.graph(), head).is_empty();
            Some(run.read_head(env).await?).filter(is_over)
        }
    };
    let mut held = None;
    if let Some(head) = &head {
        if moved.is_none() && run.hook().is_teardown() {
            // The run may have undone a late success of an ended instance.
            secrets::schedule_late_release(env, run).await?;
        }
        match holds_notification(env, run, moved.as_ref().map(|(moved, _)| moved)).await? {
            true => held = schedule_notification(env, &run.id, head).await?,
            false => due::close_seen(env, &run.id, head, None).await?,
        }
    } else {
        // A late success has reopened an undo. The run stays due, and the target moves back to it.
        reopen::restore_target(env, run, false).await?;
    }
    let Some((transition, loaded)) = moved else { return Ok((None, false)) };
    let has_pending = transition.target.pending_update.is_some();
    // Units do not wait for the platform.
    let sender = if transition.run.is_some() { NotificationSender::Queue } else { sender };
    let next = after_end(env, transition, &loaded, sender, held).await?;
    let has_pending_update = has_pending && next.is_none();
    Ok((next, has_pending_update))
}

/// Returns true if all units of a run are done or tolerated, and nothing reopens one: a late success reopens undos only, and a
/// retry failed units of a closed run only. The close fails if the run has changed in another way since its head was read.
fn stays_done(run: &Run, outcome: Option<RunOutcome>, moved: &TargetTransition) -> bool {
    outcome == Some(RunOutcome::Succeeded)
        && moved.target.phase == TargetPhase::Ready
        && run.hook_plan().units.iter().all(|unit| unit.undoes.is_empty())
}

/// Returns true if `run` stays open until the platform accepts its notification. Delivers the notification if the
/// invocation that moved the target may have ended before the delivery.
async fn holds_notification(env: &Env, run: &Run, moved: Option<&TargetTransition>) -> FlowResult<bool> {
    let facts = &run.facts;
    let held = Some(NotificationState::Held(run.hook()));
    let holds = |target: &TargetHead| target.notification == held && target.uid == facts.uid;
    if let Some(moved) = moved {
        return Ok(holds(&moved.target));
    }
    // The invocation that moved the target may have ended before the delivery, and its message may be lost.
    let target = env.store.read_target(facts.target_key()).await?;
    let Some(target) = target.filter(holds) else { return Ok(false) };
    if let Err(error) = Box::pin(notify::notify(env, &target, None)).await {
        tracing::warn!(run = %run.id, %error, "cannot deliver the notification; the run is due again");
    }
    Ok(true)
}

/// Makes an ended run due soon, in case the message for its notification is lost. Returns its head.
async fn schedule_notification(env: &Env, run: &RunId, head: &HeadState) -> FlowResult<Option<HeadState>> {
    let soon = env.now().plus(env.settings.first_sweep_delay);
    let event = match head.due {
        Some(due) if due > soon => RunEvent::WakeupAdvanced { due: soon },
        Some(seen) if seen <= env.now() => RunEvent::Postponed { seen, next: soon },
        Some(_) | None => return Ok(Some(head.clone())),
    };
    // The write is rejected if the due time has changed. The sweep at that time delivers the notification.
    Ok(match env.store.patch_run(run, &accept(event)).await? {
        PatchResult::Written(present) | PatchResult::ConditionFailed(Some(present)) => Some(present.head),
        PatchResult::ConditionFailed(None) => None,
    })
}

/// Ends the cancelled run of a stopping target, or one that had ended before the cancellation.
pub async fn end_cancelled_run(env: &Env, run: &Run) -> FlowResult<Option<Continuation>> {
    Ok(end_run(env, run, RunEnd { outcome: None, head: None }, (None, NotificationSender::Queue)).await?.0)
}

/// Moves the run's target by the change that `decide` returns for the target and the hooks of its plan. `None` means no
/// change. The first attempt decides for the `known` target: if it has another version now, nothing is written. Returns
/// the transition, with the plan that the target has.
async fn move_target(
    env: &Env,
    run: &Run,
    mut known: Option<Box<TargetHead>>,
    decide: impl Fn(&target::Target, &HookSet) -> Option<PhaseChange>,
) -> FlowResult<Option<(TargetTransition, Arc<CompiledPlan>)>> {
    let key = run.facts.target_key();
    for _ in 0..crate::ATTEMPTS {
        let (seen, is_present) = match known.take() {
            Some(target) => (*target, false),
            None => match env.store.read_target(key).await? {
                Some(target) => (target, true),
                None => return Ok(None),
            },
        };
        if !seen.is_last_run(&run.id) {
            return Ok(None);
        }
        // The target can have been updated without a run, after this one.
        let loaded = if seen.plan == run.loaded.digest { Arc::clone(&run.loaded) } else { env.plan_of(&seen).await? };
        let step = match decide(&engine_target(&seen), &loaded.hooks()) {
            Some(step) => step,
            None if is_present => return Ok(None),
            None => continue,
        };
        let seen = match step.phase {
            TargetPhase::Failed | TargetPhase::Stuck => {
                TargetHead { first_cause: Box::pin(cause::first_text(env, run)).await?, ..seen }
            }
            _ => seen,
        };
        // A deletion after the end of the run finds it closed, so that it cannot stay open for the notification.
        let was_stopped = seen.phase == TargetPhase::Stopping && !run.hook().is_teardown();
        let is_closed = was_stopped
            && step.is_reported
            && env.store.read_run(&run.id).await?.is_none_or(|present| present.head.phase == RunPhase::Closed);
        // The delivery of another notification of the run may close it at any time.
        let is_held = seen.notification == Some(NotificationState::Held(run.hook()));
        let ending = (!is_closed && !is_held).then(|| run.hook());
        let transition = transition(env, &seen, step, &loaded, (ending, None)).await?;
        if env.store.move_target(&transition).await? {
            if transition.target.phase == TargetPhase::Stuck {
                telemetry::count_for_alarm(Counter::Stuck, 1);
                tracing::warn!(kind = key.kind, name = key.name, run = %run.id, "target is stuck");
            }
            let unconfirmed = transition.target.unconfirmed;
            if unconfirmed > 0 {
                telemetry::count_for_alarm(Counter::UnconfirmedRemovals, unconfirmed.into());
                tracing::warn!(kind = key.kind, name = key.name, run = %run.id, unconfirmed, "nothing shows that resources of the target are gone");
            }
            return Ok(Some((transition, loaded)));
        }
    }
    Err(FlowError::Contended(key.to_string()))
}

/// Returns the part of a stored target that the engine uses.
pub fn engine_target(head: &TargetHead) -> target::Target {
    target::Target {
        uid: head.uid.clone(),
        source: head.source.clone(),
        generation: head.generation,
        phase: head.phase,
        hook: head.hook,
        waiting: head.waiting.as_ref().map(|waiting| target::WaitingInstance {
            uid: waiting.uid.clone(),
            generation: waiting.generation,
            source: waiting.source.clone(),
        }),
        event: head.events.waiting.first().map(|waiting| waiting.event.name),
        has_pending_update: head.pending_update.is_some(),
    }
}

/// Returns the write that moves `seen` by `step`, and the run that begins with it. `ending` is the hook whose run ends:
/// that run stays open until the platform accepts the notification, unless another run begins. The history keeps the
/// `document` that the step applies. Writes the entry of the run that begins.
pub async fn transition(
    env: &Env,
    seen: &TargetHead,
    step: PhaseChange,
    loaded: &CompiledPlan,
    (ending, document): (Option<Hook>, Option<&str>),
) -> FlowResult<TargetTransition> {
    let now = seen.change_time(env.now());
    let rules = outbox::rules(env).await?;
    let unconfirmed = match step.phase {
        TargetPhase::Gone => Box::pin(evidence::count_unconfirmed(env, seen, loaded)).await?,
        _ => 0,
    };
    let (events, start) = next_events(seen, step, loaded, now);
    let begun = TargetHead { events, ..seen.clone() };
    let mut run = start.map(|hook| NewRun {
        id: begun.run(hook),
        facts: RunFacts {
            kind: seen.kind.clone(),
            name: seen.name.clone(),
            uid: seen.uid.clone(),
            generation: seen.generation,
            plan: loaded.digest.clone(),
            routing_key: seen.routing_key.clone(),
            started: now,
            by: history::cause_of_run(seen, hook),
        },
        // The time of the change can be later than that of the clock.
        due: env.now().plus(env.settings.first_sweep_delay),
    });
    if let Some(run) = &mut run {
        while !Box::pin(history::note_run(env, seen, run, (document, &loaded.plan))).await? {
            run.facts.started = run.facts.started.plus(Millis(1));
        }
    }
    let now = run.as_ref().map_or(now, |run| run.facts.started);
    let transition = begun.update(|target| {
        // A ready target stays ready during an event, unless the same write changes its resources.
        let is_event = matches!(start, Some(Hook::Event(_)));
        if !is_event || target.phase != step.phase || step.is_reported {
            let stays_ready = (target.phase, step.phase) == (TargetPhase::Ready, TargetPhase::Ready);
            target.ready_since = stays_ready.then(|| target.phase_since());
            target.since = now;
        }
        target.phase = step.phase;
        if !matches!(step.phase, TargetPhase::Failed | TargetPhase::Stuck) {
            target.first_cause = None;
        }
        target.hook = start.or(target.hook);
        target.is_reopened = false;
        target.unconfirmed = unconfirmed;
        if step.is_reported {
            let pending = match ending.filter(|_| run.is_none()) {
                Some(hook) => NotificationState::Held(hook),
                None => NotificationState::Due(ReceiverState::default()),
            };
            target.notification = env.settings.platform_url.is_some().then_some(pending);
        } else if matches!(step.phase, TargetPhase::Updating | TargetPhase::Stopping) {
            // A notification about the present resources is obsolete.
            target.notification = None;
        }
        if matches!(step.phase, TargetPhase::Stopping | TargetPhase::Gone) {
            target.events.waiting.clear();
            target.pending_update = None;
        }
        if step.phase == TargetPhase::Gone {
            let instance = target.instance_key();
            secrets::schedule_release(target, &loaded.plan, &instance);
        }
        // A first run begins, the phase changes, or a ready target is ready with other resources.
        let begins = seen.hook.is_none() && step.phase == TargetPhase::Starting;
        if begins || step.phase != seen.phase || step.is_reported {
            let change = (target.phase.into(), target.since);
            outbox::append(target, &rules, &loaded.plan.target, change);
        }
        target.due = due::next_due(env, target);
    });
    let entry = match &run {
        Some(_) => None,
        None => history::without_run(env, seen, step.phase, now, (document, &loaded.plan)),
    };
    Ok(TargetTransition { run, entry, ..transition })
}

/// Returns the events of a target after a step, and the hook that begins. Waiting events without units in the plan are
/// dropped: an update has removed them (EventHasUnits). While an update waits, they stay, because it may add the units.
fn next_events(
    seen: &TargetHead,
    step: PhaseChange,
    loaded: &CompiledPlan,
    now: Timestamp,
) -> (TargetEvents, Option<Hook>) {
    let mut events = seen.events.clone();
    let stays = |event: &EventRef| {
        let has_units = loaded.hook_plan(Hook::Event(event.name)).is_some();
        let stays = has_units || seen.pending_update.is_some();
        if !stays {
            let (kind, name) = (&seen.kind, &seen.name);
            tracing::info!(kind, name, %event, "a waiting event is dropped, because the document has no units for it");
        }
        stays
    };
    events.drop_waiting(stays, now);
    let Some(Hook::Event(_)) = step.start else { return (events, step.start) };
    let start = events.waiting.first().map(|waiting| Hook::Event(waiting.event.name));
    events.begin_next();
    (events, start)
}

/// Begins the teardown of a stopping target whose last event has ended. Its units may be those of an earlier plan.
pub(crate) async fn end_stopped_event(env: &Env, key: TargetKey<'_>, id: &RunId) -> FlowResult<Option<Continuation>> {
    close(env, id).await?;
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(key).await?;
        let is_stopping = |seen: &TargetHead| seen.phase == TargetPhase::Stopping && seen.is_last_run(id);
        let Some(seen) = seen.filter(is_stopping) else { return Ok(None) };
        let loaded = env.plan_of(&seen).await?;
        let step = target::teardown(target::TeardownStage::WasReady, &loaded.hooks());
        let transition = transition(env, &seen, step, &loaded, (None, None)).await?;
        if env.store.move_target(&transition).await? {
            return after_transition(env, transition, &loaded).await;
        }
    }
    Err(FlowError::Contended(key.to_string()))
}

/// Closes a run in which no unit can run. A concurrent write that makes it due again keeps it open.
///
/// # Errors
/// Returns [`FlowError::Contended`] after several concurrent writes. The run is still due, and a sweep closes it.
pub async fn close(env: &Env, run: &RunId) -> FlowResult<()> {
    let is_written = loaded_run::patch_head(env, run, |head| {
        (head.phase != RunPhase::Closed).then(|| accept(RunEvent::Closed { version: head.version, notified: None }))
    });
    is_written.await.map(drop)
}

/// Completes a transition: sends a message for the notification, begins the instance that waits for the name of a gone
/// target, and returns the continuation of the run that has begun.
pub async fn after_transition(
    env: &Env,
    transition: TargetTransition,
    loaded: &Arc<CompiledPlan>,
) -> FlowResult<Option<Continuation>> {
    after_end(env, transition, loaded, NotificationSender::Queue, None).await
}

/// Does the same as [`after_transition`] after the end of a run, whose notification is sent through `sender`. `held` is its
/// head after the transition, if the run stays open for the notification.
async fn after_end(
    env: &Env,
    TargetTransition { target, run, .. }: TargetTransition,
    loaded: &Arc<CompiledPlan>,
    sender: NotificationSender,
    held: Option<HeadState>,
) -> FlowResult<Option<Continuation>> {
    // The receivers of subscriptions do not wait for the platform.
    outbox::announce_any(env, &target).await;
    Box::pin(change_watch::note(env, target.target_key())).await;
    if target.notification.is_some() {
        // If the notification is lost, the run or the target is due. A gone target with secrets to release always uses the
        // queue.
        if sender == NotificationSender::Queue || !target.release.is_empty() {
            env.queue.send(QueueMessage::Target(target.kind.clone(), target.name.clone()), Duration::ZERO).await;
        } else if let Err(error) = Box::pin(notify::notify(env, &target, held)).await {
            let (kind, name) = (&target.kind, &target.name);
            tracing::warn!(kind, name, %error, "cannot deliver the notification; the delivery is repeated when the run is due");
        }
    }
    if let Some(NewRun { id, facts, .. }) = run {
        env.remember_plan(loaded);
        let Some(run) = Run::with_units(env, &id, facts).await? else { return Ok(None) };
        let ready = run.graph().roots().map(|unit| (unit, Attempt::FIRST)).collect();
        // The delivery of a notification writes the target.
        let is_settled = target.notification.is_none() && target.outbox.notices.is_empty();
        let target = is_settled.then(|| Box::new(target));
        return Ok(Some(Continuation { target, ..Continuation::dispatching(run, Epoch::FIRST, ready) }));
    }
    if target.phase == TargetPhase::Gone { start_waiting(env, target.target_key()).await } else { Ok(None) }
}

/// Returns the target of an instance that begins. `former` is the target that has the name.
pub(crate) fn begun(
    env: &Env,
    key: TargetKey<'_>,
    creation: &PendingCreation,
    former: Option<&TargetHead>,
) -> TargetHead {
    let now = former.map_or(env.now(), |target| target.change_time(env.now()));
    TargetHead {
        source: creation.source.clone(),
        owner: creation.owner.clone(),
        changed_by: creation.owner.clone(),
        labels: creation.labels.clone(),
        generation: creation.generation,
        first_generation: creation.first_generation(),
        plan: creation.plan.clone(),
        routing_key: creation.routing_key.clone(),
        plugins: creation.plugins.clone(),
        expires: creation.ttl_ms.map(|ttl| now.plus(Millis(ttl))),
        release: former.map(|target| target.release.clone()).unwrap_or_default(),
        outbox: former.map(|target| target.outbox.clone()).unwrap_or_default(),
        version: former.map_or(0, |target| target.version),
        // The instance begins after the former one has ended.
        since: former.map_or(now, |target| target.since),
        ..TargetHead::new(key.kind, key.name, &creation.uid, now)
    }
}

/// Begins the instance that waits for the name of a gone target, after the platform has accepted the `gone`.
pub async fn start_waiting(env: &Env, key: TargetKey<'_>) -> FlowResult<Option<Continuation>> {
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(key).await? else { return Ok(None) };
        let Some(waiting) = seen.waiting.clone() else { return Ok(None) };
        if seen.phase != TargetPhase::Gone || notify::pending_notification(env, &seen, None).await?.is_some() {
            return Ok(None);
        }
        let loaded = env.plan(&key.instance(&waiting.uid).key(), &waiting.plan).await?;
        let fresh = begun(env, key, &waiting, Some(&seen));
        let step = target::begin(&loaded.hooks());
        let mut transition = transition(env, &fresh, step, &loaded, (None, None)).await?;
        transition.tombstone = Some(retention::tombstone(env, seen.instance_key(), seen.since));
        if env.store.move_target(&transition).await? {
            return Box::pin(after_transition(env, transition, &loaded)).await;
        }
    }
    Err(FlowError::Contended(key.to_string()))
}
