//! Sending one unit: it is rendered, and sent to where it runs.

use std::time::Duration;

use ebb_documents::plan::{Action, OutputFrom, PodAction, UnitPlan};
use ebb_documents::render::{self, InputValue, ProducerState, RenderedInput, RenderedUnit, SkipReason};
use ebb_egress::{CallError, HttpRequest, HttpResponse, retry_after};
use ebb_engine::{Attempt, Epoch, Millis, RunEvent, Timestamp, Unit, accept};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::id::{RunId, hook_name, unit_key};
use ebb_protocol::relay::{
    self, CallbackEndpoint, EnsureTask, ScriptInput, ScriptOutput, ScriptTask, TaskId, TaskState,
};
use ebb_protocol::sign::{self, MessageId};
use ebb_protocol::token::{TokenClaims, TokenKind, idempotency_key};
use ebb_protocol::unit as headers;
use ebb_protocol::value::UnitValue;
use ebb_store::{AttemptUpdate, PatchResult};

use crate::breaker::{self, GuardedRelay};
use crate::env::Env;
use crate::error::FlowError;
use crate::ports::{QueueMessage, RelayClient as _, RelayError};
use crate::run::attempt_end::{AttemptEnd, AttemptFailure, AttemptSuccess};
use crate::run::callback;
use crate::run::describe;
use crate::run::evidence;
use crate::run::head::Run;
use crate::run::inputs::{self, InvocationCache};
use crate::run::objects;
use crate::run::records;
use crate::run::undo::{self, UndoDecision};
use crate::sweep::MAX_MESSAGE_DELAY;
use crate::switch::{self, ProtocolRule};
use crate::telemetry;

/// A callback token stays valid for this long after the unit's own deadline; later results are recorded as late.
const TOKEN_SLACK_MS: u64 = 60 * 60 * 1000;

/// One try of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRef {
    pub unit: Unit,
    pub attempt: Attempt,
    /// The epoch in which it was decided.
    pub epoch: Epoch,
}

/// What became of a send.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchOutcome {
    /// How the try ended; `None`: its result will come later.
    pub end: Option<AttemptEnd>,
    /// For an undo: the number of further things that it has to remove.
    pub remaining: u32,
    /// When the run has to be looked at; `None`: this send is no reason for it.
    pub wakeup: Option<AttemptWakeup>,
    /// True if the receiver will call back, which the caller has to note.
    pub is_accepted: bool,
}

/// When a run has to be looked at because of one of its tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptWakeup {
    /// A cluster is asked again: it gave no answer, or the try waits there for its turn.
    Poll(Timestamp),
    /// The record of the try says that something begins then.
    Recorded(Timestamp),
}

/// On whose behalf a try is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchReason {
    /// A result that has just made it ready.
    Result,
    /// A look that knows its start.
    SweepRepeat,
    /// A look that knows of no start. The try may have been sent before.
    SweepStart,
}

impl DispatchOutcome {
    pub(crate) fn ended(ended: AttemptEnd) -> Self {
        Self { end: Some(ended), remaining: 0, wakeup: None, is_accepted: false }
    }

    /// Its result comes later.
    pub(crate) fn later(wakeup: Option<AttemptWakeup>) -> Self {
        Self { end: None, remaining: 0, wakeup, is_accepted: false }
    }

    fn failed(code: ReasonCode, message: &str) -> Self {
        Self::ended(AttemptEnd::Failed(AttemptFailure::new(code, message)))
    }
}

