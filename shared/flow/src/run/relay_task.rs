//! Dispatches a unit to a relay: a script, objects, or a removal of objects.

use ebb_documents::plan::{HookPlan, ManifestConditions, ObjectAction, OutputFrom, PodAction, document_name};
use ebb_documents::render::{InputValue, RenderedInput, RenderedUnit};
use ebb_documents::{Action, UnitPlan, UnitRef};
use ebb_protocol::relay::{
    self, CallbackEndpoint, EnsureTask, ManifestFill, ObjectOutput, ObjectOutputFrom, ObjectTask, ReadyRules,
    ScriptInput, ScriptOutput, ScriptTask, TaskCompletion, TaskNames,
};
use ebb_protocol::{Callback, Millis, ReasonCode, SecretRef, TaskState, TokenKind, UnitValue, unit as headers};
use ebb_store::AttemptUpdate;

use crate::guarded_relay::{guarded, retry_at};
use crate::run::attempt::{task_start, task_unit, undone_name, unit_name};
use crate::run::callback_result::{relay_result, with_checked_outputs};
use crate::{AttemptContext, AttemptWakeup, DispatchOutcome, DispatchReason, FlowResult, RelayError, Run, telemetry};

/// The wait before a queued task is checked again: a quarter of the age of its run, between these bounds. Its result
/// arrives by callback.
const MIN_QUEUED_POLL_MS: u64 = 60_000;

const MAX_QUEUED_POLL_MS: u64 = 5 * 60 * 1000;

/// Returns the names of a unit for people who look at the cluster.
fn task_names(run: &Run, unit: &UnitPlan) -> TaskNames {
    let own = unit_name(run, unit);
    let plugin = run.loaded.plan.resource(unit.resource()).map(|resource| resource.plugin.clone());
    TaskNames {
        target: run.facts.target_key().to_string(),
        resource: document_name(own.resource).to_owned(),
        unit: own.unit.to_owned(),
        plugin: plugin.unwrap_or_default(),
        hook: unit.stage.unwrap_or_else(|| run.hook()).name().to_owned(),
    }
}

/// Returns the task of a unit, or `None` if no relay executes the unit.
pub(super) fn task_body(context: AttemptContext<'_>, rendered: RenderedUnit) -> Option<relay::TaskBody> {
    let AttemptContext { run, unit, .. } = context;
    Some(match (rendered, &unit.action) {
        (RenderedUnit::Pod { inputs }, Action::Pod(pod)) => {
            relay::TaskBody::Script(script_task(unit, pod, environment(context), inputs))
        }
        (RenderedUnit::Object { manifests, fill }, Action::Object(object)) => {
            relay::TaskBody::Objects(applied(run, unit, object, (manifests, fill)))
        }
        (RenderedUnit::Removal, Action::Removal) => relay::TaskBody::Objects(removed(run, unit)),
        _ => return None,
    })
}

/// Returns the task of a pod unit with its variables and inputs.
pub fn script_task(
    unit: &UnitPlan,
    pod: &PodAction,
    env: Vec<(String, String)>,
    inputs: Vec<RenderedInput>,
) -> ScriptTask {
    let outputs = unit.outputs.iter().filter_map(|(name, output)| match &output.from {
        OutputFrom::File(path) => {
            Some(ScriptOutput { name: name.clone(), path: path.clone(), sensitive: output.sensitive })
        }
        OutputFrom::Expression(_) | OutputFrom::Secret { .. } => None,
    });
    ScriptTask {
        image: pod.image.clone(),
        namespace: pod.namespace.clone(),
        pod_template: pod.pod_template.clone(),
        text: pod.script.clone(),
        env,
        inputs: inputs.into_iter().map(script_input).collect(),
        outputs: outputs.collect(),
    }
}

