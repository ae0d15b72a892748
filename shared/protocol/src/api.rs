//! Bodies of API requests and responses. Times are RFC 3339 in UTC.

mod changes;
mod checks;
mod clusters;
mod connection_bodies;
mod named_tokens;
mod source_events;
mod subscription_bodies;
mod target_actions;
mod target_requests;
mod target_waits;
mod unit_attempts;
mod unit_rendering;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::callback::{FailureReason, ReasonCode};
use crate::evidence::Evidence;
use crate::lifecycle::{OutputValue, TargetStopCause, WorkloadValue};
use crate::object_status::ObjectStatus;
use crate::record::CallbackRefusals;
use crate::relay::{ObjectCount, WaitResolution};
use crate::removal::ResourceRemoval;

pub use changes::ChangeList;
pub use checks::{CheckList, HealthCheck};
pub use clusters::{
    ClusterBootstrap, ClusterDetail, ClusterError, ClusterInfo, ClusterList, ClusterRegistration, ClusterState,
    DeleteOrphans, DeleteOrphansResponse, Orphan, OrphanList, PutCluster, RelayOutage, SignadotOutputs, TransportKind,
};
pub use connection_bodies::{ConnectionDetail, ConnectionInfo, ConnectionList, PutConnection};
pub use ebb_engine::TargetPhase;
pub use named_tokens::{CallerInfo, CreateToken, CreatedToken, TokenInfo, TokenList};
pub use source_events::{
    DecidingEvent, PutSource, RejectedEvent, RejectionSummary, SourceDetail, SourceInfo, SourceList, SourceResponse,
    SourceResult,
};
pub use subscription_bodies::{
    DeliveryError, PutSubscription, SubscriptionDetail, SubscriptionInfo, SubscriptionList, UndeliveredNotification,
};
pub use target_actions::{
    ActOnTargets, NamedTarget, TargetAction, TargetOutcome, TargetOutcomes, TargetSelection, TargetSelector,
};
pub use target_requests::{ApplyTarget, ResourceEffect, TargetReceipt};
pub use target_waits::{AwaitedParty, OpenUnits, TargetWait, WaitingParty};
pub use unit_attempts::AttemptDetail;
pub use unit_rendering::{RequestRendering, UnitRendering};

/// An error as in RFC 9457: `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemDetails {
    pub status: u16,
    /// A stable code for programs: `invalid-signature`, `already-exists`, `not-found`, …
    pub code: String,
    /// The error and its fix.
    pub detail: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DocumentError>,
}

/// One difference between an active target and an update of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentChange {
    /// The path of the field: `ttl`, `resources.db.params.size`, …
    pub path: String,
    /// The present value, shortened. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The requested value, shortened. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentError {
    /// The name of the document.
    pub file: String,
    /// A stable code for programs.
    pub code: String,
    pub message: String,
    /// A suggested fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// From 1. Absent if the error has no position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": [{}] {}", self.code, self.message)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishPlugin {
    /// The document with all `@{…}` expanded.
    #[schema(min_length = 1)]
    pub document: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginInfo {
    /// The name without version.
    pub name: String,
    pub version: String,
    /// `signadot` or `ebb`.
    pub dialect: String,
    /// The digest of the document: `sha256:…`.
    pub digest: String,
    pub created: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginDetail {
    #[serde(flatten)]
    pub info: PluginInfo,
    /// The time of withdrawal. Existing targets keep a withdrawn version; new targets cannot use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    pub document: String,
}

/// Secrets that sign the requests of a plugin's webhook units.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningSecrets {
    /// The plugin, without a version.
    pub plugin: String,
    /// Secrets as `whsec_…`, the current one first. During a rotation there are two, and each request has a signature
    /// by both.
    pub secrets: Vec<String>,
}