/// Renders and sends a try. Idempotent: the receiver knows a try by its name, so a repetition only asks for its state.
///
/// # Errors
/// The store's. A receiver that fails is an answer, not an error.
pub async fn send(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    memory: &InvocationCache,
    sender: DispatchReason,
) -> Result<DispatchOutcome, FlowError> {
    let Some(unit) = run.unit(this.unit) else {
        return Err(FlowError::Broken(format!("run {} has no unit {}", run.id, this.unit.0)));
    };
    let mut known = inputs::read_inputs(env, run, unit, memory).await?;
    let mut more = 0;
    let mut possible = Timestamp(0);
    if !unit.undoes.is_empty() {
        match undo::decide(env, run, unit, this, memory).await? {
            UndoDecision::Nothing(why) => return Ok(DispatchOutcome::ended(AttemptEnd::Skipped(why))),
            UndoDecision::Later(at) => {
                postpone(env, run, this, at).await?;
                return Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))));
            }
            UndoDecision::Remove { made, remaining: further, may_act_until: until } => {
                known.extend(undo::undo_inputs(env, unit, made).await?);
                // A skipped unit has no outputs. The undo removes what the other units made all the same.
                let skipped = known.values_mut().filter(|produced| **produced == ProducerState::Skipped);
                skipped.for_each(|produced| *produced = ProducerState::Absent);
                more = further;
                possible = until;
            }
        }
    }
    let at = ebb_documents::plan::UnitRef { hook: run.hook().into(), unit: this.unit.0 };
    let rendered = render::unit(&run.loaded.plan, &run.loaded.compiled, at, &run.target_facts(), &known);
    // Many requests may be under way at a time, and each may take long.
    drop(known);
    let sent = match rendered {
        Err(error) => DispatchOutcome::failed(ReasonCode::Render, &error.to_string()),
        Ok(RenderedUnit::Skipped(reason)) => DispatchOutcome::ended(AttemptEnd::Skipped(skip_text(&reason))),
        Ok(RenderedUnit::Webhook(request)) => {
            let call = WebhookDispatch { request, remaining: more, may_act_until: possible };
            post_webhook(env, run, this, unit, call, sender).await?
        }
        Ok(rendered) => match task_body(run, this, unit, rendered) {
            Some(work) => ensure_task(env, run, this, ensure(env, run, this, unit, work, more), sender).await?,
            None => return Err(FlowError::Broken(format!("{} is rendered as what it is not", unit.key))),
        },
    };
    if sender == DispatchReason::SweepStart
        && unit.action.is_relayed()
        && matches!(sent.end, Some(AttemptEnd::Failed(_)))
    {
        // An earlier sender may have reached the relay.
        record_start(env, run, this).await?;
    }
    Ok(DispatchOutcome { remaining: more, ..sent })
}

fn skip_text(reason: &SkipReason) -> String {
    match reason {
        SkipReason::WhenFalse => "its `when` is false".to_owned(),
        SkipReason::ReadsSkipped { unit, output } => {
            format!("it reads output `{output}` of `{unit}`, which was skipped")
        }
    }
}

/// The name of a try at its relay.
pub fn task_id(run: &Run, unit: Unit, attempt: Attempt) -> TaskId {
    TaskId { unit: TaskId::unit_of(&run.id, unit), attempt: attempt.0 }
}

fn token(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan, kind: TokenKind, more: u32) -> String {
    let expires = env.now().0.saturating_add(unit.timeout_ms).saturating_add(TOKEN_SLACK_MS);
    let claims = TokenClaims {
        run: run.id.clone(),
        unit: this.unit,
        attempt: this.attempt,
        epoch: this.epoch,
        expiry: Timestamp(expires),
        kind,
        remaining_results: more,
    };
    env.settings.token_keys.mint(&claims)
}

/// When a try was sent, by its token.
pub(crate) fn sent_at(claims: &TokenClaims, unit: &UnitPlan) -> Timestamp {
    Timestamp(claims.expiry.0.saturating_sub(unit.timeout_ms).saturating_sub(TOKEN_SLACK_MS))
}

/// The resource and the unit of a key `resource/unit`.
fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// Returns the resource and the name of the unit that an undo undoes; of the first one, if there are several.
fn undone_parts<'a>(run: &'a Run, unit: &UnitPlan) -> Option<(&'a str, &'a str)> {
    let undone = unit.undoes.first().and_then(|&at| run.loaded.plan.unit(at))?;
    Some(split_key(&undone.key))
}

