//! Makes and destroys resources of InfraKit's plugins.
//!
//! A plugin makes another instance with each `Provision`, so an attempt sends it at most once (rule PostOnce). Every dispatch
//! first looks for instances with the tag of the unit, and adopts the one that exists. If a `Provision` got no response
//! and made nothing, the attempt fails after the longest processing time, and the next attempt sends it again.
//!
//! An empty list does not show a removal: it may be late, and a plugin may have been restarted with another region or
//! credential. So the IDs of what was made are recorded, and an undo destroys them whether or not they are listed. An
//! instance is gone if the plugin does not list it, and has listed it to this undo before or destroyed it.

use std::collections::BTreeSet;

use ebb_documents::plan::{Action, InfrakitAction, PluginInterface, UnitPlan};
use ebb_documents::render::{self, RenderResult, RenderedInstance};
use ebb_engine::{Millis, Timestamp, Unit};
use ebb_protocol::infrakit::KEY_TAG;
use ebb_protocol::{InstanceIds, ReasonCode, RemovalEvidence, RemovalGrade, SecretText, limits};
use ebb_store::AttemptUpdate;
use serde_json::Value;

use crate::run::attempt::{AttemptContext, undone_name, unit_name};
use crate::run::request::plugin_client::{PluginClient, PluginError, instance_id, is_ready};
use crate::run::undo::{MadeInstances, UndoneResult};
use crate::run::{masking, records};
use crate::{AttemptEnd, AttemptFailure, AttemptSuccess, DispatchOutcome, DispatchReason, FlowResult, telemetry};

/// The wait in seconds after a call without a response, and between two looks for an instance.
const RETRY_SECONDS: u64 = 10;
/// The wait in seconds between two looks at the object of a controller.
const CONTROLLER_SECONDS: u64 = 5;
/// The wait in seconds until the next dispatch continues the work of this one.
const CONTINUE_SECONDS: u64 = 1;

enum PluginStep {
    End(Box<AttemptEnd>),
    /// The attempt is dispatched again after so many seconds.
    Repeat(u64),
    /// The attempt is dispatched again at this time, and starts then.
    Postpone(Timestamp),
    Recorded,
}

struct PluginUnit<'a> {
    attempt: AttemptContext<'a>,
    client: PluginClient<'a>,
    /// What the undone units have made, for an undo.
    instances: &'a MadeInstances,
}

/// Makes the resource of a unit or adopts it, or destroys that of the undone unit. `opened` has the texts of the sensitive
/// values in the properties.
pub(crate) async fn send(
    context: AttemptContext<'_>,
    action: &InfrakitAction,
    (spec, opened): (RenderedInstance, Vec<SecretText>),
    undone: &UndoneResult,
    reason: DispatchReason,
) -> FlowResult<DispatchOutcome> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    let key = run.stable_key(undone_name(run, unit).unwrap_or(unit_name(run, unit)));
    let (cluster, begun) = (run.cluster(attempt.unit), env.now());
    let client = PluginClient { env, cluster, action, spec, opened, key, begun };
    let plugin_unit = PluginUnit { attempt: context, client, instances: &undone.instances };
    telemetry::dispatch_started(run, attempt, begun);
    let is_setup = unit.action != Action::Destroy;
    let step = if is_setup { plugin_unit.make(reason).await } else { plugin_unit.remove(undone.may_act_until).await };
    let step = match step {
        Ok(step) => step,
        Err(PluginError::Flow(error)) => return Err(error),
        Err(PluginError::NotSent(why)) if is_setup => failed(ReasonCode::NotStartable, &why),
        Err(PluginError::NotSent(why) | PluginError::Rejected(why)) => failed(ReasonCode::Failed, &why),
        Err(PluginError::Unknown(why)) => {
            tracing::warn!(run = %run.id, unit = unit.key, why, "a call of a plugin has no result; it follows again");
            context.update(AttemptUpdate::Heartbeat(env.now(), Some(limits::message(&why)))).await?;
            PluginStep::Repeat(RETRY_SECONDS)
        }
        Err(PluginError::Late) => PluginStep::Repeat(CONTINUE_SECONDS),
    };
    let failure = match &step {
        PluginStep::End(end) if matches!(**end, AttemptEnd::Failed(_)) => Some("failed"),
        PluginStep::Repeat(_) => Some("repeated"),
        _ => None,
    };
    telemetry::dispatch_ended(run, attempt, (begun, env.now()), failure);
    match step {
        PluginStep::End(end) => Ok(DispatchOutcome::ended(*end)),
        PluginStep::Recorded => Ok(DispatchOutcome::later(None)),
        PluginStep::Repeat(seconds) => context.repeat(seconds).await,
        PluginStep::Postpone(at) => context.postpone(at, None).await,
    }
}