impl std::fmt::Debug for SigningSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningSecrets").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetInfo {
    /// For example `sandbox`.
    pub kind: String,
    pub name: String,
    /// The identity of the instance.
    pub uid: String,
    /// The verified sender that created the instance: `platform`, `token NAME`, `ISSUER SUBJECT`, `role ROLE` or `source
    /// NAME`. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The labels of the document. A list has the first 8 KiB of names and values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Rises with each change of the document.
    pub generation: u64,
    pub phase: TargetPhase,
    /// The time at which the phase was entered.
    pub since: String,
    /// The time at which the instance was requested.
    pub created: String,
    /// The unit that failed first, with its reason, at most 200 characters. With `failed` and `stuck`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_cause: Option<String>,
    /// The end of the `ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// The reason of the stop. With `stopping`, `stuck` and `gone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_cause: Option<TargetStopCause>,
    /// True if an operator overrode units of the teardown. Their resources may still exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overridden: bool,
    /// The number of setup units without evidence that what they have made was removed. With `gone`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unconfirmed: u32,
    /// Plugin versions in use, as `name@version`.
    pub plugins: Vec<String>,
    /// The reason why the target, or the next instance of its name, waits. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The waits of `waitsFor` in fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<TargetWait>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_no_unit(count: &usize) -> bool {
    *count == 0
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetPage {
    /// Targets ordered by kind and name. May be empty although more pages follow.
    pub targets: Vec<TargetInfo>,
    /// Errors of targets that cannot be read, because their items are damaged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// Recorded outages of clusters, for which targets may wait. Their `units` are empty. Not in a list of gone targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<RelayOutage>,
    /// The query parameter `nextToken` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// A target with resources and runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDetail {
    #[serde(flatten)]
    pub info: TargetInfo,
    pub resources: BTreeMap<String, ResourceDetail>,
    /// The document's `env`, once ready.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, OutputValue>,
    /// The values that the workloads of a Signadot sandbox read, by workload, once ready: `KIND/NAMESPACE/NAME` for the
    /// origin of a fork, `local/NAME` for a local workload.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workloads: BTreeMap<String, Vec<WorkloadValue>>,
    /// The reason why outputs, or variables of `env`, are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_error: Option<String>,
    /// The evidence that resources are gone, the lowest grades first, at most 200. With `gone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<ResourceRemoval>,
    /// Runs that have begun, in the order of hooks.
    pub runs: Vec<RunDetail>,
    /// The open units of the present run whose wait a person has to end, or else the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wait: Option<OpenUnits>,
    /// The notification that the platform has not accepted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_notification: Option<String>,
    /// The state of its delivery, after a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<NotificationDelivery>,
    /// The UID that waits for the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_uid: Option<String>,
    /// The generation of the update that waits for the end of the present run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_generation: Option<u64>,
    /// The outage of the cluster that its units wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<RelayOutage>,
    /// The event of a source that decided whether the target exists. Absent if the platform controls the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidingEvent>,
}

/// A notification that the platform has not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationDelivery {
    /// `ready`, `failed`, `stuck` or `gone`.
    pub notification: String,
    /// The number of deliveries so far.
    pub attempts: u32,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time of the next delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDetail {
    /// `name@version`.
    pub plugin: String,
    /// The version `name@version` whose teardown an operator has chosen while the target was stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired_by: Option<String>,
    /// The phase of the resource, by the units of its last run.
    #[serde(default)]
    pub phase: TargetPhase,
    /// The time at which the resource entered the phase, as far as its units have recorded it. Otherwise the time at which
    /// the target entered its own.
    #[serde(default)]
    pub since: String,
    /// The unit that failed or has not ended, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Params as requested, with defaults. A sensitive one is a reference to a Secret, or `{"sensitive": true}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, serde_json::Value>,
    /// Outputs so far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputValue>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    pub id: String,
    /// For example `preStart`.
    pub hook: String,
    pub state: RunState,
    /// The time of the start.
    pub started: String,
    /// Units in the order of the plan, as many as fit into the response.
    pub units: Vec<UnitDetail>,
    /// The query parameter `nextToken` of `GET /v1/runs/{run}` for further units. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunState {
    /// Units run or will run.
    Running,
    /// Cancelled, while units may still run.
    Cancelling,
    /// Every unit succeeded or was skipped.
    Succeeded,
    /// A unit failed, and no other unit can run.
    Failed,
    /// Cancelled, and no unit runs.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitDetail {
    /// `RESOURCE/UNIT`.
    #[serde(rename = "unit")]
    pub key: String,
    /// `pod`, `webhook`, `object` or `infrakit`. The compiler adds units `removal` and `destroy`, which delete the result
    /// of an `object` and of an `infrakit` unit.
    #[schema(pattern = "^(pod|webhook|object|removal|infrakit|destroy)$")]
    pub kind: String,
    pub state: UnitState,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of attempts before the unit fails.
    pub max_attempts: u32,
    /// The number of the attempt since the last retry by an operator, from 1.
    pub attempt_in_series: u32,
    /// Keys of the units in this hook that it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The reason of a failure, a skip or a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// The time at which the attempt was first seen to run, if it is stored. The acceptance of a webhook is usually stored
    /// for the time in which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// The time at which the receiver of a webhook accepted the request, usually by 202, so that a callback is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
    /// The time at which the attempt ended. Absent for a success that is stored without a record: it has no outputs and no
    /// log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The duration of the attempt in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The time of the next attempt or request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The time at which the attempt fails at the latest, if its start is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// The last reported progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The time of the last heartbeat of a running script in a cluster, or of a receiver that reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<String>,
    /// The objects of a running or succeeded unit, and how many of them are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectCount>,
    /// The state of each object of a running or failed unit with several objects, or of a succeeded unit, at most 20. Of a
    /// unit that has ended, as it ended. Of a failed one, with shortened reasons, and as many as fit into 480 bytes. Of the
    /// succeeded units of a run, the first 100 have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub object_states: Vec<ObjectStatus>,
    /// What a running unit waits for in its cluster, one row per manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<UnitWait>,
    /// True if a log is stored.
    #[serde(default)]
    pub log: bool,
    /// The number of callbacks with further distinct results after 16 of one attempt were stored. The teardown does
    /// not undo these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess_results: Option<u64>,
    /// Callbacks that were rejected because of their content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_callbacks: Option<CallbackRefusals>,
    /// The attempts before the last one, the oldest first. At most the last 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_attempts: Vec<AttemptDetail>,
}

