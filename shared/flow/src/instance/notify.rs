//! Delivers notifications to the platform: signed CloudEvents, repeated until they are accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_documents::plan::{Plan, UnitRef, WorkloadRead};
use ebb_documents::render::{self, KnownOutputs, RenderValue};
use ebb_egress::{DeliveryOutcome, WebhookMessage as Outgoing, deliver};
use ebb_engine::target::Notification;
use ebb_engine::{Backoff, HeadState, Hook, Millis, RunPhase, Unit};
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::id::RunId;
use ebb_protocol::lifecycle::{OutcomeData, OutputValue, WorkloadValue};
use ebb_protocol::limits;
use ebb_protocol::record::{AttemptOutcome, OutputStorage};
use ebb_protocol::sign::{MessageId, WebhookKeys};
use ebb_protocol::value::{Outputs, UnitValue};
use ebb_store::{NotificationState, TargetHead};

use crate::breaker::{MAX_DELIVERIES, PLATFORM};
use crate::env::{CompiledPlan, Env};
use crate::error::FlowError;
use crate::instance::due;
use crate::loaded_run::Run;
use crate::pending_call::{PendingCall, ResponseKind, circuit_wait};
use crate::permits::OriginPermit;
use crate::ports::QueueMessage;
use crate::run::{records, removals};
use crate::sealed_values;

/// The waits during the first hour, from 1 s to 60 s. A platform that recovers within the hour gets its notification
/// within a minute.
const BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(60_000) };
/// The number of deliveries in about the first hour.
const FREQUENT_ATTEMPTS: u32 = 60;
/// The later waits, up to ten minutes. The number of attempts is unlimited.
const SLOW_BACKOFF: Backoff = Backoff { base: Millis(1_000), max: Millis(600_000) };

/// Maximum records with outputs in memory, each with at most [`limits::OUTPUTS_INLINE`] bytes.
const MAX_RECORDS: usize = 1_000;

/// Maximum removals in a notification.
const MAX_REMOVALS: usize = 100;

/// The fix for outputs that are too large for a response.
pub const READ_LESS: &str =
    "read those of one resource with `?outputs=RESOURCE`, or one of them with `?outputs=RESOURCE/OUTPUT`";

/// The time between the message that repeats a delivery and the due time of the target.
const WAKEUP_MARGIN: Millis = Millis(2_000);

/// The reason of a notification that is postponed without a request.
const POSTPONED: &str = "the platform does not respond to other notifications";

/// Delivers the pending notification of a target. After a failed delivery, the target is due again. While the platform
/// does not respond, or many notifications wait for its response, the delivery is postponed. A sweep that cannot wait for
/// the platform any more delivers nothing. A deployment without a platform ends the notification, because other work
/// waits for its delivery.
pub async fn notify(env: &Env, target: &TargetHead) -> Result<(), FlowError> {
    notify_seen(env, target, None).await
}

/// Does the same as [`notify`]. `root` is that of the run which stays open for the notification, if it was read after the
/// write of `target`.
pub(crate) async fn notify_seen(env: &Env, target: &TargetHead, root: Option<HeadState>) -> Result<(), FlowError> {
    let (mut seen, mut root) = (target.clone(), root);
    for _ in 0..crate::ATTEMPTS {
        let pending = match root.take() {
            Some(root) => held_notification(&seen, Some(root)),
            None => pending_notification(env, &seen).await?,
        };
        let Some(pending) = pending else { return Ok(()) };
        let Some(url) = &env.settings.platform_url else { return end(env, &seen, pending, None).await };
        let Some(permit) = OriginPermit::acquire(env, url).await else { return Ok(()) };
        // The run was read between two reads of the target. A late success moves the target back before it reopens
        // units. If the target is unchanged, no unit was reopened when the root was read.
        let Some(reread) = env.store.read_target(&seen.kind, &seen.name).await? else { return Ok(()) };
        if reread.version == seen.version {
            return send(env, &reread, pending, (url, permit)).await;
        }
        seen = reread;
    }
    Err(FlowError::Contended(format!("{}/{}", target.kind, target.name)))
}

