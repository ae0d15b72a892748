//! Sweeps one target: delivers its notifications, ends its time to live, completes its stop, continues an interrupted
//! retry, begins its waiting update or event, and releases its secrets.

use std::time::Duration;

use ebb_engine::{RunPhase, TargetPhase, Timestamp};
use ebb_protocol::{RunId, TargetKey, TargetStopCause};
use ebb_store::{DueItem, TargetHead};
use futures::FutureExt as _;

use super::postpone::record_end;
use crate::advance::dispatch_all::drive;
use crate::advance::{cancel, next_run, retry, transition};
use crate::instance::{due, notify, outbox, secrets};
use crate::{Env, FlowResult, SweepPermit, UnitCluster, guarded, guarded_relay, lifecycle};

/// Sweeps one target. After an error, it is due again later.
#[tracing::instrument(name = "sweep", skip_all, fields(kind = key.kind, name = key.name))]
pub(super) async fn sweep_target(env: &Env, key: TargetKey<'_>, permit: &SweepPermit) -> FlowResult<()> {
    let end = sweep_once(env, key, permit).await;
    record_end(env, &DueItem::Target(key.kind.to_owned(), key.name.to_owned()), end).await
}

async fn sweep_once(env: &Env, key: TargetKey<'_>, permit: &SweepPermit) -> FlowResult<()> {
    let Some(target) = env.store.read_target(key).await? else { return Ok(()) };
    let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= env.now());
    let has_deliveries = is_due(target.due) && is_due(target.outbox.due());
    let mut seen = Some(target);
    if let Some(target) = seen.take_if(|target| target.notification.is_some())
        && let Err(error) = notify::notify(env, &target, None).await
    {
        // A failed delivery must not block the end of the target.
        tracing::warn!(kind = key.kind, name = key.name, %error, "cannot deliver the notification");
    }
    let advanced = Box::pin(advance(env, key, seen, permit)).await;
    // The message was lost.
    if has_deliveries && advanced.is_ok() && permit.is_scheduled() && !permit.is_out_of_time(env) {
        permit.leave_place();
        return Box::pin(outbox::deliver(env, key)).await;
    }
    if has_deliveries {
        // Other messages do not wait for receivers.
        outbox::announce(env, key, Duration::ZERO).await;
    }
    advanced
}

/// Ends the time to live, completes the stop, continues an interrupted retry, begins what waits, and releases secrets. `seen`
/// is the target if it was just read.
async fn advance(env: &Env, key: TargetKey<'_>, seen: Option<TargetHead>, permit: &SweepPermit) -> FlowResult<()> {
    let target = if seen.is_some() { seen } else { env.store.read_target(key).await? };
    let Some(target) = target else { return Ok(()) };
    if target.phase.is_alive() && target.expires.is_some_and(|at| at <= env.now()) {
        tracing::info!(kind = key.kind, name = key.name, "the time to live or the protection has ended");
        lifecycle::delete(env, key.instance(&target.uid), TargetStopCause::Expired).await?;
        return Ok(());
    }
    // False once a step has begun that may have changed the target.
    let mut is_unchanged = true;
    if target.phase == TargetPhase::Stopping
        && let Some(hook) = target.hook.filter(|hook| !hook.is_teardown())
    {
        is_unchanged = false;
        let run = target.run(hook);
        let continuation = match next_run::has_ended_event(env, &target).await? {
            true => Box::pin(transition::end_stopped_event(env, key, &run)).await?,
            false if is_cancelling(env, &run).await? => None,
            false => cancel::cancel_run(env, &run).await?,
        };
        drive(env, continuation).await?;
    }
    let is_continued = target.is_reopened && target.due.is_some_and(|due| due <= env.now());
    if is_continued {
        is_unchanged = false;
        // It is refused if another invocation has moved the target on.
        Box::pin(retry::retry(env, (key, Some(&target.uid)), None)).await?.ok();
    }
    if target.pending_update.is_some() {
        is_unchanged = false;
        drive(env, Box::pin(next_run::start_update(env, permit.is_scheduled(), key)).await?).await?;
    }
    if !target.events.waiting.is_empty() {
        is_unchanged = false;
        drive(env, next_run::start_event(env, key).await?).await?;
    }
    if target.phase == TargetPhase::Gone && target.waiting.is_some() {
        is_unchanged = false;
        drive(env, Box::pin(transition::start_waiting(env, key)).await?).await?;
    }
    let target = if is_unchanged { Some(target) } else { env.store.read_target(key).await? };
    let Some(target) = target else { return Ok(()) };
    // The first sweep of a gone target delivers its notification and releases its secrets.
    let releases = target.phase == TargetPhase::Gone && !target.release.is_empty();
    let is_due = target.due.is_some_and(|due| due <= env.now());
    if releases || is_due {
        let clusters = target.release.iter().map(|ended| guarded_relay::cluster_name(env, ended.cluster.as_deref()));
        permit.acquire_clusters(env, clusters.collect()).await;
        let release = match permit.is_out_of_time(env) {
            true => target.release.clone(),
            false => {
                let release = secrets::release_secrets(&target, |ended| {
                    let release = async move {
                        let cluster = UnitCluster { name: ended.cluster.as_deref(), uid: ended.uid.as_deref() };
                        guarded(env, cluster.name, env.relay.release(cluster, &ended.instance)).await
                    };
                    release.boxed()
                });
                release.await
            }
        };
        let transition = target.update(|after| {
            after.release = release;
            after.is_reopened &= !(is_continued && is_due);
            after.due = due::next_due(env, after);
        });
        env.store.move_target(&transition).await?;
    }
    Ok(())
}

/// Returns true if a cancelled run is due by itself, so that its target does not have to advance it.
async fn is_cancelling(env: &Env, run: &RunId) -> FlowResult<bool> {
    let present = env.store.read_run(run).await?;
    Ok(present.is_some_and(|run| run.head.phase == RunPhase::Cancelling && run.head.due.is_some()))
}
