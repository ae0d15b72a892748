//! Makes and destroys resources of InfraKit's plugins.
//!
//! A plugin makes another instance with each `Provision`, so an attempt sends it at most once (rule 5). Every dispatch
//! first looks for instances with the tag of the unit, and adopts the one that exists. If a `Provision` got no response
//! and made nothing, the attempt fails after the longest processing time, and the next attempt sends it again.

use ebb_documents::plan::{Action, InfrakitAction, PluginInterface, UnitPlan};
use ebb_documents::render::{self, RenderError, RenderedInstance};
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::infrakit::KEY_TAG;
use ebb_protocol::limits;
use ebb_store::AttemptUpdate;
use serde_json::Value;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::{AttemptRef, undone_name, unit_name};
use crate::run::attempt_end::{AttemptEnd, AttemptFailure, AttemptSuccess};
use crate::run::dispatch_outcome::{DispatchOutcome, DispatchReason};
use crate::run::head::Run;
use crate::run::plugin_client::{PluginClient, PluginError, instance_id, is_ready};
use crate::run::records;
use crate::run::wakeup::{AttemptWakeup, postpone, record_repeat};
use crate::telemetry;

/// The wait in seconds after a call without a response, and between two looks for an instance.
const RETRY_SECONDS: u64 = 10;
/// The wait in seconds between two looks at the object of a controller.
const CONTROLLER_SECONDS: u64 = 5;
/// The wait in seconds until the next dispatch continues the work of this one.
const CONTINUE_SECONDS: u64 = 1;

/// The progress of a dispatch.
enum PluginStep {
    End(AttemptEnd),
    /// The attempt is dispatched again after so many seconds.
    Repeat(u64),
    /// The attempt is dispatched again at this time, and starts then.
    Postpone(Timestamp),
    /// The result is recorded.
    Recorded,
}

pub(super) struct PluginUnit<'a> {
    pub(super) run: &'a Run,
    pub(super) attempt: AttemptRef,
    pub(super) unit: &'a UnitPlan,
    pub(super) action: &'a InfrakitAction,
    pub(super) spec: RenderedInstance,
}

/// Makes the resource of a unit or adopts it, or destroys that of the undone unit. Until `may_act_until`, the plugin may
/// still make one.
pub(super) async fn send(
    env: &Env,
    it: PluginUnit<'_>,
    reason: DispatchReason,
    may_act_until: Timestamp,
) -> Result<DispatchOutcome, FlowError> {
    let client = it.client(env);
    telemetry::dispatch_started(it.run, it.attempt, client.begun);
    let is_setup = it.unit.action != Action::Destroy;
    let step = if is_setup { it.make(&client, reason).await } else { it.remove(&client, may_act_until).await };
    let step = match step {
        Ok(step) => step,
        Err(PluginError::Flow(error)) => return Err(error),
        Err(PluginError::NotSent(why)) if is_setup => failed(ReasonCode::NotStartable, &why),
        Err(PluginError::NotSent(why) | PluginError::Rejected(why)) => failed(ReasonCode::Failed, &why),
        Err(PluginError::Unknown(why)) => {
            tracing::warn!(run = %it.run.id, unit = it.unit.key, why, "a call of a plugin has no result; it follows again");
            let AttemptRef { unit, number, .. } = it.attempt;
            let progress = AttemptUpdate::Heartbeat(env.now(), Some(limits::message(&why)));
            env.store.update_attempt(&it.run.id, unit, number, &progress).await?;
            PluginStep::Repeat(RETRY_SECONDS)
        }
        Err(PluginError::Late) => PluginStep::Repeat(CONTINUE_SECONDS),
    };
    it.outcome(env, client.begun, step).await
}