fn ensure(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan, work: relay::TaskBody, more: u32) -> EnsureTask {
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
fn task_body(run: &Run, this: AttemptRef, unit: &UnitPlan, rendered: RenderedUnit) -> Option<relay::TaskBody> {
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
    let stable = match switch::holds(ProtocolRule::StableKey) {
        true => idempotency_key(&life, resource, name),
        false => idempotency_key(&life, resource, &format!("{name}-{}", this.attempt.0)),
    };
    // A script may die before it can report the name of the thing that it made. Its undo gets the same key.
    let undone = undone_parts(run, unit);
    let (key_resource, key_unit) = undone.unwrap_or((resource, name));
    let mut pairs = vec![
        ("EBB_KEY", unit_key(&life, key_resource, key_unit)),
        ("EBB_IDEMPOTENCY_KEY", stable),
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

/// Work that waits for its turn at a relay is asked for again after a quarter of the age of its run, within these bounds:
/// its result comes by itself.
const MIN_QUEUED_POLL_MS: u64 = 60_000;
const MAX_QUEUED_POLL_MS: u64 = 5 * 60 * 1000;

async fn ensure_task(
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
        Ok(TaskState::Ended(callback)) => Ok(match (callback::attempt_end(*callback), run.unit(this.unit)) {
            // Its callback may never come: it is taken from here as it would be from there.
            (Some(ended), Some(unit)) => DispatchOutcome::ended(callback::with_checked_outputs(run, unit, ended)),
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
            let again = switch::holds(ProtocolRule::FailedSendIsDue);
            Ok(DispatchOutcome::later(again.then(|| AttemptWakeup::Poll(breaker::retry_at(env, cluster)))))
        }
    }
}

async fn record_start(env: &Env, run: &Run, this: AttemptRef) -> Result<(), FlowError> {
    env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Started(env.now())).await?;
    Ok(())
}

/// Has `sweep` look at the run at `due`: the table first, then the hint. One write, one hint: a run that is due earlier has
/// its own hint, and the look at that time looks once more before it puts the run off.
///
/// # Errors
/// The store's.
pub async fn wake_by(env: &Env, run: &RunId, due: Timestamp) -> Result<(), FlowError> {
    for _ in 0..crate::ATTEMPTS {
        match env.store.patch_run(run, &accept(RunEvent::WakeupAdvanced { due })).await? {
            PatchResult::Written(_) => {
                send_wakeup(env, run, due).await;
                return Ok(());
            }
            // Written before, and its answer was lost.
            PatchResult::ConditionFailed(Some(image)) if image.head.due == Some(due) => {
                send_wakeup(env, run, due).await;
                return Ok(());
            }
            PatchResult::ConditionFailed(None) => return Ok(()),
            PatchResult::ConditionFailed(Some(_)) => {}
        }
        // It was due earlier, and a look at that time may have put it off since.
        match env.store.patch_run(run, &accept(RunEvent::VersionBumped)).await? {
            PatchResult::Written(noticed) if noticed.head.due > Some(due) => {}
            PatchResult::Written(_) | PatchResult::ConditionFailed(_) => return Ok(()),
        }
    }
    Err(FlowError::Contended(format!("run {run}")))
}

/// Sends the hint to look at a run at `due`. The schedule finds a run that is due later than the queue can delay a message.
pub(crate) async fn send_wakeup(env: &Env, run: &RunId, due: Timestamp) {
    let wait = Duration::from_millis(due.since(env.now()).0);
    if wait < MAX_MESSAGE_DELAY {
        env.queue.send(QueueMessage::Run(run.clone()), wait).await;
    }
}

/// The request of a webhook unit.
struct WebhookDispatch {
    request: render::RenderedRequest,
    /// For an undo: the number of further things that it has to remove.
    remaining: u32,
    /// For an undo: until when the answer that there is nothing is not final.
    may_act_until: Timestamp,
}

/// Returns the signature of a request for a unit, with the headers that name the try. `purpose` ends the id of the message:
/// receivers drop a second message of one id.
///
/// # Errors
/// [`FlowError::Broken`] for a run whose name cannot be part of an id.
pub(crate) fn signed_headers(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    unit: &UnitPlan,
    (purpose, body): (&str, &[u8]),
) -> Result<Vec<(String, String)>, FlowError> {
    let (resource, name) = split_key(&unit.key);
    let id = MessageId::parse(&format!("{}-{}-{}{purpose}", run.id, this.unit.0, this.attempt.0))
        .map_err(|error| FlowError::Broken(error.to_string()))?;
    let plugin = run.plugin(unit).unwrap_or_default();
    let signature = sign::sign_with(&env.settings.unit_keys.for_plugin(plugin), &id, env.now(), body);
    let mut list: Vec<(String, String)> = signature.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    list.extend([
        (headers::IDEMPOTENCY_KEY.to_owned(), idempotency_key(&run.instance_key(), resource, name)),
        (headers::ATTEMPT.to_owned(), this.attempt.0.to_string()),
    ]);
    list.extend(undone_parts(run, unit).map(|(resource, name)| {
        (headers::UNDOES_IDEMPOTENCY_KEY.to_owned(), idempotency_key(&run.instance_key(), resource, name))
    }));
    list.extend(telemetry::traceparent(&run.id, this).map(|of| (headers::TRACEPARENT.to_owned(), of)));
    Ok(list)
}

async fn post_webhook(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    unit: &UnitPlan,
    WebhookDispatch { request, remaining: more, may_act_until: possible }: WebhookDispatch,
    sender: DispatchReason,
) -> Result<DispatchOutcome, FlowError> {
    let body = request.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let mut list = signed_headers(env, run, this, unit, ("", &body))?;
    list.extend([
        (headers::CALLBACK_URL.to_owned(), env.settings.callback_url.clone()),
        (headers::CALLBACK_TOKEN.to_owned(), token(env, run, this, unit, TokenKind::Webhook, more)),
    ]);
    if request.body.is_some() {
        list.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    let own: Vec<String> = list.iter().map(|(name, _)| name.clone()).collect();
    let theirs = request.headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
    list.extend(theirs.filter(|(name, _)| !own.contains(name) || name == "content-type"));
    if let Action::Webhook(webhook) = &unit.action
        && webhook.non_idempotent
        && switch::holds(ProtocolRule::PostOnce)
    {
        // The intent is recorded before the request is sent. A sender that finds the intent does not post.
        let note = AttemptUpdate::Posted(env.now());
        let before = env.store.update_attempt(&run.id, this.unit, this.attempt, &note).await?;
        if before.posted.is_some() || before.accepted.is_some() || before.result.is_some() {
            return describe::describe_attempt(env, run, this, (unit, webhook), request.describe, &before).await;
        }
    }
    let timeout = env.settings.response_timeout.min(Duration::from_millis(unit.timeout_ms));
    let begun = env.now();
    telemetry::dispatch_started(run, this, begun);
    let (method, url, describe_url) = (request.method, request.url, request.describe);
    let request = HttpRequest { method: method.clone(), url: url.clone(), headers: list.clone(), body, timeout };
    let answer = env.egress.call(request).await;
    let now = env.now();
    let wrong = match &answer {
        Ok(answer) => (answer.status >= 400).then_some("status"),
        Err(_) => Some("unanswered"),
    };
    telemetry::dispatch_ended(run, this, begun, now, wrong);
    let duration_ms = Some(now.since(begun).0);
    let sent = evidence::SentRequest { method: &method, url: &url, headers: &list };
    let failed = |failure: AttemptFailure, response: Option<&HttpResponse>| {
        let evidence = Some(Box::new(sent.evidence(unit, response)));
        AttemptEnd::Failed(AttemptFailure { duration_ms, evidence, ..failure })
    };
    let ended = match &answer {
        Err(error) => failed(call_failure(error), None),
        Ok(response) => match judge_response(run, unit, &sent, response, now) {
            // Without a describe URL there is nothing that may be sent again.
            ResponseVerdict::Repeat(_) if unit.action.is_non_idempotent() && describe_url.is_none() => {
                return handle_accepted(env, run, this, unit, sender).await;
            }
            ResponseVerdict::Accepted => return handle_accepted(env, run, this, unit, sender).await,
            ResponseVerdict::Repeat(seconds) => {
                let at = record_repeat(env, run, this, seconds).await?;
                return Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))));
            }
            ResponseVerdict::NotFound if possible > now => {
                // The next request finds the thing that a receiver without an answer makes until then.
                postpone(env, run, this, possible).await?;
                return Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(possible))));
            }
            ResponseVerdict::NotFound => {
                AttemptEnd::Succeeded(AttemptSuccess { duration_ms, ..AttemptSuccess::default() })
            }
            ResponseVerdict::Succeeded(outputs) => {
                AttemptEnd::Succeeded(AttemptSuccess { outputs, duration_ms, log: None })
            }
            ResponseVerdict::Failed(failure) => failed(failure, Some(response)),
        },
    };
    match ended {
        AttemptEnd::Failed(failure) if unit.action.is_non_idempotent() && failure.is_unanswered() => {
            describe::unanswered(env, run, this, describe_url.as_deref(), failure).await
        }
        ended => Ok(DispatchOutcome::ended(ended)),
    }
}

