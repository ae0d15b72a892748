//! Finds the first cause of a failed run.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Attempt, HeadState, Unit, UnitProgress, attempts_used, in_flight};
use ebb_protocol::{AttemptOutcome, Evidence, FailureReason, ReasonCode, RunId, limits};

use crate::{Env, FlowResult, Run};

/// Maximum characters of a cause in lists.
const MAX_TEXT: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstCause {
    pub unit: Unit,
    pub attempt: Attempt,
    pub reason: FailureReason,
    /// The evidence of the request, for a webhook.
    pub evidence: Option<Box<Evidence>>,
}

/// Returns a run with its unit that failed first, tolerated ones last. Returns `None` if no unit failed, or the data of the run
/// was removed.
pub(crate) async fn of_run(env: &Env, id: &RunId) -> FlowResult<Option<(Run, FirstCause)>> {
    let Some(run) = Run::load(env, id).await? else { return Ok(None) };
    Ok(first(env, &run).await?.map(|cause| (run, cause)))
}

async fn first(env: &Env, run: &Run) -> FlowResult<Option<FirstCause>> {
    Ok(failed(env, run, &run.read_head(env).await?).await?.into_iter().next())
}

/// Returns the unit of `run` that failed first, with its reason, as one line for lists.
pub async fn first_text(env: &Env, run: &Run) -> FlowResult<Option<String>> {
    let Some(FirstCause { unit, reason, .. }) = first(env, run).await? else { return Ok(None) };
    let Some(unit) = run.unit(unit) else { return Ok(None) };
    Ok(Some(limits::excerpt(&format!("{}: {}", unit.key, reason.message.replace('\n', " ")), MAX_TEXT - 1)))
}

/// Returns the present failures of `run`, the earliest first and tolerated ones last: failed units or, unless one of them is
/// not tolerated, the previous failures of units that are retried.
pub async fn current(env: &Env, run: &Run) -> FlowResult<Vec<FirstCause>> {
    let head = run.read_head(env).await?;
    let failed = failed(env, run, &head).await?;
    if failed.iter().any(|failed| !run.graph().tolerates(failed.unit)) {
        return Ok(failed);
    }
    let retried = in_flight(run.graph(), &head).into_iter().filter_map(|(unit, attempt)| {
        let attempts = run.unit(unit)?.retry.attempts;
        (attempts_used(attempt, attempts) > 1).then(|| (unit, Attempt(attempt.0 - 1)))
    });
    let mut found = of(env, run, &retried.collect()).await?;
    found.extend(failed);
    Ok(found)
}

async fn failed(env: &Env, run: &Run, head: &HeadState) -> FlowResult<Vec<FirstCause>> {
    let failed = run.graph().units().filter(|&unit| head.status(unit) == UnitProgress::Failed);
    let last: BTreeMap<Unit, Attempt> = failed.map(|unit| (unit, head.attempt(unit))).collect();
    of(env, run, &last).await
}

/// Returns the reasons of failed attempts, ordered by the time of their records. Those of tolerated units are the last.
async fn of(env: &Env, run: &Run, attempts: &BTreeMap<Unit, Attempt>) -> FlowResult<Vec<FirstCause>> {
    let units: Vec<Unit> = attempts.keys().copied().collect();
    let mut found = Vec::new();
    for (unit, attempt, record) in env.store.read_records(&run.id, &units).await? {
        let Some(result) = record.result else { continue };
        let counts = result.outcome == AttemptOutcome::Failed && attempts.get(&unit) == Some(&attempt);
        let Some(reason) = result.reason.filter(|_| counts) else { continue };
        found.push((result.at, FirstCause { unit, attempt, reason, evidence: result.evidence }));
    }
    found.sort_by_key(|(at, cause)| (*at, cause.unit));
    // The failure of a unit whose outputs a failed one reads is its cause.
    let mut causes = BTreeSet::new();
    for (_, FirstCause { unit, reason, .. }) in found.iter().rev() {
        if causes.contains(unit) || !run.graph().tolerates(*unit) {
            causes.insert(*unit);
            let reader = run.unit(*unit).filter(|_| reason.code == ReasonCode::Render);
            let reads = reader.into_iter().flat_map(|reader| &reader.reads);
            let reads = reads.filter(|read| read.at.hook == run.hook() && !read.optional);
            causes.extend(reads.map(|read| Unit(read.at.unit)));
        }
    }
    found.sort_by_key(|(_, cause)| !causes.contains(&cause.unit));
    Ok(found.into_iter().map(|(_, cause)| cause).collect())
}
