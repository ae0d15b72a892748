//! Changes the document of a living target, or of an instance that waits for its name.
//!
//! 1. Compile the document with the versions of plugins that the target has, unless it names others.
//! 2. Merge the plan into the present one. The difference decides which units run.
//! 3. Move the target, store the merged plan and start the run of the update in one transaction (rule 9).
//!
//! A target is updated between its runs. Its present plan has all units of earlier runs at their positions, so results of
//! these runs find their units, and the teardown undoes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_documents::compile::{self, PlanUpdate, UpdateError};
use ebb_documents::plan::{Plan, UnitRef};
use ebb_engine::target::update as decide_update;
use ebb_engine::{Millis, TargetPhase, UnitProgress};
use ebb_protocol::id;
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResult};
use ebb_store::{PendingCreation, ReadPlugins, TargetHead};

use crate::env::{CompiledPlan, Env};
use crate::error::{FlowError, RequestError};
use crate::instance::changes::PinnedVersions;
use crate::instance::events;
use crate::instance::rejection::LifecycleRejection;
use crate::instance::target_document::{CompiledDocument, compile_document, load_plan, no_document};
use crate::instance::transition::{self, NotificationSender};
use crate::operator::retry;
use crate::run::follow_up::FollowUp;
use crate::run::head::Run;

/// The result of an update with the generation of the target.
type UpdateOutcome = Option<(LifecycleResult, u64, FollowUp)>;

/// Applies the update of an instance that has begun or waits for its name. An unchanged document retries the failed units
/// of a failed target. Returns `None` if the target has changed meanwhile.
pub(super) async fn update(
    env: &Env,
    plugins: &dyn ReadPlugins,
    event: &LifecycleData,
    target: &TargetHead,
) -> Result<UpdateOutcome, RequestError<LifecycleRejection>> {
    let waiting = target.waiting.as_ref().filter(|waiting| target.uid != event.uid && waiting.uid == event.uid);
    let (plan, generation, routing_key) = match waiting {
        Some(waiting) => (&waiting.plan, waiting.generation, &waiting.routing_key),
        None => (&target.plan, target.generation, &target.routing_key),
    };
    let document = event.document.as_ref().ok_or_else(no_document)?;
    let instance = id::instance_key(&event.kind, &event.name, &event.uid);
    let current = match env.plan(&instance, plan).await {
        Err(error @ FlowError::Damaged { .. }) => {
            let pinned = waiting.map_or(&target.plugins, |waiting| &waiting.plugins);
            restore(env, plugins, event, document, (&instance, plan, pinned)).await?.ok_or(error)?
        }
        current => current?,
    };
    let versions = PinnedVersions::OfPlan(&current.plan);
    let compiled = compile_document(plugins, (&event.kind, &event.name), document, versions).await;
    let (wanted, _) = compiled.map_err(|error| error.map(LifecycleRejection::Document))?;
    let merged = merge(env, target, waiting.is_some(), (&current, &wanted)).await?;
    let other_key = event.routing_key.is_some() && event.routing_key != *routing_key;
    if merged.is_none() && !other_key {
        return Ok(Some(unchanged(env, event, target, (waiting, generation)).await?));
    }
    if event.generation <= generation {
        let text = format!(
            "the document differs from generation {generation} of {}/{}; expected a higher generation, got {}",
            event.kind, event.name, event.generation
        );
        return Err(LifecycleRejection::Conflict("outdated", text).into());
    }
    if waiting.is_some() {
        let plan = load_plan(wanted).await?;
        let transition = target.update(|after| after.waiting = Some(plan.pending(event)));
        let is_written = env.store.begin_instance(&transition, &instance, plan.json.as_bytes()).await?;
        return Ok(is_written.then(|| (LifecycleResult::Waiting, event.generation, FollowUp::default())));
    }
    let (plan, number) = match merged {
        Some(update) => (update.plan, update.number),
        None => (current.plan.clone(), None),
    };
    begin(env, event, target, load_plan(plan).await?, number).await
}

/// Returns the effect of a document on the present instance of a target, or on the one that waits for its name. Returns
/// `None` if the document changes nothing.
pub(crate) async fn merge(
    env: &Env,
    target: &TargetHead,
    is_waiting: bool,
    (current, wanted): (&CompiledPlan, &Plan),
) -> Result<Option<PlanUpdate>, RequestError<LifecycleRejection>> {
    let done = if is_waiting { None } else { done_units(env, target, current).await? };
    let is_done = |at: UnitRef| done.as_ref().is_none_or(|done| done.contains(&at));
    compile::update(&current.plan, wanted, is_done).map_err(|error| refused(error).into())
}