/// Records that a receiver will call back, or leaves that to the caller, who records it together with other tries.
async fn handle_accepted(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    unit: &UnitPlan,
    sender: DispatchReason,
) -> Result<DispatchOutcome, FlowError> {
    // The record of a try that a look sends may have a lease, which the note ends. That of a webhook that is posted once has
    // the intent to post it.
    if sender == DispatchReason::Result && !unit.action.is_non_idempotent() {
        return Ok(DispatchOutcome { is_accepted: true, ..DispatchOutcome::later(None) });
    }
    record_acceptance(env, run, this, unit).await?;
    Ok(DispatchOutcome::later(None))
}

/// Records that a receiver will call back. A unit whose time is up before `sweep` may look at its run has a hint; any other
/// one is found by when its run is due, which costs no message for each unit.
///
/// # Errors
/// The store's.
pub async fn record_acceptance(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan) -> Result<(), FlowError> {
    if !switch::holds(ProtocolRule::RecordAccepted) {
        return Ok(());
    }
    let note = AttemptUpdate::Accepted(env.now());
    env.store.update_attempt(&run.id, this.unit, this.attempt, &note).await?;
    send_deadline_wakeup(env, run, this, unit).await;
    Ok(())
}

/// Has `sweep` look at a try when its time is up, if that is before it may look at the run.
pub(crate) async fn send_deadline_wakeup(env: &Env, run: &Run, this: AttemptRef, unit: &UnitPlan) {
    if unit.timeout_ms < env.settings.first_sweep_delay.0 {
        let delay = Duration::from_millis(unit.timeout_ms);
        env.queue.send(QueueMessage::unit(&run.id, this.unit, this.attempt), delay).await;
    }
}

