//! One target that is due: its outcome is not delivered, its time to live is over, its stop has to be seen through, or a
//! cluster still holds its secrets.

use ebb_engine::{Millis, Moment, RunPhase, TargetPhase};
use ebb_store::{Due, TargetHead, Transition};
use ebb_wire::id::RunId;
use ebb_wire::lifecycle::TargetStopCause;

use super::Place;
use crate::breaker::{self, Relays};
use crate::drive::drive;
use crate::env::Env;
use crate::error::FlowError;
use crate::finish;
use crate::receive;
use crate::release;
use crate::settle;
use crate::tell;

/// Looks at one target: tells its outcome, ends its time to live, sees its stop through.
///
/// # Errors
/// The store's; the target stays due.
pub async fn sweep_target(env: &Env, kind: &str, name: &str) -> Result<(), FlowError> {
    look_at(env, kind, name, &mut Place::alone(env)).await
}

/// Looks at a target from a place of a sweep. One that cannot be dealt with is due again later.
#[tracing::instrument(name = "look", skip_all, fields(kind, name))]
pub(super) async fn look_at<'a>(
    env: &'a Env,
    kind: &str,
    name: &str,
    place: &mut Place<'a>,
) -> Result<(), FlowError> {
    let due = Due::Target(kind.to_owned(), name.to_owned());
    let looked = once(env, kind, name, place).await;
    match &looked {
        Ok(()) => env.warm.failing.ended(&due),
        Err(error) => put_off(env, kind, name, env.warm.failing.wait(&due, error.is_retryable())).await,
    }
    looked
}

/// Makes a target whose look failed due again after `wait`. It changes only the due time.
pub(super) async fn put_off(env: &Env, kind: &str, name: &str, wait: Millis) {
    let written = async {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(()) };
        let (now, version) = (env.now(), seen.version);
        if seen.due.is_some_and(|due| due <= now) {
            let target = TargetHead { due: Some(now.plus(wait)), version: version + 1, ..seen };
            let transition = Transition { target, seen: Some(version), run: None, tombstone: None };
            env.store.move_target(&transition).await?;
        }
        Ok::<_, FlowError>(())
    };
    if let Err(error) = written.await {
        tracing::warn!(kind, name, %error, "the target stays due");
    }
}

async fn once<'a>(env: &'a Env, kind: &str, name: &str, place: &mut Place<'a>) -> Result<(), FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    if target.tell.is_some()
        && let Err(error) = tell::tell(env, &target).await
    {
        // An outcome that cannot be delivered must not keep the target from its end.
        tracing::warn!(kind, name, %error, "the outcome could not be told");
    }
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    let alive = matches!(target.phase, TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Failed);
    if alive && target.expires.is_some_and(|at| at <= env.now()) {
        tracing::info!(kind, name, "its time to live is over");
        receive::delete(env, kind, name, &target.uid, TargetStopCause::Expired).await?;
        return Ok(());
    }
    if target.phase == TargetPhase::Stopping
        && let Some(moment @ (Moment::BeforeReady | Moment::AfterReady)) = target.moment
    {
        let life = ebb_wire::id::life(kind, name, &target.uid);
        let run = RunId::new(&life, target.generation, moment);
        if !is_settling(env, &run).await?
            && let Some(work) = settle::stop(env, &run).await?
        {
            drive(env, work).await?;
        }
    }
    if target.phase == TargetPhase::Gone
        && let Some(work) = finish::promote(env, kind, name).await?
    {
        drive(env, work).await?;
    }
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(()) };
    // The first look at a gone target sends its outcome.
    let releases = target.phase == TargetPhase::Gone && !target.release.is_empty();
    if releases || target.due.is_some_and(|due| due <= env.now()) {
        let mut after = target.clone();
        let clusters = target.release.iter().map(|one| breaker::name(env, one.cluster.as_deref()));
        place.enter(env, clusters.collect()).await;
        if !place.is_late(env) {
            after.release = release::release(&Relays(env), &target).await;
        }
        after.due = finish::due(env, &after);
        after.version += 1;
        let transition = Transition { target: after, seen: Some(target.version), run: None, tombstone: None };
        env.store.move_target(&transition).await?;
    }
    Ok(())
}

/// Returns whether a run that is being stopped is looked at without its target.
async fn is_settling(env: &Env, run: &RunId) -> Result<bool, FlowError> {
    let root = env.store.read_root(run).await?;
    Ok(root.is_some_and(|root| root.head.phase == RunPhase::Stopping && root.head.due.is_some()))
}
