//! Dispatches a unit to a relay: a script, objects, or a removal of objects.

use ebb_documents::plan::{Action, OutputFrom, PodAction, UnitPlan};
use ebb_documents::render::{InputValue, RenderedInput, RenderedUnit};
use ebb_engine::Millis;
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::id::{hook_name, unit_key};
use ebb_protocol::relay::{self, CallbackEndpoint, EnsureTask, ScriptInput, ScriptOutput, ScriptTask, TaskState};
use ebb_protocol::token::{TokenKind, idempotency_key};
use ebb_protocol::unit as headers;
use ebb_protocol::value::UnitValue;

use crate::env::Env;
use crate::error::FlowError;
use crate::guarded_relay::{GuardedRelay, retry_at};
use crate::ports::{RelayClient as _, RelayError};
use crate::run::attempt::{AttemptRef, split_key, task_id, token, undone_parts};
use crate::run::callback_result::{relay_result, with_checked_outputs};
use crate::run::dispatch_outcome::{DispatchOutcome, DispatchReason};
use crate::run::head::Run;
use crate::run::objects;
use crate::run::records;
use crate::run::wakeup::{AttemptWakeup, postpone, record_start};
use crate::telemetry;

/// Work that waits for its turn at a relay is asked for again after a quarter of the age of its run, within these bounds:
/// its result comes by itself.
const MIN_QUEUED_POLL_MS: u64 = 60_000;

const MAX_QUEUED_POLL_MS: u64 = 5 * 60 * 1000;

pub(super) fn ensure(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    unit: &UnitPlan,
    work: relay::TaskBody,
    more: u32,
) -> EnsureTask {
    let token = token(env, run, this, unit, TokenKind::Relay, more);
    EnsureTask {
        v: relay::VERSION,
        task: task_id(run, this.unit, this.attempt),
        valid_for_ms: env.settings.max_in_flight.0,
        timeout_ms: unit.timeout_ms,
        callback: CallbackEndpoint {
            url: env.settings.callback_url.clone(),
            token,
            installation: env.settings.installation.clone(),
        },
        body: work,
    }
}

/// Returns the work that a relay is asked for; `None` for a unit that no relay runs.
pub(super) fn task_body(
    run: &Run,
    this: AttemptRef,
    unit: &UnitPlan,
    rendered: RenderedUnit,
) -> Option<relay::TaskBody> {
    Some(match (rendered, &unit.action) {
        (RenderedUnit::Pod { inputs }, Action::Pod(pod)) => {
            relay::TaskBody::Script(script(run, this, unit, pod, inputs))
        }
        (RenderedUnit::Object { manifests }, Action::Object(object)) => {
            relay::TaskBody::Objects(objects::applied(run, unit, object, manifests))
        }
        (RenderedUnit::Removal, Action::Removal) => relay::TaskBody::Objects(objects::removed(run, unit)),
        _ => return None,
    })
}

fn script(run: &Run, this: AttemptRef, unit: &UnitPlan, pod: &PodAction, inputs: Vec<RenderedInput>) -> ScriptTask {
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
        env: environment(run, this, unit),
        inputs: inputs.into_iter().map(script_input).collect(),
        outputs: outputs.collect(),
    }
}