fn environment(AttemptContext { run, attempt, unit, .. }: AttemptContext<'_>) -> Vec<(String, String)> {
    let own = unit_name(run, unit);
    let resource = document_name(own.resource);
    // In an update, scripts see the hook of their document.
    let hook = unit.stage.unwrap_or_else(|| run.hook());
    let facts = &run.facts;
    let routing_key = facts.routing_key.clone().unwrap_or_else(|| facts.instance_key());
    // A script may end before it reports the name of its resource. Its undo gets the same key (rule StableKey).
    let undone = undone_name(run, unit);
    let mut pairs = vec![
        ("EBB_KEY", run.stable_key(undone.unwrap_or(own))),
        ("EBB_IDEMPOTENCY_KEY", run.idempotency_key(own)),
        ("EBB_ATTEMPT", attempt.number.0.to_string()),
        ("EBB_RUN", run.id.to_string()),
        ("EBB_HOOK", hook.name().to_owned()),
        ("EBB_RESOURCE", resource.to_owned()),
        ("EBB_UNIT", own.unit.to_owned()),
        ("EBB_TARGET_KIND", facts.kind.clone()),
        ("EBB_TARGET_NAME", facts.name.clone()),
        ("EBB_TARGET_UID", facts.uid.clone()),
        ("SIGNADOT_SANDBOX_ID", routing_key.clone()),
        ("SIGNADOT_SANDBOX_NAME", facts.name.clone()),
        ("SIGNADOT_SANDBOX_ROUTING_KEY", routing_key),
        ("SIGNADOT_RESOURCE_NAME", resource.to_owned()),
    ];
    pairs.extend(undone.map(|undone| (headers::UNDOES_IDEMPOTENCY_KEY_VARIABLE, run.idempotency_key(undone))));
    pairs.extend(telemetry::traceparent(&run.id, attempt).map(|of| (headers::TRACEPARENT_VARIABLE, of)));
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn script_input(input: RenderedInput) -> ScriptInput {
    let sensitive = matches!(input.value, InputValue::Secret(_) | InputValue::Opened(_));
    let value = match input.value {
        InputValue::Text(text) => Some(UnitValue::Json(serde_json::Value::String(text))),
        InputValue::Bytes(bytes) => Some(UnitValue::Bytes(bytes)),
        InputValue::Secret(secret) => Some(UnitValue::Secret(secret)),
        InputValue::Opened(bytes) => Some(UnitValue::from_bytes(bytes)),
        InputValue::Absent => None,
    };
    ScriptInput { name: input.name, env: input.env, path: input.path, value, sensitive }
}

/// Returns the task that applies objects and waits until they are ready. Objects of a setup hook remain until their
/// removal, objects of a teardown hook until the result is acknowledged.
fn applied(
    run: &Run,
    unit: &UnitPlan,
    object: &ObjectAction,
    (manifests, fill): (Vec<serde_json::Value>, Vec<(String, SecretRef)>),
) -> ObjectTask {
    // The contract of the kind replaces a missing rule. A single `ready: "${true}"` applies to all objects.
    let always = match &object.ready {
        Some(ManifestConditions::First(text)) if text.trim() == "true" => Some(text.clone()),
        _ => None,
    };
    let rule = |conditions: Option<&ManifestConditions>, manifest| conditions?.of(manifest).map(str::to_owned);
    let rules = (0..manifests.len()).map(|manifest| ReadyRules {
        ready: rule(object.ready.as_ref(), manifest).or_else(|| always.clone()),
        fail: rule(object.fail.as_ref(), manifest),
    });
    let outputs = unit.outputs.iter().filter_map(|(name, output)| {
        let from = match &output.from {
            OutputFrom::Expression(text) => ObjectOutputFrom::Value(text.clone()),
            OutputFrom::Secret { name, key } => ObjectOutputFrom::Secret { name: name.clone(), key: key.clone() },
            OutputFrom::File(_) => return None,
        };
        Some(ObjectOutput { name: name.clone(), from, sensitive: output.sensitive, optional: output.optional })
    });
    let filled = |(key, secret)| ManifestFill { manifest: 0, key, secret };
    let plan = &run.loaded.plan;
    ObjectTask {
        instance: run.facts.instance_key(),
        // A bound object names its namespace, which need not be one of units.
        namespace: plan.target.namespace.clone().filter(|_| !object.bound),
        apply: manifests,
        bind: object.bound,
        fill: fill.into_iter().map(filled).collect(),
        adopts: if object.bound { bound_before(run) } else { Vec::new() },
        until: TaskCompletion::Ready(rules.collect()),
        outputs: outputs.collect(),
        keep: unit.is_setup(run.hook()),
        fail_fast: object.fail_fast,
        ..ObjectTask::default()
    }
}

/// Returns the units of earlier runs that have applied objects of `bind`.
fn bound_before(run: &Run) -> Vec<String> {
    let hooks = run.loaded.plan.hooks.iter().filter(|hook| hook.hook != run.hook());
    let bound = |(_, unit): &(UnitRef, &UnitPlan)| matches!(&unit.action, Action::Object(object) if object.bound);
    hooks.flat_map(HookPlan::places).filter(bound).map(|(at, _)| task_unit(run, at)).collect()
}

/// Returns the task that removes the objects of all attempts of the units that `unit` undoes.
fn removed(run: &Run, unit: &UnitPlan) -> ObjectTask {
    let names = unit.undoes.iter().map(|&at| task_unit(run, at));
    ObjectTask { instance: run.facts.instance_key(), remove: names.collect(), ..ObjectTask::default() }
}

pub(super) async fn ensure_task(
    context: AttemptContext<'_>,
    body: relay::TaskBody,
    remaining: u32,
    reason: DispatchReason,
) -> FlowResult<DispatchOutcome> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    let begun = env.now();
    telemetry::dispatch_started(run, attempt, begun);
    let cluster = run.cluster(attempt.unit);
    let request = EnsureTask {
        v: relay::VERSION,
        task: context.task(),
        valid_for_ms: env.settings.max_in_flight.0,
        timeout_ms: unit.timeout_ms,
        callback: CallbackEndpoint {
            url: env.settings.callback_url.clone(),
            token: context.token(TokenKind::Relay, remaining),
            installation: env.settings.installation.clone(),
        },
        names: task_names(run, unit),
        body,
    };
    let response = guarded(env, cluster.name, env.relay.ensure(cluster, request)).await;
    let failure = match &response {
        Ok(_) => None,
        Err(RelayError::Refused(_)) => Some("refused"),
        Err(RelayError::Unreachable(_)) => Some("unreachable"),
        Err(RelayError::Busy(_)) => Some("busy"),
    };
    telemetry::dispatch_ended(run, attempt, (begun, env.now()), failure);
    match response {
        Ok(TaskState::Ended(callback)) => Ok(task_end(context, *callback)),
        // A tombstoned attempt was superseded or cancelled. Its cancel records the result, or its deadline ends it.
        Ok(state @ (TaskState::Running(_) | TaskState::Unknown | TaskState::Tombstoned)) => {
            if reason == DispatchReason::SweepStart {
                // The deadline counts from this start (rule DeadlineFromStart).
                let age_ms = if let TaskState::Running(task) = &state { task.age_ms } else { None };
                let now = env.now();
                context.update(AttemptUpdate::Started(age_ms.map_or(now, |age| task_start(run, age, now)))).await?;
            }
            Ok(DispatchOutcome::later(None))
        }
        Ok(TaskState::Queued { .. }) => {
            // A queued task has not started (rule DeadlineFromStart).
            let age = env.now().since(run.facts.started).0;
            let at = env.now().plus(Millis((age / 4).clamp(MIN_QUEUED_POLL_MS, MAX_QUEUED_POLL_MS)));
            context.update(AttemptUpdate::Postponed(at, None)).await?;
            Ok(DispatchOutcome::later(Some(AttemptWakeup::Poll(at))))
        }
        Err(RelayError::Refused(reason)) => Ok(DispatchOutcome::failed(ReasonCode::NotStartable, &reason)),
        Err(error @ (RelayError::Unreachable(_) | RelayError::Busy(_))) => {
            tracing::warn!(run = %run.id, %error, "the dispatch failed; the unit is dispatched again");
            Ok(DispatchOutcome::later(Some(AttemptWakeup::Poll(retry_at(env, cluster.name)))))
        }
    }
}

