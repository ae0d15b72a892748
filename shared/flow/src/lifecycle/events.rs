//! Receives events of active targets, such as `sleep`, and runs their units one event after the other.
//!
//! 1. Append the event to the waiting events of the target. If the target is ready and none of its runs is active, the
//!    same write begins the run.
//! 2. Otherwise the write that ends the active run begins the next one.
//! 3. The active run may end between its read and the append. The receiver therefore reads it again after the append,
//!    and a target with waiting events is due.

use ebb_engine::target::{EventDecision, event as decide_event, next_event};
use ebb_engine::{EventName, Hook};
use ebb_protocol::{ErrorCode, EventRef, LifecycleData, LifecycleResult, RunId};
use ebb_store::TargetHead;

use crate::advance::{FollowUp, next_run, transition};
use crate::instance::rejection::{not_begun, stale};
use crate::instance::{due, retention};
use crate::{Env, FlowError, FlowResult, RequestError};

/// Maximum events of a target that wait for a run.
const MAX_WAITING: usize = 16;

/// Accepts the event of a webhook with the CloudEvent id `id`. The same id is accepted once. Also returns the generation
/// of the target.
pub(super) async fn receive(
    env: &Env,
    data: &LifecycleData,
    id: &str,
) -> Result<(LifecycleResult, u64, FollowUp), RequestError> {
    let key = data.target_key();
    let Some(event) = data.event.as_deref().and_then(EventName::new) else {
        let text = "`data.event` is missing; expected the name of an event";
        return Err(RequestError::refused(ErrorCode::MissingField, text));
    };
    let event = EventRef::new(event, id);
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(key).await?;
        let known = seen.as_ref().map(transition::engine_target);
        let seen = match (decide_event(known.as_ref(), &data.uid), seen) {
            (EventDecision::Accepted, Some(seen)) => seen,
            (EventDecision::Unknown, _) | (_, None) => {
                let text = format!("{} {:?} does not exist", key.kind, key.name);
                return Err(RequestError::refused(ErrorCode::NotFound, text));
            }
            (EventDecision::Stale, _) => return Err(stale(data).into()),
            (EventDecision::Waiting, _) => return Err(not_begun(data).into()),
            (EventDecision::Failed, _) => {
                let text = format!("{key} has failed; retry it or delete it, then send the event again");
                return Err(RequestError::refused(ErrorCode::Failed, text));
            }
        };
        let loaded = env.plan_of(&seen).await?;
        let run = RunId::of_event(&seen.instance_key(), seen.first_generation, &event);
        let has_units = loaded.hook_plan(Hook::Event(event.name)).is_some() || is_added(env, &seen, event.name).await?;
        let is_repeated = seen.events.has(&event) || env.store.read_run(&run).await?.is_some();
        if !has_units && !is_repeated && !due::touch(env, &seen).await? {
            continue;
        }
        if !has_units || is_repeated {
            return Ok((LifecycleResult::Unchanged, seen.generation, FollowUp::default()));
        }
        if seen.events.waiting.len() >= MAX_WAITING {
            let text = format!("{MAX_WAITING} events wait for {key} already; send the event again later");
            return Err(RequestError::refused(ErrorCode::Busy, text));
        }
        // A crash after this leaves a removal of a run that does not exist.
        retention::schedule_removal(env, &seen, Some(event.clone())).await?;
        let mut appended = seen.clone();
        appended.events.append(event.clone(), env.now());
        due::note_activity(env, &mut appended).await?;
        let is_idle = next_run::is_idle(env, &seen).await?;
        let step = next_event(&transition::engine_target(&appended)).filter(|_| is_idle);
        let transition = match step {
            Some(step) => Box::pin(transition::transition(env, &appended, step, &loaded, (None, None))).await?,
            None => appended.update(|target| target.due = due::next_due(env, target)),
        };
        if !env.store.move_target(&transition).await? {
            continue;
        }
        let next = match step {
            Some(_) => Box::pin(transition::after_transition(env, transition, &loaded)).await?,
            None => next_run::start_event(env, key).await?,
        };
        let result = match &next {
            Some(next) if next.run.id == run => LifecycleResult::Running,
            _ => LifecycleResult::Waiting,
        };
        return Ok((result, seen.generation, FollowUp::drive(next)));
    }
    Err(FlowError::Contended(key.to_string()).into())
}

/// Returns true if the update that waits has units of an event.
async fn is_added(env: &Env, target: &TargetHead, event: EventName) -> FlowResult<bool> {
    let Some(pending) = &target.pending_update else { return Ok(false) };
    Ok(env.plan(&target.update_key(pending), &pending.plan).await?.hook_plan(Hook::Event(event)).is_some())
}