/// What every script sees beside its inputs.
fn environment(run: &Run, this: AttemptRef, unit: &UnitPlan) -> Vec<(String, String)> {
    let (resource, name) = split_key(&unit.key);
    let facts = &run.facts;
    let routing_key = facts.routing_key.clone().unwrap_or_else(|| run.instance_key());
    let life = run.instance_key();
    // A script may die before it can report the name of the thing that it made. Its undo gets the same key.
    let undone = undone_parts(run, unit);
    let (key_resource, key_unit) = undone.unwrap_or((resource, name));
    let mut pairs = vec![
        ("EBB_KEY", unit_key(&life, key_resource, key_unit)),
        ("EBB_IDEMPOTENCY_KEY", idempotency_key(&life, resource, name)),
        ("EBB_ATTEMPT", this.attempt.0.to_string()),
        ("EBB_RUN", run.id.to_string()),
        ("EBB_HOOK", hook_name(run.hook()).to_owned()),
        ("EBB_RESOURCE", resource.to_owned()),
        ("EBB_UNIT", name.to_owned()),
        ("EBB_TARGET_KIND", facts.kind.clone()),
        ("EBB_TARGET_NAME", facts.name.clone()),
        ("EBB_TARGET_UID", facts.uid.clone()),
        ("SIGNADOT_SANDBOX_ID", routing_key.clone()),
        ("SIGNADOT_SANDBOX_NAME", facts.name.clone()),
        ("SIGNADOT_SANDBOX_ROUTING_KEY", routing_key),
        ("SIGNADOT_RESOURCE_NAME", resource.to_owned()),
    ];
    pairs
        .extend(undone.map(|(resource, name)| {
            (headers::UNDOES_IDEMPOTENCY_KEY_VARIABLE, idempotency_key(&life, resource, name))
        }));
    pairs.extend(telemetry::traceparent(&run.id, this).map(|of| (headers::TRACEPARENT_VARIABLE, of)));
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn script_input(input: RenderedInput) -> ScriptInput {
    let value = match input.value {
        InputValue::Text(text) => Some(UnitValue::Json(serde_json::Value::String(text))),
        InputValue::Bytes(bytes) => Some(UnitValue::Bytes(bytes)),
        InputValue::Secret(secret) => Some(UnitValue::Secret(records::from_secret(secret))),
        InputValue::Absent => None,
    };
    ScriptInput { name: input.name, env: input.env, path: input.path, value }
}

pub(super) async fn ensure_task(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    request: EnsureTask,
    sender: DispatchReason,
) -> Result<DispatchOutcome, FlowError> {
    let begun = env.now();
    telemetry::dispatch_started(run, this, begun);
    let cluster = run.cluster(this.unit);
    let answer = GuardedRelay(env).ensure(cluster, request).await;
    let wrong = match &answer {
        Ok(_) => None,
        Err(RelayError::Refused(_)) => Some("refused"),
        Err(RelayError::Unreachable(_)) => Some("unreachable"),
        Err(RelayError::Busy(_)) => Some("busy"),
    };
    telemetry::dispatch_ended(run, this, begun, env.now(), wrong);
    match answer {
        Ok(TaskState::Ended(callback)) => Ok(match (relay_result(*callback), run.unit(this.unit)) {
            // Its callback may never come: it is taken from here as it would be from there.
            (Some(ended), Some(unit)) => DispatchOutcome::ended(with_checked_outputs(run, unit, ended)),
            _ => DispatchOutcome::later(None),
        }),
        // A tombstoned try was superseded or cancelled, and its canceller records that, or it runs out of time.
        Ok(TaskState::Running { .. } | TaskState::Unknown | TaskState::Tombstoned) => {
            if sender == DispatchReason::SweepStart {
                // From now on its time runs.
                record_start(env, run, this).await?;
            }
            Ok(DispatchOutcome::later(None))
        }
        Ok(TaskState::Queued { .. }) => {
            // Its time has not begun.
            let age = env.now().since(run.facts.started).0;
            let at = env.now().plus(Millis((age / 4).clamp(MIN_QUEUED_POLL_MS, MAX_QUEUED_POLL_MS)));
            postpone(env, run, this, at).await?;
            Ok(DispatchOutcome::later(Some(AttemptWakeup::Poll(at))))
        }
        Err(RelayError::Refused(reason)) => Ok(DispatchOutcome::failed(ReasonCode::NotStartable, &reason)),
        Err(error @ (RelayError::Unreachable(_) | RelayError::Busy(_))) => {
            tracing::warn!(run = %run.id, %error, "the unit is sent again");
            Ok(DispatchOutcome::later(Some(AttemptWakeup::Poll(retry_at(env, cluster)))))
        }
    }
}
