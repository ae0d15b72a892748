//! The end of a run: the target moves on, the run is closed, the next one begins, the platform is told.

use std::time::Duration;

use ebb_engine::follow::in_flight;
use ebb_engine::target::{self, PhaseChange};
use ebb_engine::{Attempt, Epoch, HeadState, Hook, RunEvent, RunOutcome, TargetPhase, accept};
use ebb_protocol::id::{self, RunId};
use ebb_store::{NewRun, NotificationState, RunFacts, TargetHead, TargetTransition};

use crate::env::CompiledPlan;
use crate::env::Env;
use crate::error::FlowError;
use crate::ports::QueueMessage;
use crate::run::head::Run;
use crate::run::inputs::InvocationCache;
use crate::run::progress::Continuation;
use crate::run::reopen;
use crate::sweep::retention;
use crate::target::due;
use crate::target::notify;
use crate::target::secrets;
use crate::target::update::update_target;
use crate::telemetry;

/// The sender of a notification to the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationSender {
    /// The invocation that ends the run: nothing else waits for it.
    Invocation,
    /// The invocation that receives a message of the queue.
    Queue,
}

/// Ends `run`, in which nothing can move any more. Gives what begins after it. `sender` sends the notification.
///
/// The target first, then the run is closed: after a crash in between, `sweep` finds the run open, the target moved on,
/// and only closes.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn end_run(
    env: &Env,
    run: &Run,
    outcome: RunOutcome,
    sender: NotificationSender,
) -> Result<Option<Continuation>, FlowError> {
    match outcome {
        RunOutcome::Succeeded => tracing::debug!(run = %run.id, "over"),
        _ => tracing::info!(run = %run.id, ?outcome, "over"),
    }
    let moved = move_target(env, run, |engine| match (engine.phase, run.hook()) {
        // A stop that came while the run was ending: there is nothing left to cancel.
        (TargetPhase::Stopping, hook @ (Hook::PreStart | Hook::PostStart)) if engine.hook == Some(hook) => {
            Some(target::teardown(target::TeardownStage::cancelled_in(hook), run.loaded.hooks()))
        }
        _ => target::run_ended(engine, run.hook(), outcome, run.loaded.hooks()),
    })
    .await?;
    if moved.is_some() {
        telemetry::run_ended(run, Some(outcome), env.now());
    }
    let view = run.read_view(env).await?;
    if in_flight(run.graph(), &view).is_empty() {
        if moved.is_none() && matches!(run.hook(), Hook::PreStop | Hook::PostStop) {
            // It may have undone a late success of a life that is over.
            secrets::schedule_late_release(env, run).await?;
        }
        let holds = holds_notification(env, run, moved.as_ref()).await?;
        match view.root() {
            Some(root) if holds => schedule_notification(env, &run.id, root).await?,
            Some(root) => drop(due::close_seen(env, &run.id, root).await?),
            None => {}
        }
    } else {
        // A late success has reopened an undo since: the run stays due, and the target is not done with it.
        reopen::restore_target(env, run).await?;
    }
    continue_after(env, run, moved, sender).await
}

/// Whether `run` stays open until the platform has taken its notification. Sends it, if no other sender was asked to.
async fn holds_notification(env: &Env, run: &Run, moved: Option<&TargetTransition>) -> Result<bool, FlowError> {
    let facts = &run.facts;
    let holds = |target: &TargetHead| {
        let held = target.notification.as_ref().is_some_and(|pending| pending.delivered_by == Some(run.hook()));
        held && target.uid == facts.uid && target.generation == facts.generation
    };
    if let Some(moved) = moved {
        return Ok(holds(&moved.target));
    }
    // The invocation that moved the target may have died before it sent the notification, and a message may be lost again.
    let target = env.store.read_target(&facts.kind, &facts.name).await?;
    let Some(target) = target.filter(holds) else { return Ok(false) };
    if let Err(error) = Box::pin(notify::notify(env, &target)).await {
        tracing::warn!(run = %run.id, %error, "the notification could not be delivered; the run is due again");
    }
    Ok(true)
}

