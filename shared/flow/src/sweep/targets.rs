//! One target that is due: its notification is not delivered, its time to live is over, its stop has to be seen through, or a
//! cluster still holds its secrets.

use ebb_engine::{Hook, Millis, RunPhase, TargetPhase};
use ebb_protocol::id::RunId;
use ebb_protocol::lifecycle::TargetStopCause;
use ebb_store::DueItem;

use super::SweepPermit;
use crate::env::Env;
use crate::error::FlowError;
use crate::guarded_relay;
use crate::guarded_relay::GuardedRelay;
use crate::run::cancel;
use crate::run::dispatch_all::drive;
use crate::target::due;
use crate::target::lifecycle;
use crate::target::notify;
use crate::target::secrets;
use crate::target::transition;

/// Looks at one target: sends its notification, ends its time to live, completes its stop.
///
/// # Errors
/// The store's; the target stays due.
pub async fn sweep_target(env: &Env, kind: &str, name: &str) -> Result<(), FlowError> {
    sweep_with_permit(env, kind, name, &mut SweepPermit::standalone(env)).await
}

/// Looks at a target from a place of a sweep. One that cannot be dealt with is due again later.
#[tracing::instrument(name = "look", skip_all, fields(kind, name))]
pub(super) async fn sweep_with_permit<'a>(
    env: &'a Env,
    kind: &str,
    name: &str,
    place: &mut SweepPermit<'a>,
) -> Result<(), FlowError> {
    let due = DueItem::Target(kind.to_owned(), name.to_owned());
    let looked = sweep_once(env, kind, name, place).await;
    match &looked {
        Ok(()) => env.cache.failed_sweeps.clear(&due),
        Err(error) => {
            postpone_failed(env, kind, name, env.cache.failed_sweeps.next_wait(&due, error.is_retryable())).await
        }
    }
    looked
}

/// Makes a target whose look failed due again after `wait`. It changes only the due time.
pub(super) async fn postpone_failed(env: &Env, kind: &str, name: &str, wait: Millis) {
    let written = async {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let now = env.now();
        if seen.due.is_some_and(|due| due <= now) {
            env.store.move_target(&seen.update(|target| target.due = Some(now.plus(wait)))).await?;
        }
        Ok::<_, FlowError>(())
    };
    if let Err(error) = written.await {
        tracing::warn!(kind, name, %error, "the target stays due");
    }
}

async fn sweep_once<'a>(env: &'a Env, kind: &str, name: &str, place: &mut SweepPermit<'a>) -> Result<(), FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    if target.notification.is_some()
        && let Err(error) = notify::notify(env, &target).await
    {
        // A notification that cannot be delivered must not keep the target from its end.
        tracing::warn!(kind, name, %error, "the notification could not be delivered");
    }
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    let alive = matches!(target.phase, TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Failed);
    if alive && target.expires.is_some_and(|at| at <= env.now()) {
        tracing::info!(kind, name, "its time to live is over");
        lifecycle::delete(env, kind, name, &target.uid, TargetStopCause::Expired).await?;
        return Ok(());
    }
    if target.phase == TargetPhase::Stopping
        && let Some(hook @ (Hook::PreStart | Hook::PostStart)) = target.hook
    {
        let life = ebb_protocol::id::instance_key(kind, name, &target.uid);
        let run = RunId::new(&life, target.generation, hook);
        if !is_cancelling(env, &run).await?
            && let Some(work) = cancel::cancel_run(env, &run).await?
        {
            drive(env, work).await?;
        }
    }
    if target.phase == TargetPhase::Gone
        && let Some(work) = transition::start_waiting(env, kind, name).await?
    {
        drive(env, work).await?;
    }
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    // The first look at a gone target sends its notification.
    let releases = target.phase == TargetPhase::Gone && !target.release.is_empty();
    if releases || target.due.is_some_and(|due| due <= env.now()) {
        let clusters = target.release.iter().map(|one| guarded_relay::cluster_name(env, one.cluster.as_deref()));
        place.acquire_clusters(env, clusters.collect()).await;
        let release = match place.is_out_of_time(env) {
            true => target.release.clone(),
            false => secrets::release_secrets(&GuardedRelay(env), &target).await,
        };
        let transition = target.update(|after| {
            after.release = release;
            after.due = due::next_due(env, after);
        });
        env.store.move_target(&transition).await?;
    }
    Ok(())
}

/// Returns whether a run that is being stopped is looked at without its target.
async fn is_cancelling(env: &Env, run: &RunId) -> Result<bool, FlowError> {
    let root = env.store.read_root(run).await?;
    Ok(root.is_some_and(|root| root.head.phase == RunPhase::Cancelling && root.head.due.is_some()))
}
