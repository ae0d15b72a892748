//! Runs and their units.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{CallbackRefusals, FailureReason, ObjectCount, ObjectStatus, OutputValue, ReasonCode, WaitResolution};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunState {
    /// Units run or will run.
    #[default]
    Running,
    /// Cancelled, while units may still run.
    Cancelling,
    /// Every unit succeeded, was skipped, or has failed and is tolerated.
    Succeeded,
    /// A unit failed that is not tolerated, and no other unit can run.
    Failed,
    /// Cancelled, and no unit runs.
    Cancelled,
}

#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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
    /// True if the unit has failed and its document says `onFailure: continue`: its run goes on and does not fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tolerated: bool,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of attempts before the unit fails.
    pub max_attempts: u32,
    /// The number of the attempt since the last retry by an operator, from 1.
    pub attempt_in_series: u32,
    /// Keys of the units in this hook that it depends on.
    pub after: Vec<String>,
    /// The reason of a failure, a skip or a retry.
    pub reason: Option<FailureReason>,
    /// The time at which the attempt was first seen to run, if it is stored. The acceptance of a webhook is usually stored
    /// for the time in which it runs.
    pub started: Option<String>,
    /// The time at which the receiver of a webhook accepted the request, usually by 202, so that a callback is expected.
    pub accepted: Option<String>,
    /// The time at which the attempt ended. Absent for a success that is stored without a record: it has no outputs and no
    /// log.
    pub ended: Option<String>,
    /// The duration of the attempt in milliseconds.
    pub duration_ms: Option<u64>,
    /// The time of the next attempt or request.
    pub next: Option<String>,
    /// The time at which the attempt fails at the latest, if its start is known.
    pub deadline: Option<String>,
    /// The last reported progress.
    pub progress: Option<String>,
    /// The time of the last heartbeat of a running script in a cluster, or of a receiver that reports one.
    pub heartbeat: Option<String>,
    /// The objects of a running or succeeded unit, and how many of them are ready.
    pub objects: Option<ObjectCount>,
    /// The state of each object of a running or failed unit with several objects, or of a succeeded unit, at most 20. Of a
    /// unit that has ended, as it ended. Of a failed one, with shortened reasons, and as many as fit into 480 bytes. Of the
    /// succeeded units of a run, the first 100 have them.
    pub object_states: Vec<ObjectStatus>,
    /// The states that a running unit awaits in its cluster, one row per manifest.
    pub waits: Vec<UnitWait>,
    /// True if a log is stored.
    #[serde(default)]
    pub log: bool,
    /// The number of callbacks with further distinct results after 16 of one attempt were stored. The teardown does
    /// not undo these.
    pub excess_results: Option<u64>,
    /// Callbacks that were rejected because of their content.
    pub refused_callbacks: Option<CallbackRefusals>,
    /// The attempts before the last one, the oldest first. At most the last 20.
    pub earlier_attempts: Vec<AttemptDetail>,
}

impl UnitDetail {
    /// Returns true if the units after it do not wait for it any more.
    pub fn lets_pass(&self) -> bool {
        self.tolerated || matches!(self.state, UnitState::Succeeded | UnitState::Skipped)
    }
}

/// An attempt of a unit before its last one, as it is stored.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptDetail {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The number of the attempt since the last retry by an operator, from 1.
    pub attempt_in_series: u32,
    /// `failed`, `cancelled`, `succeeded` or `skipped`. `running` if no result is stored.
    pub state: UnitState,
    /// The time at which it was first seen to run, if it is known.
    pub started: Option<String>,
    pub ended: Option<String>,
    /// The duration in milliseconds.
    pub duration_ms: Option<u64>,
    /// The reason of a failure or a skip.
    pub reason: Option<FailureReason>,
    /// True if a log is stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
}

/// The reason why an object of a running unit is not ready, not started or not gone, as its relay reports it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitWait {
    /// `KIND NAMESPACE/NAME`, or `KIND NAME` for a cluster-wide object.
    pub object: String,
    /// The class of the failure if the unit ended for this reason.
    pub code: ReasonCode,
    /// For people.
    pub message: String,
    /// The time at which the reason was first reported.
    pub since: Option<String>,
    /// The time at which the attempt fails if the wait does not end. Absent if only its deadline ends the attempt.
    pub fails_at: Option<String>,
    /// The awaited field of the object, such as `status.readyReplicas`.
    pub field: Option<String>,
    /// The last value of the field, as JSON of at most 200 characters.
    pub last: Option<String>,
    pub resolves: WaitResolution,
}

/// The state of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnitState {
    /// Waits for other units.
    #[default]
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

/// The rendered form of a unit. Its kind decides which of `inputs`, `request`, `manifests` and `instance` it has.
/// A sensitive value is `<sensitive>`. One that is in a Secret of the cluster is `{"secretKeyRef": {"name", "key"}}`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnitRendering {
    pub run: String,
    /// `RESOURCE/UNIT`.
    pub unit: String,
    #[schema(pattern = "^(pod|webhook|object|removal|infrakit|destroy)$")]
    pub kind: String,
    pub attempt: u32,
    /// The cluster of the unit. Absent if it is the default of the control plane.
    pub cluster: Option<String>,
    /// The namespace of the pod, or of manifests that name none. Absent if it is the default of the relay.
    pub namespace: Option<String>,
    /// The image of a pod.
    pub image: Option<String>,
    /// The script of a pod, as its author wrote it. A long one is shortened to 65,536 characters.
    pub script: Option<String>,
    /// The reason why the unit does not run.
    pub skipped: Option<String>,
    /// The units that this one undoes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<String>,
    /// The inputs of a pod by name. An unset one is null. A long one is shortened.
    pub inputs: Option<BTreeMap<String, Value>>,
    pub request: Option<RequestRendering>,
    /// The manifests of an object unit, in the order in which they are applied.
    pub manifests: Option<Vec<Value>>,
    /// The resource that a plugin of InfraKit gets.
    pub instance: Option<Value>,
    /// The outputs that the attempt reported. A sensitive one is hidden, and a long one is shortened.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, OutputValue>,
}

/// The request of a webhook unit, without the headers that authorize it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestRendering {
    pub method: String,
    pub url: String,
    /// The connection that authorizes the request.
    pub connection: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// JSON as it is, and a body of another content type as text.
    pub body: Option<Value>,
}
