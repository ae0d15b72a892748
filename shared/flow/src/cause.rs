//! The first cause of a failed run.

use ebb_engine::{Attempt, Status, Unit};
use ebb_wire::callback::Reason;
use ebb_wire::evidence::Evidence;
use ebb_wire::record::Verdict;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::{self, Run};

/// The unit that failed for good before all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstCause {
    /// The unit.
    pub unit: Unit,
    /// Its last try.
    pub attempt: Attempt,
    /// Why it failed.
    pub reason: Reason,
    /// What its request looked like, if it is a webhook's.
    pub evidence: Option<Box<Evidence>>,
}

/// The unit of `run` that failed for good first, by the time of its record.
///
/// # Errors
/// The store's.
pub async fn first(env: &Env, run: &Run) -> Result<Option<FirstCause>, FlowError> {
    let view = run.look(env).await?;
    let failed: Vec<Unit> = run.graph().units().filter(|&unit| view.status(unit) == Status::Failed).collect();
    if failed.is_empty() {
        return Ok(None);
    }
    let mut first: Option<(u64, FirstCause)> = None;
    for (unit, attempt, record) in env.store.read_records(&run.id, &failed).await? {
        let Some(result) = record.result else { continue };
        let counts = result.verdict == Verdict::Failed && attempt == run::attempt(&view, unit);
        let Some(reason) = result.reason.filter(|_| counts) else { continue };
        if first.as_ref().is_none_or(|(at, _)| result.at < *at) {
            first = Some((result.at, FirstCause { unit, attempt, reason, evidence: result.evidence }));
        }
    }
    Ok(first.map(|(_, cause)| cause))
}
