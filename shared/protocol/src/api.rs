//! Bodies of API requests and responses. Times are RFC 3339 in UTC.

mod clusters;
mod connection_bodies;
mod named_tokens;
mod repairs;
mod run_details;
mod source_events;
mod target_actions;
mod target_requests;
mod target_waits;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lifecycle::{OutputValue, TargetStopCause, WorkloadValue};
use crate::{ErrorCode, Evidence, FailureReason, ResourceRemoval, TokenScope};

pub use clusters::*;
pub use connection_bodies::*;
pub use ebb_engine::{ResourceEffect, TargetPhase};
pub use named_tokens::*;
pub use repairs::*;
pub use run_details::*;
pub use source_events::*;
pub use target_actions::*;
pub use target_requests::*;
pub use target_waits::*;

/// An error as in RFC 9457: `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    pub status: u16,
    /// A stable code for programs: `invalid-signature`, `already-exists`, `not-found`, …
    pub code: String,
    /// The error and its fix.
    pub detail: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DocumentError>,
}

impl ProblemDetails {
    /// Returns the next step of the caller, with the scope that the detail names.
    pub fn next_step(&self) -> Option<String> {
        let step = ErrorCode::named(&self.code)?.next_step()?;
        let scope = self.detail.split_once("the scope ").and_then(|(_, rest)| rest.split([';', ' ', ',']).next());
        let scope = scope.filter(|scope| scope.parse::<TokenScope>().is_ok()).unwrap_or("SCOPE");
        Some(step.replace("SCOPE", scope))
    }
}

/// One difference between an active target and an update of it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentChange {
    /// The path of the field: `ttl`, `resources.db.params.size`, …
    pub path: String,
    /// The present value, shortened. Absent if there is none.
    pub old: Option<String>,
    /// The requested value, shortened. Absent if there is none.
    pub new: Option<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DocumentError {
    /// The name of the document.
    pub file: String,
    /// A stable code for programs.
    pub code: String,
    pub message: String,
    /// A suggested fix.
    pub help: Option<String>,
    /// From 1. Absent if the error has no position.
    pub line: Option<u32>,
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

/// A document to publish, to store or to preview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentBody {
    /// The document as YAML or JSON text, with all `@{…}` expanded.
    #[schema(min_length = 1)]
    pub document: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
pub struct PluginList {
    /// Versions ordered by name, the highest version first.
    pub plugins: Vec<PluginInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
pub struct SigningSecrets {
    /// The plugin, without a version.
    pub plugin: String,
    /// Secrets as `whsec_…`, the current one first. During a rotation there are two, and each request has a signature
    /// by both.
    pub secrets: Vec<String>,
}

#[serde_with::skip_serializing_none]
#[serde_with::apply(bool => #[serde(default, skip_serializing_if = "std::ops::Not::not")])]
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
    pub owner: Option<String>,
    /// For people: `NAME SUBJECT`, if the issuer of the owner has a name.
    pub owner_name: Option<String>,
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
    pub first_cause: Option<String>,
    /// True if only `postStart` has failed: the outputs and the environment can be used. With `failed`.
    pub usable: bool,
    /// The end of the `ttl`.
    pub expires: Option<String>,
    /// The reason of the stop. With `stopping`, `stuck` and `gone`.
    pub stop_cause: Option<TargetStopCause>,
    /// True if an operator overrode units of the teardown. Their resources may still exist.
    pub overridden: bool,
    /// The number of setup units without evidence that what they have made was removed. With `gone`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unconfirmed: u32,
    /// Plugin versions in use, as `name@version`.
    pub plugins: Vec<String>,
    /// What the names of its things can contain: `target.key`, `resource.key` of each resource and `EBB_KEY` of each unit. With
    /// `keys`. Of a gone target without stored data, `target.key` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The reason why the target, or the next instance of its name, waits. For people.
    pub waits_for: Option<String>,
    /// The waits of `waitsFor` in fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<TargetWait>,
}

impl TargetInfo {
    /// Returns the owner for people. It is empty if it is unknown.
    pub fn shown_owner(&self) -> &str {
        self.owner_name.as_deref().or(self.owner.as_deref()).unwrap_or_default()
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
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

/// The targets that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeList {
    /// The query parameter `since` of the next request.
    pub seq: String,
    /// True if it is not known what has changed since the former request: read everything that you show again.
    pub reload: bool,
    /// The targets that have changed, as `KIND/NAME`, at most 64. Empty with `reload`.
    pub targets: Vec<String>,
}

/// A target with resources and runs.
#[serde_with::skip_serializing_none]
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
    pub outputs_error: Option<String>,
    /// The evidence that resources are gone, the lowest grades first, at most 200. With `gone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<ResourceRemoval>,
    /// Runs that have begun, in the order of hooks.
    pub runs: Vec<RunDetail>,
    /// The open units of the present run whose wait a person has to end, or else the first ones.
    pub first_wait: Option<OpenUnits>,
    /// The notification that the platform has not accepted yet.
    pub pending_notification: Option<String>,
    /// The state of its delivery, after a failed attempt.
    pub delivery: Option<NotificationDelivery>,
    /// The UID that waits for the name.
    pub waiting_uid: Option<String>,
    /// The generation of the update that waits for the end of the present run.
    pub pending_generation: Option<u64>,
    /// The outage of the cluster that its units wait for.
    pub outage: Option<RelayOutage>,
    /// The event of a source that decided whether the target exists. Absent if the platform controls the target.
    pub decided_by: Option<DecidingEvent>,
}

/// A notification that the platform has not accepted.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotificationDelivery {
    /// `ready`, `failed`, `stuck` or `gone`.
    pub notification: String,
    /// The number of deliveries so far.
    pub attempts: u32,
    /// The last error.
    pub reason: Option<String>,
    /// The time of the next delivery.
    pub next: Option<String>,
}

