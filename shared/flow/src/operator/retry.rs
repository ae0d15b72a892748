//! An operator's retry.

use ebb_engine::follow::in_flight;
use ebb_engine::{RunPhase, TargetPhase, Unit, UnitProgress};
use ebb_protocol::api::RetryResponse;
use ebb_protocol::id::{self, RunId};

use crate::env::Env;
use crate::error::FlowError;
use crate::run::head::Run;
use crate::run::reopen::{ReopenCause, reopen};

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    Retried(RetryResponse),
    /// There is no such target.
    NotFound,
    /// There is nothing to retry; why.
    NothingFailed(String),
}

/// Tries the units again that have failed for good in the last run of a failed or stuck target.
///
/// # Errors
/// The store's; safe to repeat.
pub async fn retry(env: &Env, kind: &str, name: &str) -> Result<RetryOutcome, FlowError> {
    let Some(target) = env.store.read_target(kind, name).await? else { return Ok(RetryOutcome::NotFound) };
    let Some(hook) = target.hook.filter(|_| target.phase != TargetPhase::Gone) else {
        return Ok(RetryOutcome::NothingFailed(format!("{kind}/{name} has nothing to retry")));
    };
    let run = RunId::new(&id::instance_key(kind, name, &target.uid), target.generation, hook);
    let Some(run) = Run::load(env, &run).await? else {
        return Ok(RetryOutcome::NothingFailed(format!("{kind}/{name} has no run")));
    };
    let view = run.read_view(env).await?;
    let failed: Vec<Unit> = run.graph().units().filter(|&unit| view.status(unit) == UnitProgress::Failed).collect();
    let closed = view.root().is_some_and(|root| root.phase == RunPhase::Closed);
    let given_up = matches!(target.phase, TargetPhase::Failed | TargetPhase::Stuck);
    // A retry that died half-way left the target moving with a closed run, or units open in it.
    let moving = !given_up && !failed.is_empty();
    let forgotten = closed && (moving || !in_flight(run.graph(), &view).is_empty());
    if !forgotten && (failed.is_empty() || !given_up) {
        let text = format!("{kind}/{name} is neither failed nor stuck: no unit of run {} has to be retried", run.id);
        return Ok(RetryOutcome::NothingFailed(text));
    }
    tracing::info!(kind, name, run = %run.id, units = failed.len(), "an operator retries");
    if !reopen(env, &run.id, &failed, ReopenCause::Retry).await? {
        return Ok(RetryOutcome::NothingFailed(format!("{kind}/{name} is being taken away")));
    }
    let units = failed.iter().filter_map(|&unit| Some(run.unit(unit)?.key.clone())).collect();
    Ok(RetryOutcome::Retried(RetryResponse { run: run.id.to_string(), units }))
}