async fn send(
    env: &Env,
    target: &TargetHead,
    pending: PendingNotification,
    (url, permit): (&str, OriginPermit),
) -> Result<(), FlowError> {
    let state = &pending.notification;
    let (kind, name) = (target.kind.as_str(), target.name.as_str());
    let data = notification_data(env, target, state.notification).await?;
    let subject = format!("{kind}/{name}");
    let instance = target.instance_key();
    let notification_name = state.notification.name();
    // One notification has one id, so that a receiver recognises a repetition. A target that fails again after a retry
    // has a new one.
    let message = format!("{instance}-{}-{notification_name}-{}", target.generation, target.since.0);
    let message = MessageId::parse(&message).map_err(|error| FlowError::Broken(error.to_string()))?;
    let (content_type, body) = ebb_protocol::cloudevents::outcome(
        message.as_str(),
        &env.settings.source,
        event_type(if data.reason.is_some() && state.notification == Notification::Ready {
            Notification::Failed
        } else {
            state.notification
        }),
        &subject,
        target.since,
        &data,
    );
    let keys = &env.settings.platform_keys;
    let outgoing = Outgoing { url, id: &message, content_type, body: &body };
    let begun = env.now();
    let delivery = match PendingCall::try_begin(env, PLATFORM, MAX_DELIVERIES) {
        Some(call) => {
            let delivery = deliver((env.platform.as_ref(), &env.cache.byte_budget), keys, outgoing, begun).await;
            permit.end(env, begun);
            call.end_with(match delivery {
                DeliveryOutcome::Retry { status: None, .. } => ResponseKind::NoResponse,
                DeliveryOutcome::Refused(_) => ResponseKind::NotSent,
                _ => ResponseKind::Response,
            });
            delivery
        }
        None => {
            let after = Some(Duration::from_millis(circuit_wait(env, PLATFORM).0));
            let reason = state.reason.clone().unwrap_or_else(|| POSTPONED.to_owned());
            DeliveryOutcome::Retry { after, status: None, reason }
        }
    };
    let repeat = match delivery {
        DeliveryOutcome::Accepted => None,
        DeliveryOutcome::Gone => {
            tracing::warn!(kind, name, "the platform responded 410; the notification is not repeated");
            None
        }
        DeliveryOutcome::Refused(reason) => {
            tracing::error!(kind, name, reason, "the URL of the platform is invalid; correct the configuration");
            Some((SLOW_BACKOFF.max, limits::message(&reason.to_string())))
        }
        DeliveryOutcome::Retry { after, reason, .. } => {
            tracing::warn!(
                kind,
                name,
                reason,
                "the platform did not accept the notification; the delivery is repeated"
            );
            let backoff = if state.attempts < FREQUENT_ATTEMPTS { BACKOFF } else { SLOW_BACKOFF };
            let wait = backoff.wait(state.attempts.saturating_add(1), env.random.next()).max(Millis(250));
            let wait = wait.max(after.map_or(Millis(0), Millis::from).min(SLOW_BACKOFF.max));
            Some((wait, limits::message(&reason.to_string())))
        }
    };
    end(env, target, pending, repeat).await
}

/// Records the end of a delivery. `repeat` is the wait before the next one, with the reason of the failure.
async fn end(
    env: &Env,
    target: &TargetHead,
    pending: PendingNotification,
    repeat: Option<(Millis, String)>,
) -> Result<(), FlowError> {
    let PendingNotification { notification: state, holder } = pending;
    if let (None, Some(holder)) = (&repeat, &holder) {
        // The run stays open if it was reopened meanwhile.
        due::close_seen(env, &holder.0, &holder.1).await?;
        return Ok(());
    }
    // From now on the target is due for the delivery, so that the ended run does not wait for the platform.
    let attempts = state.attempts.saturating_add(1);
    let change = |after: &mut TargetHead| {
        after.notification = None;
        after.due = due::next_due(env, after);
        if let Some((wait, reason)) = &repeat {
            let (notification, reason) = (state.notification, Some(reason.clone()));
            after.notification = Some(NotificationState { notification, attempts, delivered_by: None, reason });
            // The message comes first. Otherwise a sweep of the due target could deliver at the same time.
            let at = env.now().plus(*wait).plus(WAKEUP_MARGIN);
            after.due = Some(after.due.map_or(at, |due| due.min(at)));
        }
    };
    if !record(env, target, change).await? {
        return Ok(());
    }
    if let Some((wait, _)) = repeat {
        let message = QueueMessage::Target(target.kind.clone(), target.name.clone());
        env.queue.send(message, Duration::from_millis(wait.0)).await;
    }
    if let Some((run, root)) = holder {
        due::close_seen(env, &run, &root).await?;
    }
    Ok(())
}

