//! What the api says: the bodies of its requests and answers. Times are RFC 3339 in UTC.

mod checks;
mod clusters;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::callback::FailureReason;
use crate::evidence::Evidence;
use crate::lifecycle::{OutputValue, TargetStopCause};

pub use checks::{CheckList, HealthCheck};
pub use clusters::{
    ClusterError, ClusterInfo, ClusterList, DeleteOrphans, DeleteOrphansResponse, Orphan, OrphanList, RelayOutage,
    TransportKind,
};

/// An error, as RFC 9457 has it; `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemDetails {
    /// The HTTP status.
    pub status: u16,
    /// A stable word for programs: `invalid-signature`, `already-exists`, `not-found`, …
    pub code: String,
    /// What is wrong, and what to do.
    pub detail: String,
    /// Errors of a document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DocumentError>,
    /// The changes that an update of a living target asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<DocumentChange>,
}

/// One difference between what a living target was created with and what an update asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentChange {
    /// Where: `ttl`, `resources.db.params.size`, …
    pub path: String,
    /// The value that the target has, shortened; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The value that the update asks for, shortened; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// An error or warning of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentError {
    /// The document.
    pub file: String,
    /// A stable word for programs.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// From 1; absent when the error has no place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

/// Publishes a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishPlugin {
    /// The document with all `@{…}` expanded.
    pub document: String,
}

/// A published version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginInfo {
    /// Name without version.
    pub name: String,
    /// Exact version.
    pub version: String,
    /// `signadot` or `ebb`.
    pub dialect: String,
    /// `sha256:…` of the document.
    pub digest: String,
    /// When it was published.
    pub created: String,
}

/// A published version with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginDetail {
    /// The version.
    #[serde(flatten)]
    pub info: PluginInfo,
    /// When it was withdrawn. New targets cannot use it; those that have it go on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<String>,
    /// The document as published.
    pub document: String,
}

/// The secrets that sign the requests of a plugin's webhook units.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SigningSecrets {
    /// The plugin, without a version.
    pub plugin: String,
    /// `whsec_…`, the current one first. While the deployment replaces its secret there are two, and each request has a
    /// signature by both.
    pub secrets: Vec<String>,
}

impl std::fmt::Debug for SigningSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningSecrets").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

/// A target in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetInfo {
    /// `sandbox`, …
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Identity of this life.
    pub uid: String,
    /// Rises with each change.
    pub generation: u64,
    /// Where it stands.
    pub phase: TargetState,
    /// Since when.
    pub since: String,
    /// When it was asked for.
    pub created: String,
    /// When its time to live ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Why it stops, or has stopped. With `stopping`, `stuck` and `gone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_cause: Option<TargetStopCause>,
    /// True if an operator overrode units of its teardown. The resources that they remove may still exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overridden: bool,
    /// Exact plugin versions that it holds.
    pub plugins: Vec<String>,
    /// The reason why it, or the next life of its name, waits; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// Where a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Phase)]
pub enum TargetState {
    /// Its resources are being made.
    Starting,
    /// They are there.
    Ready,
    /// A unit failed.
    Failed,
    /// It is being taken away.
    Stopping,
    /// Teardown has given up: an operator has to act.
    Stuck,
    /// Nothing is left.
    Gone,
}

/// A page of targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetPage {
    /// By kind and name. A page may have none and yet not be the last one.
    pub targets: Vec<TargetInfo>,
    /// Reasons why further targets cannot be read: damaged items of the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// The query parameter `nextToken` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// A target with everything that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDetail {
    /// What a list shows.
    #[serde(flatten)]
    pub info: TargetInfo,
    /// Labels of the document.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its resources by name.
    pub resources: BTreeMap<String, ResourceDetail>,
    /// The document's own `env`, once ready.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, OutputValue>,
    /// The reason why outputs and `env` are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_error: Option<String>,
    /// Its runs in the order of a life; those that have begun.
    pub runs: Vec<RunDetail>,
    /// The notification that the platform has not accepted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_notification: Option<String>,
    /// The state of its delivery, once the platform has not accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<NotificationDelivery>,
    /// The uid that waits for the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_uid: Option<String>,
    /// The cluster that its units wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<RelayOutage>,
}

/// A notification that the platform has not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationDelivery {
    /// `ready`, `failed`, `stuck` or `gone`.
    pub notification: String,
    /// How often it was sent.
    pub attempts: u32,
    /// Why the platform did not accept it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A resource of a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDetail {
    /// `name@version`.
    pub plugin: String,
    /// Its params as they were asked for, defaults included; a sensitive one is a reference to a Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, serde_json::Value>,
    /// Its outputs so far.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputValue>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunDetail {
    /// Its id.
    pub id: String,
    /// `preStart`, …
    pub hook: String,
    /// Where it stands.
    pub state: RunState,
    /// When it began.
    pub started: String,
    /// Its units in the order of the plan: as many as fit in an answer.
    pub units: Vec<UnitDetail>,
    /// There are more units. The query parameter `nextToken` of `GET /v1/runs/{run}` for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunState {
    /// Units run or will.
    Running,
    /// Cancelled; what may run is being settled.
    Cancelling,
    /// Every unit is done.
    Succeeded,
    /// A unit failed, and nothing moves any more.
    Failed,
    /// Cancelled and settled.
    Cancelled,
}