/// Makes a run that is over due soon, should the message be lost that has its notification sent.
async fn schedule_notification(env: &Env, run: &RunId, root: &HeadState) -> Result<(), FlowError> {
    let soon = env.now().plus(env.settings.first_sweep_delay);
    let event = match root.due {
        Some(due) if due > soon => RunEvent::WakeupAdvanced { due: soon },
        Some(seen) if seen <= env.now() => RunEvent::Postponed { seen, next: soon },
        Some(_) | None => return Ok(()),
    };
    // Refused: others have changed when it is due, and look at it then.
    env.store.patch_run(run, &accept(event)).await?;
    Ok(())
}

/// Ends `run`, which was cancelled and has settled.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn end_cancelled_run(env: &Env, run: &Run) -> Result<Option<Continuation>, FlowError> {
    tracing::info!(run = %run.id, "settled");
    let hook = run.hook();
    let moved = move_target(env, run, |engine| {
        let stopping = engine.phase == TargetPhase::Stopping && engine.hook == Some(hook);
        stopping.then(|| target::teardown(target::TeardownStage::cancelled_in(hook), run.loaded.hooks()))
    })
    .await?;
    if moved.is_some() {
        telemetry::run_ended(run, None, env.now());
    }
    if !holds_notification(env, run, moved.as_ref()).await? {
        close(env, &run.id).await?;
    } else if let Some(root) = env.store.read_root(&run.id).await? {
        schedule_notification(env, &run.id, &root.head).await?;
    }
    continue_after(env, run, moved, NotificationSender::Queue).await
}

/// Moves the run's target by what `decide` says, if it says anything. `None`: nothing was to be done.
async fn move_target(
    env: &Env,
    run: &Run,
    decide: impl Fn(&target::Target) -> Option<PhaseChange>,
) -> Result<Option<TargetTransition>, FlowError> {
    let facts = &run.facts;
    let moved = update_target(env, &facts.kind, &facts.name, |seen| {
        let is_own = seen.uid == facts.uid && seen.generation == facts.generation;
        let step = is_own.then(|| decide(&engine_target(seen))).flatten()?;
        Some(transition(env, seen, step, &run.loaded, Some(run.hook())))
    });
    let moved = moved.await?;
    if moved.as_ref().is_some_and(|moved| moved.target.phase == TargetPhase::Stuck) {
        telemetry::target_stuck();
        tracing::warn!(kind = facts.kind, name = facts.name, run = %run.id, "stuck");
    }
    Ok(moved)
}

/// What the engine knows of a stored target.
pub fn engine_target(head: &TargetHead) -> target::Target {
    target::Target {
        uid: head.uid.clone(),
        generation: head.generation,
        phase: head.phase,
        hook: head.hook,
        waiting: head.waiting.as_ref().map(|waiting| waiting.uid.clone()),
    }
}

/// The write that moves `seen` by `step`, and the run that begins with it. `ending` is the run that ends with it: it
/// stays open until the platform has taken the notification, unless another run begins, which is due by itself.
pub fn transition(
    env: &Env,
    seen: &TargetHead,
    step: PhaseChange,
    loaded: &CompiledPlan,
    ending: Option<Hook>,
) -> TargetTransition {
    let now = env.now();
    let run = step.start.map(|hook| NewRun {
        id: RunId::new(&id::instance_key(&seen.kind, &seen.name, &seen.uid), seen.generation, hook),
        facts: RunFacts {
            kind: seen.kind.clone(),
            name: seen.name.clone(),
            uid: seen.uid.clone(),
            generation: seen.generation,
            plan: loaded.digest.clone(),
            routing_key: seen.routing_key.clone(),
            started: now,
        },
        due: now.plus(env.settings.first_sweep_delay),
    });
    let transition = seen.update(|target| {
        target.phase = step.phase;
        target.since = now;
        target.hook = step.start.or(target.hook);
        if let Some(notification) = step.notification {
            let delivered_by = ending.filter(|_| run.is_none());
            let pending = NotificationState { notification, attempts: 0, delivered_by, reason: None };
            target.notification = env.settings.platform_url.is_some().then_some(pending);
        } else if step.phase == TargetPhase::Stopping {
            // A notification of its setup is of no interest any more.
            target.notification = None;
        }
        if step.phase == TargetPhase::Gone {
            secrets::schedule_release(target, &loaded.plan);
        }
        target.due = due::next_due(env, target);
    });
    TargetTransition { run, ..transition }
}