/// Returns the outcome of an attempt whose task has ended. The callback of the relay may never arrive, so the result is
/// applied here.
fn task_end(context: AttemptContext<'_>, callback: Callback) -> DispatchOutcome {
    match relay_result(callback) {
        Some(end) => DispatchOutcome::ended(with_checked_outputs(context, end)),
        None => DispatchOutcome::later(None),
    }
}

/// Ends an attempt that its relay has refused, or whose input cannot be rendered any more, with its `failure`. An earlier
/// request to start it may still arrive, so the relay first gets a tombstone. If the relay does not confirm it, the
/// attempt counts as started, and its undo runs.
pub(super) async fn prevent_start(
    context: AttemptContext<'_>,
    failure: DispatchOutcome,
) -> FlowResult<DispatchOutcome> {
    let AttemptContext { env, run, attempt, .. } = context;
    let (cluster, task) = (run.cluster(attempt.unit), context.task());
    match guarded(env, cluster.name, env.relay.cancel(cluster, &task, env.settings.grace)).await {
        Ok(TaskState::Tombstoned) => Ok(failure),
        Ok(TaskState::Ended(callback)) => Ok(task_end(context, *callback)),
        _ => {
            context.update(AttemptUpdate::Started(env.now())).await?;
            Ok(failure)
        }
    }
}
