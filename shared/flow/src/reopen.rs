//! Units that have to run once more: undos after a late success, and what an operator retries.

use std::time::Duration;

use ebb_engine::{Event, RunPhase, Shard, TargetPhase, Unit, accept};
use ebb_store::Transition;
use ebb_wire::id::RunId;

use crate::env::Env;
use crate::error::FlowError;
use crate::ports::Message;
use crate::run::{self, Run};

/// Starts the next try of `units` of a run, even if the run is closed, and moves a target that was given up or gone
/// back to where its run belongs. False: there is no such run.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn reopen(env: &Env, id: &RunId, units: &[Unit]) -> Result<bool, FlowError> {
    let Some(run) = Run::load(env, id).await? else { return Ok(false) };
    let view = run.look(env).await?;
    let epoch = run::epoch(&view);
    for &unit in units {
        let attempt = run::attempt(&view, unit);
        run.patch(env, &accept(Event::Reopened { unit, attempt, epoch })).await?.ok();
    }
    target(env, &run).await?;
    wake(env, &run).await?;
    Ok(true)
}

/// Has the run looked at now; a closed one is opened for it.
async fn wake(env: &Env, run: &Run) -> Result<(), FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let Some(root) = env.store.read_root(&run.id).await? else { return Ok(()) };
        let due = env.now();
        let event = match root.head.phase {
            RunPhase::Closed => Event::Reawoken { due, version: root.head.version },
            RunPhase::Running | RunPhase::Stopping => Event::Hastened { due },
        };
        let patch = accept(event);
        debug_assert_eq!(patch.shard, Shard::ROOT);
        let earlier = root.head.due.is_some_and(|at| at <= due);
        if run.patch(env, &patch).await?.is_ok() || earlier {
            env.queue.send(Message::Run(run.id.clone()), Duration::ZERO).await;
            return Ok(());
        }
    }
    Err(FlowError::Contended(format!("run {}", run.id)))
}

/// A target that is stuck, failed or gone gets back to the phase in which `run` runs.
async fn target(env: &Env, run: &Run) -> Result<(), FlowError> {
    let facts = &run.facts;
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(&facts.kind, &facts.name).await? else { return Ok(()) };
        let same = seen.uid == facts.uid && seen.generation == facts.generation;
        if !same || seen.moment != Some(run.moment()) {
            return Ok(());
        }
        let phase = match (seen.phase, run.moment()) {
            (TargetPhase::Stuck | TargetPhase::Gone, _) => TargetPhase::Stopping,
            (TargetPhase::Failed, ebb_engine::Moment::BeforeReady) => TargetPhase::Starting,
            (TargetPhase::Failed, ebb_engine::Moment::AfterReady) => TargetPhase::Ready,
            _ => return Ok(()),
        };
        let mut target = seen.clone();
        target.phase = phase;
        target.since = env.now();
        target.tell = None;
        target.version += 1;
        let transition = Transition { target, seen: Some(seen.version), run: None, tombstone: None };
        if env.store.move_target(&transition).await? {
            return Ok(());
        }
    }
    Err(FlowError::Contended(format!("{}/{}", facts.kind, facts.name)))
}
