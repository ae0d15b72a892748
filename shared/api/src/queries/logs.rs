//! Reads logs of units from the bucket or from a relay.

use std::fmt;

use ebb_engine::{Attempt, HeadState, Millis, RunPhase, Timestamp, Unit, UnitProgress, in_flight};
use ebb_protocol::{ErrorCode, RunId, TaskState};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use ebb_flow::run::attempt::{task_id, task_start};
use ebb_flow::run::records::log_key;
use ebb_flow::{Env, FlowResult, RelayError, RequestError, Run};

use crate::queries::live;

/// The end of a log, and what is known of its attempt.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShownLog {
    pub log: String,
    /// Lines that are not from the log: what the attempt waits for, and the age of a late heartbeat.
    pub state: String,
    /// The start of a running attempt, as its relay reports it.
    pub started: Option<Timestamp>,
}

pub struct UnitLog {
    pub attempt: Attempt,
    /// The last attempt that has begun.
    pub last: Attempt,
    /// True if the attempt may run.
    pub is_open: bool,
    pub found: Result<ShownLog, MissingLog>,
}

/// The reason why an attempt has no log. The texts are for people.
pub enum MissingLog {
    None(&'static str),
    /// The attempt may run, and the relay of this cluster did not return its log.
    NoResponse {
        cluster: String,
        reason: String,
    },
}

/// Returns the tail of a unit's log and its attempt: from the bucket, or from the relay while the unit runs. Without
/// `attempt`, returns the log of the last attempt that has one.
///
/// # Errors
/// Refuses a run, unit or attempt that does not exist.
pub async fn log(env: &Env, id: &RunId, key: &str, attempt: Option<u32>) -> Result<UnitLog, RequestError> {
    let unknown = |text: String| RequestError::refused(ErrorCode::NotFound, text);
    let run = Run::load(env, id).await?.ok_or_else(|| unknown(format!("run {id} does not exist")))?;
    let (unit, _) = run.find_unit(key).ok_or_else(|| unknown(format!("run {id} has no unit {key}")))?;
    let head = run.read_head(env).await?;
    let last = head.attempt(unit);
    if let Some(wanted) = attempt.filter(|wanted| !(1..=last.0).contains(wanted)) {
        return Err(unknown(format!("{key} has no attempt {wanted}; its last attempt is {}", last.0)));
    }
    let attempts: Vec<Attempt> = match attempt {
        Some(attempt) => vec![Attempt(attempt)],
        None => (1..=last.0).rev().map(Attempt).collect(),
    };
    // A list instead of an iterator: the compiler cannot prove that the future of a handler with its closure is `Send`.
    let reads: Vec<_> = attempts.into_iter().map(|attempt| log_of(env, &run, unit, attempt)).collect();
    let found = first_found(reads).await?;
    let is_open = |attempt: Attempt| in_flight(run.graph(), &head).contains(&(unit, attempt));
    let (attempt, found) = match found {
        Ok(Some((attempt, log))) => (attempt, Ok(log)),
        // The log of an attempt that has ended is in the bucket, if it has one.
        Err((attempt, reason)) if is_open(attempt) => {
            (attempt, Err(MissingLog::NoResponse { cluster: live::cluster_of(env, &run, unit), reason }))
        }
        _ => {
            let attempt = attempt.map_or(last, Attempt);
            (attempt, Err(MissingLog::None(absence(&run, &head, unit, attempt))))
        }
    };
    Ok(UnitLog { attempt, last, is_open: is_open(attempt), found })
}

/// Returns the logs of attempts of units, in their order. That of an attempt without one is empty.
///
/// # Errors
/// Returns an error if the table or the bucket cannot be read.
pub async fn of_attempts(
    env: &Env,
    id: &RunId,
    attempts: &[(String, u32)],
) -> FlowResult<Vec<Result<ShownLog, MissingLog>>> {
    let Some(run) = Run::load(env, id).await? else { return Ok(Vec::new()) };
    let units = attempts.iter().filter_map(|(key, attempt)| Some((run.find_unit(key)?.0, Attempt(*attempt))));
    let reads: Vec<_> = units.map(|(unit, attempt)| log_of(env, &run, unit, attempt)).collect();
    let found: Vec<AttemptLog> = stream::iter(reads).buffered(attempts.len().max(1)).try_collect().await?;
    let units = attempts.iter().filter_map(|(key, _)| Some(run.find_unit(key)?.0));
    let shown = units.zip(found).map(|(unit, found)| match found {
        Ok(log) => Ok(log.map(|(_, log)| log).unwrap_or_default()),
        Err((_, reason)) => Err(MissingLog::NoResponse { cluster: live::cluster_of(env, &run, unit), reason }),
    });
    Ok(shown.collect())
}

/// Returns the reason why an attempt has no log.
fn absence(run: &Run, head: &HeadState, unit: Unit, attempt: Attempt) -> &'static str {
    if head.status(unit) != UnitProgress::Open(attempt) {
        return "the attempt has ended without one";
    }
    match head.phase {
        RunPhase::Closed => "the run has ended without a result of the unit",
        _ if in_flight(run.graph(), head).contains(&(unit, attempt)) => "the unit has written nothing yet",
        _ => "the unit has not started",
    }
}