#[serde_with::apply(BTreeMap => #[serde(default, skip_serializing_if = "BTreeMap::is_empty")])]
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDetail {
    /// `name@version`.
    pub plugin: String,
    /// The version `name@version` whose teardown an operator has chosen while the target was stuck.
    pub repaired_by: Option<String>,
    /// True if neither an update nor a deletion of the target ends the resource.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protect: bool,
    /// The phase of the resource, by the units of its last run.
    #[serde(default)]
    pub phase: TargetPhase,
    /// The time at which the resource entered the phase, as far as its units have recorded it. Otherwise the time at which
    /// the target entered its own.
    #[serde(default)]
    pub since: String,
    /// The unit that failed or has not ended, with the reason.
    pub reason: Option<String>,
    /// Params as requested, with defaults. A sensitive one is a reference to a Secret, or `{"sensitive": true}`.
    pub params: BTreeMap<String, serde_json::Value>,
    /// Outputs so far.
    pub outputs: BTreeMap<String, OutputValue>,
    /// The names of the outputs that people open, with `show: link` in the plugin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// The diagnosis of a target.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiagnosis {
    /// `KIND/NAME`.
    pub target: String,
    pub phase: TargetPhase,
    /// One sentence: what the target waits for, or what failed.
    pub summary: String,
    /// The first failure of the present run.
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
    #[serde(default, skip_serializing_if = "is_zero")]
    pub open_units: usize,
    /// The event of a source that decided whether the target exists. Absent if the platform controls the target.
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

/// A plan without effects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanPreview {
    pub digest: String,
    /// Hooks in the order of the lifecycle.
    pub hooks: Vec<HookPreview>,
    /// The variables of `env` whose value, or whose sensitivity, is known before the first unit runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, OutputValue>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DocumentError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HookPreview {
    /// For example `preStart`.
    pub hook: String,
    /// Units in a possible order of execution.
    pub units: Vec<UnitPreview>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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
pub struct EdgePreview {
    /// The unit that runs first.
    #[serde(rename = "unit")]
    pub key: String,
    /// `reads NAME`, `after` or `teardown order`.
    pub reason: String,
}

/// The results of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckList {
    /// The version of the server.
    pub version: String,
    /// The time of the server, in milliseconds since 1970.
    pub now_ms: u64,
    /// The URL to which units and relays report.
    pub callback_url: String,
    pub checks: Vec<HealthCheck>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The part: `table`, `list-index`, `due-index`, `sweep`, `bucket`, `queue`, `secrets`, or `relay/CLUSTER`.
    pub name: String,
    pub passed: bool,
    /// The observation, or the error and how to fix it.
    pub detail: String,
    /// The duration of the check, in milliseconds.
    pub duration_ms: u64,
}