/// Records when a unit is to be asked again, and has `sweep` look then.
///
/// # Errors
/// The store's.
pub async fn repeat_after(env: &Env, run: &Run, this: AttemptRef, seconds: u64) -> Result<(), FlowError> {
    let at = record_repeat(env, run, this, seconds).await?;
    wake_by(env, &run.id, at).await
}

/// Records when a try is asked again.
///
/// # Errors
/// The store's.
pub(crate) async fn record_repeat(
    env: &Env,
    run: &Run,
    this: AttemptRef,
    seconds: u64,
) -> Result<Timestamp, FlowError> {
    // A receiver that asks to be asked at once would be asked without end.
    let seconds = seconds.max(1);
    let at = env.now().plus(Millis(seconds.saturating_mul(1000)));
    let started =
        env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Started(env.now())).await?;
    if started.result.is_none() {
        env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::DispatchAgain(at)).await?;
    }
    Ok(at)
}

/// Leaves a try that was not sent to `sweep`, which begins it at `at`. Its time runs from then on.
async fn postpone(env: &Env, run: &Run, this: AttemptRef, at: Timestamp) -> Result<(), FlowError> {
    env.store.update_attempt(&run.id, this.unit, this.attempt, &AttemptUpdate::Postponed(at)).await?;
    Ok(())
}

