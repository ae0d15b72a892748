//! Logs of units.

use ebb_engine::{Attempt, Unit};
use ebb_wire::id::RunId;
use ebb_wire::relay::WorkState;

use crate::dispatch::work_name;
use crate::env::Env;
use crate::error::FlowError;
use crate::records::log_key;
use crate::run::{self, Run};

/// The tail of a unit's log, and of which try it is: from its relay while it runs, from the bucket once it has ended.
/// Without `attempt` the last try that has one.
///
/// # Errors
/// The store's.
pub async fn log(
    env: &Env,
    id: &RunId,
    key: &str,
    attempt: Option<u32>,
) -> Result<Option<(Attempt, String)>, FlowError> {
    let Some(run) = Run::load(env, id).await? else { return Ok(None) };
    let position = run.event().units.iter().position(|unit| unit.key == key);
    let Some(unit) = position.and_then(|at| u32::try_from(at).ok()).map(Unit) else { return Ok(None) };
    let last = run::attempt(&run.look(env).await?, unit);
    let tries = match attempt {
        Some(attempt) => vec![Attempt(attempt)],
        None => (1..=last.0).rev().map(Attempt).collect(),
    };
    for attempt in tries {
        if let Some(bytes) = env.store.get_object(&log_key(&run, unit, attempt)).await? {
            return Ok(Some((attempt, String::from_utf8_lossy(&bytes).into_owned())));
        }
        let log = match env.relay.get(run.cluster(unit), &work_name(&run, unit, attempt)).await {
            Ok(WorkState::Running { log }) => Some(log),
            Ok(WorkState::Waiting { before }) => {
                Some(format!("it waits for its turn, after {before} others\n"))
            }
            // Its result is on the way.
            Ok(WorkState::Ended(result)) => result.log,
            Ok(WorkState::Unknown | WorkState::Tombstoned) | Err(_) => None,
        };
        if let Some(log) = log {
            return Ok(Some((attempt, log)));
        }
    }
    Ok(None)
}