/// Writes the result of the delivery about `target`. Returns false if the target has another notification meanwhile. Other
/// changes, such as those of deliveries to subscriptions, do not matter.
async fn record(env: &Env, target: &TargetHead, change: impl Fn(&mut TargetHead)) -> Result<bool, FlowError> {
    let mut seen = target.clone();
    for _ in 0..crate::ATTEMPTS {
        if env.store.move_target(&seen.update(&change)).await? {
            return Ok(true);
        }
        let Some(reread) = env.store.read_target(&target.kind, &target.name).await? else { return Ok(false) };
        let about =
            |head: &TargetHead| (head.uid.clone(), head.phase, head.hook, head.since, head.notification.clone());
        if about(&reread) != about(target) {
            return Ok(false);
        }
        seen = reread;
    }
    Ok(false)
}

/// A notification that the platform has not accepted yet.
pub struct PendingNotification {
    pub notification: NotificationState,
    /// The run that stays open until the delivery, and its root as it was read.
    pub holder: Option<(RunId, HeadState)>,
}

/// Returns the notification of a target that the platform has not accepted yet.
pub async fn pending_notification(env: &Env, target: &TargetHead) -> Result<Option<PendingNotification>, FlowError> {
    let holder = target.notification.as_ref().and_then(|state| state.delivered_by);
    let root = match holder {
        Some(hook) => env.store.read_root(&target.run(hook)).await?.map(|root| root.head),
        None => None,
    };
    Ok(held_notification(target, root))
}

/// Returns the pending notification of a target. `root` is that of the run which stays open for it.
fn held_notification(target: &TargetHead, root: Option<HeadState>) -> Option<PendingNotification> {
    let notification = target.notification.clone()?;
    let Some(hook) = notification.delivered_by else { return Some(PendingNotification { notification, holder: None }) };
    let root = root.filter(|root| root.phase != RunPhase::Closed)?;
    Some(PendingNotification { notification, holder: Some((target.run(hook), root)) })
}

async fn notification_data(
    env: &Env,
    target: &TargetHead,
    notification: Notification,
) -> Result<OutcomeData, FlowError> {
    let mut data = OutcomeData {
        kind: target.kind.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
        generation: target.generation,
        outputs: BTreeMap::new(),
        env: BTreeMap::new(),
        workloads: BTreeMap::new(),
        outputs_url: None,
        unit: None,
        reason: None,
        stop_cause: None,
        overridden: false,
        removals: Vec::new(),
    };
    match notification {
        Notification::Gone => {
            data.stop_cause = Some(target.stop_cause);
            data.overridden = target.is_overridden;
            // Without an unconfirmed removal, the records of the runs are not read.
            if target.unconfirmed > 0 {
                let loaded = env.plan_of(target).await?;
                data.removals = removals::removals(env, target, &loaded).await?;
                data.removals.truncate(MAX_REMOVALS);
            }
        }
        Notification::Ready => {
            let loaded = env.plan_of(target).await?;
            let outputs = target_outputs(env, target, &loaded, None, SensitiveValues::Hidden).await?;
            data.outputs = outputs.outputs;
            data.env = outputs.env;
            data.workloads = outputs.workloads;
            match outputs.problem {
                None => {}
                Some(OutputsProblem::TooLarge(_)) => {
                    data.outputs_url = Some(target_url(env, &target.kind, &target.name))
                }
                // The units are done, but their outputs cannot be rendered as the documents require.
                Some(OutputsProblem::Render(message)) => {
                    data.reason = Some(FailureReason { code: ReasonCode::Render, message });
                }
            }
        }
        Notification::Failed | Notification::Stuck => {
            if let Some((unit, reason)) = first_cause(env, target).await? {
                data.unit = Some(unit);
                data.reason = Some(reason);
            }
        }
    }
    Ok(data)
}

/// Returns the URL of a target in the API.
pub(crate) fn target_url(env: &Env, kind: &str, name: &str) -> String {
    let source = &env.settings.source;
    let Ok(mut url) = url::Url::parse(source) else { return source.clone() };
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["v1", "targets", kind, name]);
    }
    url.into()
}