fn call_failure(error: &CallError) -> AttemptFailure {
    let code = match error {
        CallError::Refused(_) => ReasonCode::Refused,
        CallError::Connect(_) => ReasonCode::Connect,
        CallError::Timeout(_) => ReasonCode::Timeout,
        CallError::TooLarge(_) => ReasonCode::OutputTooLarge,
    };
    AttemptFailure::new(code, &error.to_string())
}

enum ResponseVerdict {
    Succeeded(ebb_protocol::value::Outputs),
    /// The thing to remove does not exist.
    NotFound,
    Accepted,
    Repeat(u64),
    Failed(AttemptFailure),
}

/// Judges the answer of a webhook unit: 2xx is success, 202 says that the result comes later or, with `Retry-After`,
/// that the same request is to be sent again; 410 is final. A `DELETE` that undoes something is done when there is
/// nothing (404, 410): a second request gets that answer.
fn judge_response(
    run: &Run,
    unit: &UnitPlan,
    sent: &evidence::SentRequest<'_>,
    response: &HttpResponse,
    now: Timestamp,
) -> ResponseVerdict {
    // A part of a second is rounded up: a server asks for the shortest wait.
    let wait = retry_after(&response.headers, now).map(|wait| wait.as_millis().div_ceil(1000));
    let wait = wait.map(|seconds| u64::try_from(seconds).unwrap_or(u64::MAX));
    let undone = sent.method == "DELETE" && !unit.undoes.is_empty() && matches!(response.status, 404 | 410);
    match (response.status, wait) {
        (202, Some(seconds)) => ResponseVerdict::Repeat(seconds),
        (202, None) => ResponseVerdict::Accepted,
        (200..=299, _) => {
            outputs(run, unit, sent, response).map_or_else(ResponseVerdict::Failed, ResponseVerdict::Succeeded)
        }
        _ if undone => ResponseVerdict::NotFound,
        (410, _) => ResponseVerdict::Failed(AttemptFailure::new(ReasonCode::Refused, "the server answered 410 Gone")),
        (status, wait) => ResponseVerdict::Failed(AttemptFailure {
            status: Some(status),
            retry_after: wait,
            ..AttemptFailure::new(ReasonCode::HttpStatus, &format!("the server answered {status}"))
        }),
    }
}

/// Returns the declared outputs of a webhook unit, taken from an answer that says success.
///
/// # Errors
/// The failure of the unit: a declared output is not in the answer.
pub(crate) fn outputs(
    run: &Run,
    unit: &UnitPlan,
    sent: &evidence::SentRequest<'_>,
    response: &HttpResponse,
) -> Result<ebb_protocol::value::Outputs, AttemptFailure> {
    let text = String::from_utf8_lossy(&response.body);
    let body = serde_json::from_slice(&response.body).unwrap_or_else(|_| serde_json::Value::String(text.into_owned()));
    let answer =
        render::WebhookResponse { status: response.status, headers: response.headers.iter().cloned().collect(), body };
    let outputs = render::outputs_from_response(&run.loaded.compiled, unit, &answer).map_err(|error| {
        let foreign = sent.foreign_format(unit, response);
        AttemptFailure::new(ReasonCode::OutputInvalid, &foreign.unwrap_or_else(|| error.to_string()))
    })?;
    Ok(outputs.into_iter().map(|(name, value)| (name, records::from_rendered(value))).collect())
}