/// An attempt with its log, if it has one, or with the reason why its relay does not return the log.
type AttemptLog = Result<Option<(Attempt, ShownLog)>, (Attempt, String)>;

async fn log_of(env: &Env, run: &Run, unit: Unit, attempt: Attempt) -> FlowResult<AttemptLog> {
    let only_log = |log: String| ShownLog { log, ..ShownLog::default() };
    if let Some(bytes) = env.store.bucket.get_object(&log_key(run, unit, attempt)).await? {
        return Ok(Ok(Some((attempt, only_log(String::from_utf8_lossy(&bytes).into_owned())))));
    }
    if !run.is_relayed(unit) {
        return Ok(Ok(None));
    }
    let log = match env.relay.get(run.cluster(unit), &task_id(run, unit, attempt)).await {
        Ok(TaskState::Running(task)) => Some(ShownLog {
            state: state_of(task.waits.first(), task.heartbeat_ms),
            started: task.age_ms.map(|age| task_start(run, age, env.now())),
            log: task.log,
        }),
        Ok(TaskState::Queued { ahead }) => {
            Some(ShownLog { state: format!("{}\n", live::queued(ahead)), ..ShownLog::default() })
        }
        // The callback of the relay has not been applied yet.
        Ok(TaskState::Ended(result)) => result.log.map(only_log),
        Ok(TaskState::Unknown | TaskState::Tombstoned) | Err(RelayError::Refused(_)) => None,
        Err(RelayError::Unreachable(reason) | RelayError::Busy(reason)) => return Ok(Err((attempt, reason))),
    };
    Ok(Ok(log.map(|log| (attempt, log))))
}

/// The attempts that are read at the same time. A relay that does not respond delays each of them by some seconds.
const CONCURRENT: usize = 8;

/// Returns the first result that exists, in the order of `reads`, or else the first error.
async fn first_found<T, E, R>(reads: Vec<R>) -> FlowResult<Result<Option<T>, E>>
where
    R: Future<Output = FlowResult<Result<Option<T>, E>>>,
{
    let mut results = stream::iter(reads).buffered(CONCURRENT);
    let mut failed = None;
    while let Some(result) = results.next().await {
        match result? {
            Ok(None) => {}
            Ok(found) => return Ok(Ok(found)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Ok(failed.map_or(Ok(None), Err))
}

/// The age in milliseconds from which a heartbeat is late. Entrypoints send one every 15 s.
const LATE_MS: u64 = 60_000;

/// Returns the reason why a script waits and the age of a late heartbeat, each as a line.
fn state_of(wait: Option<impl fmt::Display>, heartbeat_ms: Option<u64>) -> String {
    let waiting = wait.map(|wait| format!("waiting: {wait}\n"));
    let late = heartbeat_ms.filter(|millis| *millis >= LATE_MS);
    let late = late.map(|millis| format!("last heartbeat of the entrypoint: {} ago\n", Millis(millis)));
    waiting.into_iter().chain(late).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn attempts_are_read_together_and_the_last_log_is_returned() {
        let together = Barrier::new(CONCURRENT);
        let read = async |attempt: usize| {
            together.wait().await;
            Ok(Ok::<_, ()>((attempt <= 5).then_some(attempt)))
        };
        let reads = (1..=CONCURRENT).rev().map(read).collect();
        assert_eq!(first_found(reads).await.unwrap(), Ok(Some(5)));
    }

    #[test]
    fn a_state_has_reason_and_late_heartbeat() {
        for (pending, heartbeat, expected) in [
            (None, None, ""),
            (None, Some(LATE_MS - 1), ""),
            (Some("Pod p: no node"), None, "waiting: Pod p: no node\n"),
            (Some("b"), Some(LATE_MS), "waiting: b\nlast heartbeat of the entrypoint: 1 min ago\n"),
        ] {
            assert_eq!(state_of(pending, heartbeat), expected);
        }
    }
}