impl PluginUnit<'_> {
    fn client<'a>(&'a self, env: &'a Env) -> PluginClient<'a> {
        let name = undone_name(self.run, self.unit).unwrap_or(unit_name(self.run, self.unit));
        PluginClient {
            env,
            cluster: self.run.cluster(self.attempt.unit),
            action: self.action,
            spec: &self.spec,
            key: self.run.stable_key(name),
            begun: env.now(),
        }
    }

    async fn outcome(&self, env: &Env, begun: Timestamp, step: PluginStep) -> Result<DispatchOutcome, FlowError> {
        let failure = match &step {
            PluginStep::End(AttemptEnd::Failed(_)) => Some("failed"),
            PluginStep::Repeat(_) => Some("repeated"),
            _ => None,
        };
        telemetry::dispatch_ended(self.run, self.attempt, begun, env.now(), failure);
        let at = match step {
            PluginStep::End(end) => return Ok(DispatchOutcome::ended(end)),
            PluginStep::Recorded => return Ok(DispatchOutcome::later(None)),
            PluginStep::Repeat(seconds) => record_repeat(env, self.run, self.attempt, seconds).await?,
            PluginStep::Postpone(at) => {
                postpone(env, self.run, self.attempt, at).await?;
                at
            }
        };
        Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))))
    }

    async fn make(&self, client: &PluginClient<'_>, reason: DispatchReason) -> Result<PluginStep, PluginError> {
        // A repetition has no time to check again what the first dispatch has checked.
        if reason != DispatchReason::SweepRepeat {
            client.check().await.map_err(|error| match error {
                // A repetition would get the same response.
                PluginError::Rejected(why) => PluginError::NotSent(why),
                error => error,
            })?;
        }
        let env = client.env;
        if self.action.interface != PluginInterface::Resource {
            let found = client.find().await?;
            match (self.action.interface, found.as_slice()) {
                (PluginInterface::Controller, found) => return self.commit(client, found.first()).await,
                (_, []) => {}
                (_, [one]) => return Ok(self.adopt(env, one).await?),
                (_, several) => return Ok(ambiguous(&client.key, several)),
            }
        }
        if client.is_late() {
            return Err(PluginError::Late);
        }
        // The intent is recorded before the request is sent. A dispatcher that finds the intent does not send it.
        let AttemptRef { unit, number, .. } = self.attempt;
        let before = env.store.update_attempt(&self.run.id, unit, number, &AttemptUpdate::Posted(env.now())).await;
        let before = before.map_err(FlowError::from)?;
        if before.result.is_some() {
            return Ok(PluginStep::Recorded);
        }
        if let Some(posted) = before.posted {
            let open_for = self.acts_until(env, Timestamp(posted)).since(env.now()).0;
            if open_for > 0 {
                return Ok(PluginStep::Repeat(open_for.div_ceil(1000).min(RETRY_SECONDS)));
            }
            let why = "the plugin did not respond, and what it was to make does not exist";
            return Ok(failed(ReasonCode::Lost, why));
        }
        let made = client.make().await?;
        if self.action.interface == PluginInterface::Resource {
            return Ok(self.complete(&made));
        }
        // The description has the properties of the instance, which outputs may read.
        let found = client.find().await.unwrap_or_default();
        let described = found.iter().find(|found| instance_id(found) == instance_id(&made));
        match self.outputs(described.unwrap_or(&made)) {
            Err(_) if described.is_none() => Ok(PluginStep::Repeat(CONTINUE_SECONDS)),
            _ => Ok(self.complete(described.unwrap_or(&made))),
        }
    }

    /// Commits the specification of a controller, which may be repeated, or waits until its object is ready.
    async fn commit(&self, client: &PluginClient<'_>, found: Option<&Value>) -> Result<PluginStep, PluginError> {
        let Some(object) = found else {
            client.make().await?;
            return Ok(PluginStep::Repeat(CONTROLLER_SECONDS));
        };
        Ok(match is_ready(object) {
            Ok(true) => self.complete(object),
            Ok(false) => PluginStep::Repeat(CONTROLLER_SECONDS),
            Err(why) => failed(ReasonCode::Failed, &why),
        })
    }

    /// Adopts the instance with the tag of the unit, unless another invocation may still wait for the `Provision`.
    async fn adopt(&self, env: &Env, instance: &Value) -> Result<PluginStep, FlowError> {
        let records = env.store.read_records(&self.run.id, &[self.attempt.unit]).await?;
        let own = records.into_iter().find(|(_, number, _)| *number == self.attempt.number);
        let posted = own.and_then(|(_, _, own)| own.posted.filter(|_| own.next_dispatch.is_none()));
        let window = env.settings.response_window().min(Millis(self.action.max_processing_time_ms));
        let due = posted.map(|posted| Timestamp(posted).plus(window));
        match due.map(|due| due.since(env.now()).0).filter(|&wait| wait > 0) {
            Some(wait) => Ok(PluginStep::Repeat(wait.div_ceil(1000))),
            None => Ok(self.complete(instance)),
        }
    }

    /// Returns the time until which a plugin may act on a request that was sent at `posted`.
    fn acts_until(&self, env: &Env, posted: Timestamp) -> Timestamp {
        let processing = posted.plus(env.settings.max_in_flight).plus(Millis(self.action.max_processing_time_ms));
        processing.max(posted.plus(env.settings.response_window()))
    }

    fn outputs(&self, instance: &Value) -> Result<ebb_protocol::value::Outputs, RenderError> {
        let outputs = render::outputs_from_instance(&self.run.loaded.compiled, self.unit, instance)?;
        Ok(outputs.into_iter().map(|(name, value)| (name, records::from_rendered(value))).collect())
    }

    fn complete(&self, instance: &Value) -> PluginStep {
        match self.outputs(instance) {
            Ok(outputs) => {
                PluginStep::End(AttemptEnd::Succeeded(AttemptSuccess { outputs, ..AttemptSuccess::default() }))
            }
            Err(error) => failed(ReasonCode::OutputInvalid, &error.to_string()),
        }
    }

    async fn remove(&self, client: &PluginClient<'_>, may_act_until: Timestamp) -> Result<PluginStep, PluginError> {
        let found = client.find().await?;
        if !found.is_empty() {
            let destroyed = client.destroy(&found).await;
            // A plugin rejects the call for what no longer exists.
            if !client.find().await?.is_empty() {
                // Without an error, the plugin destroys in the background.
                return destroyed.map(|()| PluginStep::Repeat(RETRY_SECONDS));
            }
        }
        Ok(match may_act_until > client.env.now() {
            true => PluginStep::Postpone(may_act_until),
            false => PluginStep::End(AttemptEnd::Succeeded(AttemptSuccess::default())),
        })
    }
}

fn failed(code: ReasonCode, why: &str) -> PluginStep {
    PluginStep::End(AttemptEnd::Failed(AttemptFailure::new(code, why)))
}

/// Returns the failure of a unit with several instances.
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