impl PluginUnit<'_> {
    async fn make(&self, reason: DispatchReason) -> Result<PluginStep, PluginError> {
        let (env, max_processing_time) = (self.attempt.env, Millis(self.client.action.max_processing_time_ms));
        let existing = self.look(reason).await;
        if let Err(PluginError::NotSent(why) | PluginError::Rejected(why)) = &existing
            && self.attempt.read_record().await?.is_some_and(|record| record.posted.is_some())
        {
            // The answer to another call does not show what a `Provision` without a response has made.
            return Err(PluginError::Unknown(why.clone()));
        }
        match (self.client.action.interface, existing?.as_slice()) {
            (PluginInterface::Controller, objects) => return self.commit(objects.first()).await,
            (_, []) => {}
            (_, [instance]) => return Ok(self.adopt(instance).await?),
            (_, several) => return Ok(ambiguous(&self.client.key, several)),
        }
        if self.client.is_late() {
            return Err(PluginError::Late);
        }
        // The intent is recorded before the request is sent. A dispatcher that finds the intent does not send it.
        let before = self.attempt.update(AttemptUpdate::Posted(env.now(), None)).await?;
        if before.result.is_some() {
            return Ok(PluginStep::Recorded);
        }
        if let Some(posted) = before.posted {
            if let Some(id) = before.instances.made.first() {
                return Err(PluginError::Unknown(format!("the plugin does not list {id}, which it has made")));
            }
            // The plugin may act on the request until then.
            let processing = posted.plus(env.settings.max_in_flight).plus(max_processing_time);
            let open_for = processing.max(posted.plus(env.settings.response_window())).since(env.now()).0;
            if open_for > 0 {
                return Ok(PluginStep::Repeat(open_for.div_ceil(1000).min(RETRY_SECONDS)));
            }
            return Ok(failed(ReasonCode::Lost, "the plugin did not respond, and what it was to make does not exist"));
        }
        let made = self.client.make().await?;
        if self.client.action.interface == PluginInterface::Resource {
            return Ok(self.complete(&made).await?);
        }
        // The description has the properties of the instance, which outputs may read.
        let instances = self.client.find().await.unwrap_or_default();
        let described = instances.iter().find(|instance| instance_id(instance) == instance_id(&made));
        if described.is_none() && self.outputs(&made).is_err() {
            return Ok(self.keep(self.made_ids(&made), PluginStep::Repeat(CONTINUE_SECONDS)).await?);
        }
        Ok(self.complete(described.unwrap_or(&made)).await?)
    }

    /// Checks the plugin, and returns what exists. A collection is not looked for.
    async fn look(&self, reason: DispatchReason) -> Result<Vec<Value>, PluginError> {
        // A repetition has no time to check again what the first dispatch has checked.
        if reason != DispatchReason::SweepRepeat {
            self.client.check().await.map_err(|error| match error {
                // A repetition would get the same response.
                PluginError::Rejected(why) => PluginError::NotSent(why),
                error => error,
            })?;
        }
        match self.client.action.interface {
            PluginInterface::Resource => Ok(Vec::new()),
            PluginInterface::Instance | PluginInterface::Controller => self.client.find().await,
        }
    }

    /// Commits the specification of a controller, which may be repeated, or waits until its object is ready.
    async fn commit(&self, found: Option<&Value>) -> Result<PluginStep, PluginError> {
        let Some(object) = found else {
            self.client.make().await?;
            return Ok(PluginStep::Repeat(CONTROLLER_SECONDS));
        };
        Ok(match is_ready(object) {
            Ok(true) => self.complete(object).await?,
            Ok(false) => PluginStep::Repeat(CONTROLLER_SECONDS),
            Err(why) => failed(ReasonCode::Failed, &why),
        })
    }

    /// Adopts the instance with the tag of the unit, unless another invocation may still wait for the `Provision`.
    async fn adopt(&self, instance: &Value) -> FlowResult<PluginStep> {
        let env = self.attempt.env;
        let record = self.attempt.read_record().await?;
        let posted = record.and_then(|record| record.posted.filter(|_| record.next_dispatch.is_none()));
        let window = env.settings.response_window().min(Millis(self.client.action.max_processing_time_ms));
        let due = posted.map(|posted| posted.plus(window));
        match due.map(|due| due.since(env.now()).0).filter(|&wait| wait > 0) {
            Some(wait) => Ok(PluginStep::Repeat(wait.div_ceil(1000))),
            None => self.complete(instance).await,
        }
    }

    fn outputs(&self, instance: &Value) -> RenderResult<ebb_protocol::value::Outputs> {
        let outputs = render::outputs_from_instance(self.attempt.unit, instance)?;
        Ok(masking::unit_values(self.attempt.unit, outputs, &self.client.opened))
    }

    async fn complete(&self, instance: &Value) -> FlowResult<PluginStep> {
        let made = self.made_ids(instance);
        let step = match self.outputs(instance) {
            Ok(outputs) => {
                let made = made.into_iter().collect();
                return Ok(succeeded(AttemptSuccess { outputs, made, ..AttemptSuccess::default() }));
            }
            Err(error) => failed(ReasonCode::OutputInvalid, &error.to_string()),
        };
        self.keep(made, step).await
    }

    /// Returns the ID of an instance. The plugin finds what another interface has made by the key of the unit.
    fn made_ids(&self, made: &Value) -> BTreeSet<String> {
        match self.client.action.interface {
            PluginInterface::Instance => self.client.ids(std::slice::from_ref(made)),
            PluginInterface::Resource | PluginInterface::Controller => BTreeSet::new(),
        }
    }

    /// Records the IDs of a step that did not succeed. If the attempt has ended, the IDs become a late success.
    async fn keep(&self, made: BTreeSet<String>, step: PluginStep) -> FlowResult<PluginStep> {
        if made.is_empty() {
            return Ok(step);
        }
        let ids = InstanceIds { made: made.clone(), ..InstanceIds::default() };
        let before = self.attempt.update(AttemptUpdate::Instances(ids)).await?;
        let Some(result) = before.result else { return Ok(step) };
        if made.iter().all(|id| result.made.contains(id) || before.instances.made.contains(id)) {
            return Ok(step);
        }
        let made = made.into_iter().collect();
        Ok(succeeded(AttemptSuccess { made, ..AttemptSuccess::default() }))
    }

    /// Destroys what the plugin lists, and the instances with recorded IDs. Later dispatches continue.
    async fn remove(&self, may_act_until: Timestamp) -> Result<PluginStep, PluginError> {
        let made = &self.instances.ids;
        let found = self.client.find().await?;
        let listed = self.client.ids(&found);
        if !listed.is_empty() {
            // After a crash, the plugin may not know any more what it has destroyed.
            let ids = InstanceIds { listed: listed.clone(), ..InstanceIds::default() };
            if self.attempt.update(AttemptUpdate::Instances(ids)).await?.result.is_some() {
                return Ok(PluginStep::Recorded);
            }
        }
        let mut answers = self.answers(&listed).await?;
        let destroyed = if found.is_empty() { Ok(()) } else { self.client.destroy(&found).await };
        let unseen: Vec<&String> = made.iter().filter(|id| !is_known(&answers, id)).collect();
        let mut rejection = String::new();
        for &id in &unseen {
            match self.client.destroy_instance(id).await {
                Ok(()) => {
                    let ids = InstanceIds { destroyed: BTreeSet::from([id.clone()]), ..InstanceIds::default() };
                    self.attempt.update(AttemptUpdate::Instances(ids.clone())).await?;
                    answers.merge(ids);
                }
                Err(PluginError::Rejected(why)) => rejection = why,
                Err(error) => return Err(error),
            }
        }
        // A plugin rejects the call for what no longer exists, and may list late what it has destroyed.
        if !(found.is_empty() && unseen.is_empty()) {
            let left = self.client.find().await;
            if !left.as_ref().is_ok_and(Vec::is_empty) {
                // A later attempt cannot ask: the plugin rejects the call for what no longer exists.
                let gone = match (&destroyed, &left) {
                    (Ok(()), _) => listed.clone(),
                    (Err(_), Ok(left)) => &listed - &self.client.ids(left),
                    (Err(_), Err(_)) => BTreeSet::new(),
                };
                let ids = InstanceIds { destroyed: gone, ..InstanceIds::default() };
                self.attempt.update(AttemptUpdate::Instances(ids)).await?;
                left?;
                // Without an error, the plugin destroys in the background.
                return destroyed.map(|()| PluginStep::Repeat(RETRY_SECONDS));
            }
        }
        // What the plugin has made for a request that it rejected may be listed late, too. Other interfaces have no IDs.
        let is_open = self.instances.may_be_more && self.client.action.interface == PluginInterface::Instance;
        let is_listed = made.iter().all(|id| has(&answers.listed, id)) && !is_open;
        let due = if is_listed { may_act_until } else { may_act_until.max(self.instances.listed_by) };
        if due > self.attempt.env.now() {
            return Ok(PluginStep::Postpone(due));
        }
        if !unseen.is_empty() {
            // Another dispatch may have destroyed them at the same time.
            answers.merge(self.answers(&listed).await?);
        }
        let left: Vec<&str> = unseen.into_iter().filter(|id| !is_known(&answers, id)).map(String::as_str).collect();
        if !left.is_empty() {
            let why = format!(
                "the plugin `{}` neither lists nor destroys {}, which it has made; it may have another region, project \
                 or credential; start it with the one of the setup, then retry; its answer was: {rejection}",
                self.client.action.plugin,
                left.join(", ")
            );
            return Ok(failed(ReasonCode::Failed, &why));
        }
        let removal = self.evidence(&answers);
        Ok(succeeded(AttemptSuccess { removal, ..AttemptSuccess::default() }))
    }

    /// Returns what the plugin has answered to the attempts of this undo, and of the same undo in updates.
    async fn answers(&self, listed: &BTreeSet<String>) -> FlowResult<InstanceIds> {
        let mut answers = InstanceIds { listed: listed.clone(), ..InstanceIds::default() };
        // Most undos find all that was made, and need no earlier answers.
        if !listed.is_empty() && self.instances.ids.is_subset(listed) {
            return Ok(answers);
        }
        let AttemptContext { env, run, unit: undo, .. } = self.attempt;
        let is_same = |unit: &UnitPlan| unit.action == Action::Destroy && unit.undoes == undo.undoes;
        for hook in &run.loaded.plan.hooks {
            let same = hook.places().filter(|(_, unit)| is_same(unit));
            let same: Vec<Unit> = same.map(|(at, _)| Unit(at.unit)).collect();
            for (_, _, mut record) in env.store.read_records(&run.id.sibling(hook.hook), &same).await? {
                if records::has_code(&record, ReasonCode::Failed) {
                    // A thing that the plugin listed and did not destroy may exist, whatever it lists later.
                    let InstanceIds { listed, destroyed, .. } = &mut record.instances;
                    listed.retain(|id| destroyed.contains(id));
                }
                answers.merge(record.instances);
            }
        }
        Ok(answers)
    }

    /// Returns the evidence that nothing is left, or `None` if nothing was made.
    fn evidence(&self, answers: &InstanceIds) -> Option<RemovalEvidence> {
        let MadeInstances { ids, may_be_more, .. } = self.instances;
        let (grade, asked, answered) = match answers.listed.is_empty() {
            true if *may_be_more => (RemovalGrade::Unconfirmed, self.client.find_method(), "not listed"),
            true if ids.is_empty() => return None,
            _ if ids.iter().all(|id| has(&answers.listed, id)) => {
                (RemovalGrade::Confirmed, self.client.find_method(), "not listed")
            }
            _ => (RemovalGrade::Reported, "Instance.Destroy", "OK"),
        };
        Some(RemovalEvidence::new(grade, asked, answered))
    }
}

/// Returns true if the plugin has listed an instance, or destroyed it unlisted.
fn is_known(answers: &InstanceIds, id: &str) -> bool {
    has(&answers.listed, id) || has(&answers.destroyed, id)
}

/// Returns true if `ids` has an ID. Plugins may list an ID in another case than that in which they have answered it.
fn has(ids: &BTreeSet<String>, id: &str) -> bool {
    ids.iter().any(|known| known.eq_ignore_ascii_case(id))
}

fn succeeded(success: AttemptSuccess) -> PluginStep {
    PluginStep::End(Box::new(AttemptEnd::Succeeded(success)))
}

fn failed(code: ReasonCode, why: &str) -> PluginStep {
    PluginStep::End(Box::new(AttemptEnd::Failed(AttemptFailure::new(code, why))))
}

fn ambiguous(key: &str, instances: &[Value]) -> PluginStep {
    let ids: Vec<&str> = instances.iter().map(instance_id).collect();
    let why = format!(
        "{} instances have the tag `{KEY_TAG}: {key}`, expected at most one: {}; destroy those that are not needed, then \
         retry",
        ids.len(),
        ids.join(", ")
    );
    failed(ReasonCode::Refused, &why)
}