/// The reason why an object of a running unit is not ready, not started or not gone, as its relay reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitWait {
    /// `KIND NAMESPACE/NAME`, or `KIND NAME` for a cluster-wide object.
    pub object: String,
    /// The class of the failure if the unit ended for this reason.
    pub code: ReasonCode,
    /// For people.
    pub message: String,
    /// The time at which the reason was first reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The time at which the attempt fails if the wait does not end. Absent if only its deadline ends the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails_at: Option<String>,
    /// The awaited field of the object, such as `status.readyReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The last value of the field, as JSON of at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    pub resolves: WaitResolution,
}

/// The state of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnitState {
    /// Waits for other units.
    Waiting,
    /// Dispatched or about to be dispatched.
    Running,
    /// An attempt failed, and a further one is scheduled.
    Retrying,
    Succeeded,
    /// The condition `when` was false, or there was nothing to do.
    Skipped,
    /// Failed without a further attempt.
    Failed,
    /// Cannot start: a unit that it depends on failed, or the run was cancelled.
    Blocked,
    /// Was running when the run was cancelled, and no longer runs.
    Cancelled,
}

/// The diagnosis of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiagnosis {
    /// `KIND/NAME`.
    pub target: String,
    pub phase: TargetPhase,
    /// One sentence: what the target waits for, or what failed.
    pub summary: String,
    /// The first failure of the present run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RootCause>,
    /// All failed units of the present run, including the first cause. At most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedUnit>,
    /// Units with effects that may still exist.
    pub remaining: Vec<RemainingEffect>,
    /// The evidence that resources are gone, the lowest grades first, at most 200. With `stopping`, `stuck` and `gone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<ResourceRemoval>,
    /// Unusual reports of units that an operator should check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Next steps, the most useful first.
    pub next_steps: Vec<String>,
    /// What running units wait for in their clusters, by unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, Vec<UnitWait>>,
    /// The waits of the target, of its waiting update and events, and of the next instance of its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_waits: Vec<TargetWait>,
    /// The units of the present run that have not ended, grouped by what they wait for: those that a person has to help
    /// first. At most 20 groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenUnits>,
    /// The number of these units.
    #[serde(default, skip_serializing_if = "is_no_unit")]
    pub open_units: usize,
    /// The event of a source that decided whether the target exists. Absent if the platform controls the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<DecidingEvent>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedUnit {
    pub unit: String,
    /// The last failed attempt.
    pub attempt: u32,
    /// Its number since the last retry by an operator, from 1.
    pub attempt_in_series: u32,
    pub reason: FailureReason,
}