/// Begins the update of a living target to a merged plan. `number` is that of the update, if it has units.
async fn begin(
    env: &Env,
    event: &LifecycleData,
    target: &TargetHead,
    plan: CompiledDocument,
    number: Option<u32>,
) -> Result<UpdateOutcome, RequestError<LifecycleRejection>> {
    let step = match decide_update(&transition::engine_target(target), number) {
        Some(step) if target.phase == TargetPhase::Failed || events::is_idle(env, target).await? => step,
        _ => {
            let text = format!("{}/{} has a run; send the update again when it has ended", event.kind, event.name);
            return Err(LifecycleRejection::Busy(text).into());
        }
    };
    let state = plan.loaded.plan.update.as_ref();
    let changed = TargetHead {
        generation: event.generation,
        updates: state.map_or(target.updates, |state| state.number),
        plan: plan.loaded.digest.clone(),
        plugins: plan.plugins,
        routing_key: event.routing_key.clone().or_else(|| target.routing_key.clone()),
        expires: plan.loaded.plan.target.ttl_ms.map(|ttl| target.created.plus(Millis(ttl))),
        ..target.clone()
    };
    let mut transition = transition::transition(env, &changed, step, &plan.loaded, None).await?;
    transition.expected_version = Some(target.version);
    if !env.store.begin_instance(&transition, &target.instance_key(), plan.json.as_bytes()).await? {
        return Ok(None);
    }
    let result = if number.is_some() { LifecycleResult::Updating } else { LifecycleResult::Updated };
    let continuation = transition::after_transition(env, transition, &plan.loaded, NotificationSender::Queue).await?;
    Ok(Some((result, event.generation, FollowUp::drive(continuation))))
}

/// Returns the response to an update that changes nothing.
async fn unchanged(
    env: &Env,
    event: &LifecycleData,
    target: &TargetHead,
    (waiting, generation): (Option<&PendingCreation>, u64),
) -> Result<(LifecycleResult, u64, FollowUp), FlowError> {
    let mut result = LifecycleResult::Unchanged;
    if waiting.is_none() && target.phase == TargetPhase::Failed {
        let retried = retry::retry(env, &event.kind, &event.name).await?;
        if matches!(retried, retry::RetryOutcome::Retried(_)) {
            result = LifecycleResult::Retrying;
        }
    }
    Ok((result, generation, FollowUp::default()))
}

fn refused(error: UpdateError) -> LifecycleRejection {
    let code = match error {
        UpdateError::Fixed(_) => "fixed-field",
        UpdateError::TooLarge { .. } => "plan-too-large",
    };
    LifecycleRejection::Conflict(code, error.to_string())
}

/// Returns the units of a failed target that are done. All units of a ready target are.
async fn done_units(
    env: &Env,
    target: &TargetHead,
    current: &CompiledPlan,
) -> Result<Option<BTreeSet<UnitRef>>, FlowError> {
    if target.phase != TargetPhase::Failed {
        return Ok(None);
    }
    let mut done = BTreeSet::new();
    for hook in current.lifecycle_hooks().filter(|hook| !hook.is_teardown()) {
        let Some(run) = Run::load(env, &target.run(hook)).await? else { continue };
        let view = run.read_view(env).await?;
        let units = run.graph().units().filter(|&unit| view.status(unit) == UnitProgress::Done);
        done.extend(units.map(|unit| UnitRef { hook: hook.into(), unit: unit.0 }));
    }
    Ok(Some(done))
}

/// Stores the lost plan of a target again, if `document` compiles to it.
async fn restore(
    env: &Env,
    plugins: &dyn ReadPlugins,
    event: &LifecycleData,
    document: &str,
    (instance, digest, pinned): (&str, &str, &[String]),
) -> Result<Option<Arc<CompiledPlan>>, FlowError> {
    let versions = PinnedVersions::Listed(pinned);
    let plan = match compile_document(plugins, (&event.kind, &event.name), document, versions).await {
        Ok((plan, _)) => plan,
        Err(RequestError::Rejected(_)) => return Ok(None),
        Err(RequestError::Failed(error)) => return Err(error),
    };
    if plan.digest() != digest {
        return Ok(None);
    }
    env.store.restore_plan(instance, plan.to_json().as_bytes()).await?;
    tracing::warn!(kind = event.kind, name = event.name, digest, "restored a lost plan");
    let loaded = Arc::new(CompiledPlan::of(plan, digest)?);
    env.remember_plan(&loaded);
    Ok(Some(loaded))
}