/// A unit of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitDetail {
    /// `resource/unit`.
    #[serde(rename = "unit")]
    pub key: String,
    /// `pod`, `webhook` or `object`.
    pub kind: String,
    /// Where it stands.
    pub state: UnitState,
    /// The try that it is at, from 1.
    pub attempt: u32,
    /// How many tries it may have before it fails.
    pub max_attempts: u32,
    /// The number of this try among these, from 1: a retry by an operator begins with the first one again.
    pub attempt_in_series: u32,
    /// Keys of the units of this hook that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Why it failed, was skipped, or is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// When this try was first seen to be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Milliseconds that it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When the next try or question comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// When this try fails at the latest, if it is known to have been sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Its last word on how far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// True if a log is kept.
    #[serde(default)]
    pub log: bool,
    /// How many callbacks reported a further distinct result after 16 of one attempt were kept. The teardown does not
    /// undo these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess_results: Option<u64>,
    /// Callbacks that were refused because of what they say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_callbacks: Option<RefusedCallbacks>,
}

/// Callbacks with a valid token that were answered 400.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedCallbacks {
    /// How many, over all attempts.
    pub count: u64,
    /// Why the last one was.
    pub reason: String,
}

/// Where a unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnitState {
    /// For other units.
    Waiting,
    /// Sent, or being sent.
    Running,
    /// A try failed; the next one has its time.
    Retrying,
    /// Done.
    Succeeded,
    /// Nothing was to be done.
    Skipped,
    /// Failed for good.
    Failed,
    /// Never starts: something that it waits for failed, or the run was cancelled.
    Blocked,
    /// Was running when the run was cancelled; runs no more.
    Cancelled,
}

/// Why a target is not where it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiagnosis {
    /// `KIND/NAME`.
    pub target: String,
    /// Where it stands.
    pub phase: TargetState,
    /// One sentence: what it waits for, or what went wrong.
    pub summary: String,
    /// The first cause, if something failed in the run that matters now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<RootCause>,
    /// All units that failed in that run, the first cause included; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedUnit>,
    /// Units that may have left something which is not undone yet.
    pub remaining: Vec<RemainingEffect>,
    /// Unusual reports of units that an operator should check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The next steps, the most useful one first.
    pub next_steps: Vec<String>,
}

/// A unit that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedUnit {
    /// The unit.
    pub unit: String,
    /// Its last failed try.
    pub attempt: u32,
    /// Why.
    pub reason: FailureReason,
}

/// The first unit that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootCause {
    /// The run.
    pub run: String,
    /// The unit.
    pub unit: String,
    /// Its last try.
    pub attempt: u32,
    /// Why.
    pub reason: FailureReason,
    /// The document, `name@version`.
    pub file: String,
    /// Where the unit stands in it.
    pub line: u32,
    /// Where the unit stands in it.
    pub column: u32,
    /// Its inputs as text, capped; sensitive ones masked.
    pub inputs: BTreeMap<String, String>,
    /// The last 20 lines of its log.
    pub log: Vec<String>,
    /// The request of a webhook unit and what its server answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Something that may exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemainingEffect {
    /// The unit that made it.
    pub unit: String,
    /// Whether it surely exists.
    pub certainty: Certainty,
    /// The outputs that name it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputValue>,
    /// True if outputs are left out because the answer has no room for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outputs_left_out: bool,
}

/// How sure it is that something exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Certainty {
    /// The unit succeeded.
    Exists,
    /// The unit was started and did not succeed.
    Possible,
}

/// Asks for a preview of a document's plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreviewPlan {
    /// The sandbox document with all `@{…}` expanded.
    pub document: String,
}

/// A plan that nothing was done for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanPreview {
    /// Its digest.
    pub digest: String,
    /// The hooks in the order of a life.
    pub hooks: Vec<HookPreview>,
    /// Warnings of the documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<DocumentError>,
}

/// A hook of a preview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookPreview {
    /// `preStart`, …
    pub hook: String,
    /// The units in an order in which they could run.
    pub units: Vec<UnitPreview>,
}

/// A unit of a preview.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitPreview {
    /// `resource/unit`.
    #[serde(rename = "unit")]
    pub key: String,
    /// `pod`, `webhook` or `object`.
    pub kind: String,
    /// The cluster that it names; absent: the target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What it waits for, and why.
    pub after: Vec<EdgePreview>,
    /// What it would be given; what is unknown yet is marked `<resource/unit.output>`, sensitive `<sensitive>`.
    pub rendered: serde_json::Value,
}

/// An edge of a preview.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgePreview {
    /// The unit that comes first.
    #[serde(rename = "unit")]
    pub key: String,
    /// `reads NAME`, `after`, `teardown order`.
    pub reason: String,
}

/// The answer to an operator's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryResponse {
    /// The run.
    pub run: String,
    /// Keys of the units that are retried.
    pub units: Vec<String>,
}

/// Marks a failed unit of a teardown as complete, although the resources that it removes may still exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceCompleteUnit {
    /// The unit's key, `RESOURCE/UNIT`.
    pub unit: String,
    /// Why; 1 to 500 characters, not only white space.
    #[schema(min_length = 1, max_length = 500, pattern = r"[^\s\u0085]")]
    pub reason: String,
    /// The name of the operator; at most 100 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub by: Option<String>,
}

/// Ends an instance whose teardown has given up, although resources of it may still exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceDeleteTarget {
    /// Why; 1 to 500 characters, not only white space.
    #[schema(min_length = 1, max_length = 500, pattern = r"[^\s\u0085]")]
    pub reason: String,
    /// The name of the operator; at most 100 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub by: Option<String>,
}

/// The response to an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideResponse {
    /// The run.
    pub run: String,
    /// Keys of the units that count as complete now. The resources that they remove are listed by `why`.
    pub units: Vec<String>,
}