/// The reason why some outputs have no value, as text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputsProblem {
    /// All together are too large. They can be read one by one.
    TooLarge(String),
    /// A value cannot be computed.
    Render(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetOutputs {
    pub outputs: BTreeMap<String, BTreeMap<String, OutputValue>>,
    pub env: BTreeMap<String, OutputValue>,
    pub workloads: BTreeMap<String, Vec<WorkloadValue>>,
    pub problem: Option<OutputsProblem>,
    /// The names of the sensitive values that are revealed: `RESOURCE.OUTPUT` or `env.NAME`.
    pub revealed: Vec<String>,
}

/// The treatment of the sensitive values that Ebb stores. No notification reveals them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensitiveValues {
    Hidden,
    Revealed,
}

/// Returns the outputs of a target's resources that exist so far, without `env` if `only` limits them as in
/// [`Plan::public_outputs`](ebb_documents::plan::Plan::public_outputs). Reads only the units that they refer to.
pub async fn target_outputs(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
    only: Option<&str>,
    sensitive: SensitiveValues,
) -> Result<TargetOutputs, FlowError> {
    let Some(known) = shown_outputs(env, target, loaded, only).await? else {
        let problem = format!(
            "the visible outputs of the resources have more than {} MiB together; {READ_LESS}",
            limits::SHOWN_OUTPUTS >> 20
        );
        let problem = Some(OutputsProblem::TooLarge(problem));
        return Ok(TargetOutputs { problem, ..TargetOutputs::default() });
    };
    let facts = render::TargetFacts {
        kind: target.kind.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
        namespace: loaded.plan.target.namespace.clone(),
        key: target.instance_key(),
        generation: target.generation,
        cluster: loaded.plan.target.cluster.clone(),
        labels: loaded.plan.target.labels.clone(),
    };
    let mut result = TargetOutputs::default();
    let keys = (sensitive == SensitiveValues::Revealed).then_some(&env.settings.unit_keys);
    let mut shown = ShownValues { keys, revealed: Vec::new(), lost: Vec::new() };
    let failed = |errors: &[render::RenderError]| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Some(OutputsProblem::Render(limits::message(&errors.join("; "))))
    };
    match render::resource_outputs(&loaded.plan, &loaded.compiled, &facts, &known, only) {
        Ok(values) => {
            result.outputs = values.into_iter().map(|(name, values)| (name.clone(), shown.of(&name, values))).collect();
        }
        Err(error) => result.problem = failed(&[error]),
    }
    if only.is_some() {
        return Ok(shown.noted(result));
    }
    let env = render::env(&loaded.plan, &loaded.compiled, &facts, &known);
    result.env = shown.of("env", env.variables);
    if !env.errors.is_empty() {
        result.problem = failed(&env.errors);
    }
    match workload_values(&loaded.plan, &result.outputs) {
        Some(workloads) => result.workloads = workloads,
        None => {
            let most = limits::SHOWN_OUTPUTS >> 20;
            let problem = format!("the values of the workloads have more than {most} MiB together; {READ_LESS}");
            result.problem = Some(OutputsProblem::TooLarge(problem));
        }
    }
    Ok(shown.noted(result))
}

/// Returns the values of the workloads, without those that do not exist. Many workloads can read one value: returns
/// `None` if all together are larger than [`limits::SHOWN_OUTPUTS`].
fn workload_values(
    plan: &Plan,
    outputs: &BTreeMap<String, BTreeMap<String, OutputValue>>,
) -> Option<BTreeMap<String, Vec<WorkloadValue>>> {
    let mut size = 0;
    let mut workloads: BTreeMap<String, Vec<WorkloadValue>> = BTreeMap::new();
    for (name, read) in plan.workloads.iter().flat_map(|(name, reads)| reads.iter().map(move |read| (name, read))) {
        let Some(value) = outputs.get(&read.resource).and_then(|outputs| outputs.get(&read.output)) else { continue };
        size += limits::lambda_event_size_of(value);
        if size > limits::SHOWN_OUTPUTS {
            return None;
        }
        let WorkloadRead { env, container, file, .. } = read.clone();
        let value = WorkloadValue { env, container, file, value: value.clone() };
        workloads.entry(name.clone()).or_default().push(value);
    }
    Some(workloads)
}