/// Closes a run in which nothing moves any more. Somebody who has just made it due again keeps it open.
///
/// # Errors
/// The store's.
pub async fn close(env: &Env, run: &RunId) -> Result<(), FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let Some(root) = env.store.read_root(run).await? else { return Ok(()) };
        if due::close_seen(env, run, &root.head).await? {
            return Ok(());
        }
    }
    // It stays due: `sweep` finds it over and closes it.
    Ok(())
}

async fn continue_after(
    env: &Env,
    run: &Run,
    moved: Option<TargetTransition>,
    sender: NotificationSender,
) -> Result<Option<Continuation>, FlowError> {
    let Some(moved) = moved else { return Ok(None) };
    // Units do not wait for the platform.
    let sender = if moved.run.is_some() { NotificationSender::Queue } else { sender };
    after_transition(env, moved, &run.loaded, sender).await
}

/// After a transition: has `sender` send the notification, lets what waits for a gone target's name begin, and gives the run that
/// has begun with its roots to send.
///
/// # Errors
/// The store's.
pub async fn after_transition(
    env: &Env,
    TargetTransition { target, run, .. }: TargetTransition,
    loaded: &std::sync::Arc<CompiledPlan>,
    sender: NotificationSender,
) -> Result<Option<Continuation>, FlowError> {
    if target.notification.is_some() {
        // The run or the target is due, should this be lost.
        send_notification(env, &target, sender).await;
    }
    if let Some(NewRun { id, facts, .. }) = run {
        env.remember_plan(loaded);
        let run = Run::of(env, &id, facts).await?;
        let ready = run.graph().roots().map(|unit| (unit, Attempt::FIRST)).collect();
        return Ok(Some(Continuation {
            run,
            epoch: Epoch::FIRST,
            ready,
            outcome: None,
            cache: InvocationCache::default(),
        }));
    }
    if target.phase == TargetPhase::Gone {
        return start_waiting(env, &target.kind, &target.name).await;
    }
    Ok(None)
}

/// Sends the notification of a target, or has it sent. What a gone target still has to release is left to the queue.
async fn send_notification(env: &Env, target: &TargetHead, sender: NotificationSender) {
    if sender == NotificationSender::Invocation && target.release.is_empty() {
        if let Err(error) = Box::pin(notify::notify(env, target)).await {
            let (kind, name) = (&target.kind, &target.name);
            tracing::warn!(kind, name, %error, "the notification could not be delivered; it is sent again when its run is due");
        }
        return;
    }
    let message = QueueMessage::Target(target.kind.clone(), target.name.clone());
    env.queue.send(message, Duration::ZERO).await;
}

/// Lets what waits for the name of a gone target begin, once the platform has accepted that the target is gone.
///
/// # Errors
/// The store's.
pub async fn start_waiting(env: &Env, kind: &str, name: &str) -> Result<Option<Continuation>, FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(None) };
        let Some(waiting) = seen.waiting.clone() else { return Ok(None) };
        if seen.phase != TargetPhase::Gone || notify::pending_notification(env, &seen).await?.is_some() {
            return Ok(None);
        }
        let loaded = env.plan(&id::instance_key(kind, name, &waiting.uid), &waiting.plan).await?;
        let now = env.now();
        let fresh = TargetHead {
            uid: waiting.uid.clone(),
            generation: waiting.generation,
            hook: None,
            plan: waiting.plan.clone(),
            routing_key: waiting.routing_key.clone(),
            plugins: waiting.plugins.clone(),
            created: now,
            expires: waiting.ttl_ms.map(|ttl| now.plus(ebb_engine::Millis(ttl))),
            notification: None,
            waiting: None,
            ..seen.clone()
        };
        let step = target::begin(loaded.hooks());
        let mut transition = transition(env, &fresh, step, &loaded, None);
        transition.tombstone = Some(retention::tombstone(env, &seen.uid, seen.since));
        if env.store.move_target(&transition).await? {
            return Box::pin(after_transition(env, transition, &loaded, NotificationSender::Queue)).await;
        }
    }
    Err(FlowError::Contended(format!("{kind}/{name}")))
}
