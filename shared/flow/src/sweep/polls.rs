//! Handles the messages by which an attempt asks for the state for which it waits.

use ebb_engine::{Attempt, RunPhase, Timestamp, Unit, UnitProgress};
use ebb_protocol::id::RunId;
use ebb_protocol::record::AttemptRecord;

use crate::advance::dispatch_all::drive;
use crate::advance::progress::Continuation;
use crate::env::Env;
use crate::error::FlowResult;
use crate::loaded_run::Run;

/// Asks for the state, unless the attempt has ended or a sweep has asked since. The message was sent before the sweep at
/// `sweep`.
pub(super) async fn receive_poll(
    env: &Env,
    id: &RunId,
    (unit, number): (Unit, Attempt),
    sweep: Timestamp,
) -> FlowResult<()> {
    let Some((run, head)) = Run::load_with_head(env, id).await? else { return Ok(()) };
    let is_running = head.phase == RunPhase::Running;
    if !is_running || head.status(unit) != UnitProgress::Open(number) {
        return Ok(());
    }
    let records = env.store.read_records(id, &[unit]).await?;
    let is_next = |record: &AttemptRecord| {
        record.wait.is_some() && record.result.is_none() && record.next_dispatch == Some(sweep)
    };
    if !records.iter().any(|(_, of, record)| *of == number && is_next(record)) {
        return Ok(());
    }
    drive(env, Continuation::dispatching(run, head.epoch, vec![(unit, number)])).await
}