/// Returns the outputs that the target's resources refer to, by unit. Returns `None` if they are larger than
/// [`limits::SHOWN_OUTPUTS`].
async fn shown_outputs(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
    only: Option<&str>,
) -> Result<Option<KnownOutputs>, FlowError> {
    let mut wanted: BTreeMap<Hook, BTreeMap<Unit, BTreeSet<&str>>> = BTreeMap::new();
    for (at, names) in loaded.plan.visible_outputs(only) {
        wanted.entry(at.hook.into()).or_default().insert(Unit(at.unit), names);
    }
    let mut known = KnownOutputs::new();
    let mut remaining = limits::SHOWN_OUTPUTS;
    for (hook, wanted) in wanted {
        let run = target.run(hook);
        let units: Vec<Unit> = wanted.keys().copied().collect();
        for units in units.chunks(MAX_RECORDS) {
            let records = env.store.read_records(&run, units).await?;
            // Records are in the order of attempts, so the success of the highest attempt counts.
            let successes: BTreeMap<Unit, OutputStorage> = records
                .into_iter()
                .filter_map(|(unit, _, record)| Some((unit, record.result?)))
                .filter(|(_, result)| result.outcome == AttemptOutcome::Succeeded)
                .map(|(unit, result)| (unit, result.outputs))
                .collect();
            let keep = |unit: &Unit, outputs: Outputs| -> Outputs {
                let is_wanted = |name: &str| wanted.get(unit).is_some_and(|names| names.contains(name));
                outputs.into_iter().filter(|(name, _)| is_wanted(name)).collect()
            };
            for (unit, outputs) in records::read_all_outputs(env, successes, keep).await? {
                let bytes = outputs.values().map(UnitValue::size).sum();
                let Some(rest) = remaining.checked_sub(bytes) else { return Ok(None) };
                remaining = rest;
                known.insert(UnitRef { hook: hook.into(), unit: unit.0 }, records::produced(&run, unit, outputs));
            }
        }
    }
    Ok(Some(known))
}

/// Converts values for a reader. Decrypts those that Ebb stores encrypted if it has `keys`.
struct ShownValues<'a> {
    keys: Option<&'a WebhookKeys>,
    revealed: Vec<String>,
    /// The values whose root secret is missing.
    lost: Vec<String>,
}

impl ShownValues<'_> {
    /// Returns the values of a resource, or of `env`.
    fn of(&mut self, origin: &str, values: BTreeMap<String, RenderValue>) -> BTreeMap<String, OutputValue> {
        let shown = values.into_iter().map(|(name, value)| {
            let value = match (value, self.keys) {
                (RenderValue::Sealed(sealed), Some(keys)) => {
                    let opened = sealed_values::open(keys, &sealed);
                    let names = if opened.is_some() { &mut self.revealed } else { &mut self.lost };
                    names.push(format!("{origin}.{name}"));
                    opened.unwrap_or(UnitValue::Sealed(sealed.text))
                }
                (value, _) => records::from_rendered(value),
            };
            (name, OutputValue::from(value))
        });
        shown.collect()
    }

    /// Adds the names of revealed values and of lost ones to a result.
    fn noted(self, mut result: TargetOutputs) -> TargetOutputs {
        if !self.lost.is_empty() {
            let problem = format!(
                "{} cannot be decrypted, because the root secret that encrypted them is missing; restore it in the list of \
                 unit secrets (EBB_UNIT_SECRETS)",
                self.lost.join(", ")
            );
            result.problem.get_or_insert(OutputsProblem::Render(limits::message(&problem)));
        }
        result.revealed = self.revealed;
        result
    }
}

/// Returns the unit that failed first in the target's last run, and the reason.
pub async fn first_cause(
    env: &Env,
    target: &TargetHead,
) -> Result<Option<(String, ebb_protocol::callback::FailureReason)>, FlowError> {
    let Some(hook) = target.hook else { return Ok(None) };
    let Some(run) = Run::load(env, &target.run(hook)).await? else { return Ok(None) };
    let found = crate::run::cause::first(env, &run).await?;
    Ok(found.and_then(|cause| Some((run.unit(cause.unit)?.key.clone(), cause.reason))))
}

fn event_type(notification: Notification) -> &'static str {
    match notification {
        Notification::Ready => ebb_protocol::lifecycle::READY,
        Notification::Failed => ebb_protocol::lifecycle::FAILED,
        Notification::Stuck => ebb_protocol::lifecycle::STUCK,
        Notification::Gone => ebb_protocol::lifecycle::GONE,
    }
}
