//! Receives events of active targets, such as `sleep`, and runs their units one event after the other.
//!
//! 1. Append the event to the waiting events of the target. If the target is ready and none of its runs is active, the
//!    same write begins the run.
//! 2. Otherwise the write that ends the active run begins the next one.
//! 3. The active run may end between its read and the append. The receiver therefore reads it again after the append,
//!    and a target with waiting events is due.

use ebb_engine::follow::{in_flight, outcome};
use ebb_engine::target::{EventDecision, event as decide_event, next_event};
use ebb_engine::{EventName, Hook, RunOutcome, RunPhase, TargetPhase};
use ebb_protocol::id::{EventRef, RunId};
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResult};
use ebb_store::TargetHead;

use crate::env::Env;
use crate::error::{FlowError, RequestError};
use crate::instance::due;
use crate::instance::rejection::{LifecycleRejection, stale};
use crate::instance::transition::{self, NotificationSender};
use crate::run::follow_up::FollowUp;
use crate::run::head::Run;
use crate::run::progress::Continuation;
use crate::sweep::retention;

/// Maximum events of a target that wait for a run.
const MAX_WAITING: usize = 16;

/// Accepts the event of a webhook with the CloudEvent id `id`. The same id is accepted once. Also returns the generation
/// of the target.
pub(super) async fn receive(
    env: &Env,
    data: &LifecycleData,
    id: &str,
) -> Result<(LifecycleResult, u64, FollowUp), RequestError<LifecycleRejection>> {
    let LifecycleData { kind, name, .. } = data;
    let Some(event) = data.event.as_deref().and_then(EventName::new) else {
        let text = "`data.event` is missing; expected the name of an event";
        return Err(LifecycleRejection::Missing(text.to_owned()).into());
    };
    let event = EventRef::new(event, id);
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(kind, name).await?;
        let known = seen.as_ref().map(transition::engine_target);
        let seen = match (decide_event(known.as_ref(), &data.uid), seen) {
            (EventDecision::Accepted, Some(seen)) => seen,
            (EventDecision::Unknown, _) | (_, None) => {
                return Err(LifecycleRejection::Unknown(format!("{kind} {name:?} does not exist")).into());
            }
            (EventDecision::Stale, _) => return Err(stale(data).into()),
            (EventDecision::Failed, _) => {
                let text = format!("{kind}/{name} has failed; retry it or delete it, then send the event again");
                return Err(LifecycleRejection::Conflict("failed", text).into());
            }
        };
        let loaded = env.plan_of(&seen).await?;
        let run = RunId::of_event(&seen.instance_key(), seen.first_generation, &event);
        let has_units = loaded.hook_plan(Hook::Event(event.name)).is_some();
        if !has_units || seen.events.has(&event) || env.store.read_root(&run).await?.is_some() {
            return Ok((LifecycleResult::Unchanged, seen.generation, FollowUp::default()));
        }
        if seen.events.waiting.len() >= MAX_WAITING {
            let text = format!("{MAX_WAITING} events wait for {kind}/{name} already; send the event again later");
            return Err(LifecycleRejection::Busy(text).into());
        }
        // A crash after this leaves a removal of a run that does not exist.
        retention::schedule_event_removal(env, &seen, &event).await?;
        let mut appended = seen.clone();
        appended.events.waiting.push(event.clone());
        let is_idle = is_idle(env, &seen).await?;
        let step = next_event(&transition::engine_target(&appended)).filter(|_| is_idle);
        let transition = match step {
            Some(step) => transition::transition(env, &appended, step, &loaded, None).await?,
            None => appended.update(|target| target.due = due::next_due(env, target)),
        };
        if !env.store.move_target(&transition).await? {
            continue;
        }
        let next = match step {
            Some(_) => transition::after_transition(env, transition, &loaded, NotificationSender::Queue).await?,
            None => start_next(env, kind, name).await?,
        };
        let result = match &next {
            Some(next) if next.run.id == run => LifecycleResult::Running,
            _ => LifecycleResult::Waiting,
        };
        return Ok((result, seen.generation, FollowUp::drive(next)));
    }
    Err(FlowError::Contended(format!("{kind}/{name}")).into())
}

/// Begins the run of the first waiting event, unless a run of the target is active.
pub(crate) async fn start_next(env: &Env, kind: &str, name: &str) -> Result<Option<Continuation>, FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let Some(seen) = env.store.read_target(kind, name).await? else { return Ok(None) };
        let Some(step) = next_event(&transition::engine_target(&seen)) else { return Ok(None) };
        if !is_idle(env, &seen).await? {
            return Ok(None);
        }
        let loaded = env.plan_of(&seen).await?;
        let transition = transition::transition(env, &seen, step, &loaded, None).await?;
        if env.store.move_target(&transition).await? {
            return transition::after_transition(env, transition, &loaded, NotificationSender::Queue).await;
        }
    }
    Err(FlowError::Contended(format!("{kind}/{name}")))
}

/// Returns true if the target is ready and none of its runs is active.
pub(super) async fn is_idle(env: &Env, target: &TargetHead) -> Result<bool, FlowError> {
    let hook = match target.hook {
        _ if target.phase != TargetPhase::Ready => return Ok(false),
        Some(hook @ (Hook::PostStart | Hook::Event(_))) => hook,
        // Without units in postStart, the run of preStart has ended.
        _ => return Ok(true),
    };
    let Some(run) = Run::load(env, &target.run(hook)).await? else { return Ok(true) };
    let view = run.read_view(env).await?;
    let is_closed = view.root().is_some_and(|root| root.phase == RunPhase::Closed);
    // A closed run of postStart with other units is being retried.
    let is_complete = || in_flight(run.graph(), &view).is_empty() && outcome(&view) == RunOutcome::Succeeded;
    Ok(is_closed && (hook != Hook::PostStart || is_complete()))
}