/// The unit that failed first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootCause {
    pub run: String,
    pub unit: String,
    pub attempt: u32,
    /// Its number since the last retry by an operator, from 1.
    pub attempt_in_series: u32,
    pub reason: FailureReason,
    /// The document, as `name@version`.
    pub file: String,
    /// The line of the unit in the document.
    pub line: u32,
    /// The column of the unit in the document.
    pub column: u32,
    /// Inputs as text, shortened. Sensitive ones are masked.
    pub inputs: BTreeMap<String, String>,
    /// The last 20 lines of the log.
    pub log: Vec<String>,
    /// The request of a webhook unit with its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// The effect of a unit that may still exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemainingEffect {
    /// The unit that created it.
    pub unit: String,
    pub certainty: Certainty,
    /// Outputs that identify it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputValue>,
    /// True if the outputs do not fit into the response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outputs_left_out: bool,
}

/// The certainty that an effect exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Certainty {
    /// The unit succeeded.
    Exists,
    /// The unit was started and did not succeed.
    Possible,
}

/// Requests a preview of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreviewPlan {
    /// The sandbox document with all `@{…}` expanded.
    #[schema(min_length = 1)]
    pub document: String,
}

/// A plan without effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanPreview {
    pub digest: String,
    /// Hooks in the order of the lifecycle.
    pub hooks: Vec<HookPreview>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DocumentError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookPreview {
    /// For example `preStart`.
    pub hook: String,
    /// Units in a possible order of execution.
    pub units: Vec<UnitPreview>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitPreview {
    /// `RESOURCE/UNIT`.
    #[serde(rename = "unit")]
    pub key: String,
    /// `pod`, `webhook`, `object` or `infrakit`. The compiler adds units `removal` and `destroy`, which delete the result
    /// of an `object` and of an `infrakit` unit.
    #[schema(pattern = "^(pod|webhook|object|removal|infrakit|destroy)$")]
    pub kind: String,
    /// The cluster of the unit. Absent if it is the cluster of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Dependencies with their reasons.
    pub after: Vec<EdgePreview>,
    /// The rendered request or script. Unknown values are shown as `<resource/unit.output>`, sensitive ones as
    /// `<sensitive>`.
    pub rendered: serde_json::Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgePreview {
    /// The unit that runs first.
    #[serde(rename = "unit")]
    pub key: String,
    /// `reads NAME`, `after` or `teardown order`.
    pub reason: String,
}

/// Retries a target. Without a body, its failed units run again as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryTarget {
    /// The identity of the instance. Another one is not changed. The default is the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// A published version `NAME@VERSION`. The teardown of a stuck target continues with the units of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Returns the changes of `plugin` without making them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The response to a retry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryResponse {
    /// The identity of the instance. A server of an earlier version names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    pub run: String,
    /// Keys of the units that are retried. A dry run retries none.
    pub units: Vec<String>,
    /// The teardown units that `plugin` changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<UndoChange>,
    /// Keys of teardown units of `plugin` that the plan of the target does not have. They do not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
}

/// A teardown unit that gets the content of another version of its plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UndoChange {
    /// The key of the unit.
    pub unit: String,
    /// The version before, as `name@version`.
    pub from: String,
    /// The version after, as `name@version`.
    pub to: String,
    /// The fields of the unit that differ.
    pub changes: Vec<DocumentChange>,
}

/// Marks a failed unit of a teardown as complete, although its resources may still exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceCompleteUnit {
    /// The identity of the instance. Another one is not changed. The default is the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The key of the unit: `RESOURCE/UNIT`.
    pub unit: String,
    /// The reason: 1 to 500 characters, not only white space.
    #[schema(min_length = 1, max_length = 500, pattern = r"[^\s\u0085]")]
    pub reason: String,
    /// The name of the operator, at most 100 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub by: Option<String>,
}

/// Ends an instance whose teardown failed, although its resources may still exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceDeleteTarget {
    /// The identity of the instance. Another one is not changed. The default is the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The reason: 1 to 500 characters, not only white space.
    #[schema(min_length = 1, max_length = 500, pattern = r"[^\s\u0085]")]
    pub reason: String,
    /// The name of the operator, at most 100 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub by: Option<String>,
}

/// The response to an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideResponse {
    pub run: String,
    /// Keys of the units that now count as complete. The diagnosis lists their resources.
    pub units: Vec<String>,
}
