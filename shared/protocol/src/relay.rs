//! The requests of the control plane to a relay. They hold durations, never times: clocks differ.
//!
//! A relay knows tasks by their ids and does what their bodies say: apply these objects, wait by these rules, collect these
//! outputs, call back there. It knows no unit kinds, retries or plugins. A cluster's relay takes [`ObjectTask`]; a relay
//! that runs scripts without a cluster takes [`ScriptTask`].
//!
//! The control plane sends a [`Batch`] by `POST /v1/batch`, signed as Standard Webhooks are, and gets [`BatchResponse`].

use std::time::Duration;

use ebb_engine::Unit;
use serde::{Deserialize, Serialize};

use crate::callback::Callback;
use crate::id::RunId;
use crate::listing::{ClusterListing, RelayInfo};
use crate::value::{SecretRef, UnitValue};

/// Version of every message in this module.
pub const VERSION: u32 = 1;
/// Requests that one batch may have.
pub const BATCH: usize = 100;

/// Time that the control plane waits for the response to a batch of starts, cancellations, removals and lists.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time that the control plane waits for the response to a batch of short requests: nothing depends on them, and an
/// invocation that cancels a script asks for its log first.
pub const SHORT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time before the timeout of its caller at which a relay responds "not now": the request and the response take time in
/// transit.
pub const RESPONSE_MARGIN: Duration = Duration::from_secs(2);

/// Requests with one response each, in their order. A request that fails says nothing of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// Version of this message; 1.
    pub v: u32,
    /// The uid of the namespace `kube-system` that the control plane has pinned for this relay's cluster. A relay of
    /// another cluster does nothing and responds with 409: a restored or cloned relay must not act for the original.
    pub cluster: String,
    /// At most [`BATCH`].
    pub requests: Vec<RelayRequest>,
}

impl Batch {
    /// Returns the batch as it is `time` after it was written: with shorter durations.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        for request in &mut self.requests {
            if let RelayRequest::Ensure(request) = request {
                request.valid_for_ms = request.valid_for_ms.saturating_sub(millis);
                request.timeout_ms = request.timeout_ms.saturating_sub(millis);
            }
        }
        self
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum RelayRequest {
    /// Starts a task or finds it; first cancels all lower attempts. The response is a state; an ended task calls back
    /// again.
    Ensure(Box<EnsureTask<ObjectTask>>),
    /// Reads the state of a task.
    Get(TaskId),
    /// Cancels a task and leaves a tombstone under its id, known or not. The response is a state: ended if it had ended
    /// by itself, running while it terminates (send the request again), tombstoned once nothing of it runs.
    #[serde(rename_all = "camelCase")]
    Cancel {
        task: TaskId,
        /// Milliseconds that its containers get between `SIGTERM` and `SIGKILL`.
        grace_ms: u64,
    },
    /// Removes a task that waits for a slot, and leaves a tombstone under its id, known or not. A task that runs or has
    /// ended stays as it is. The response is a state.
    Dequeue(TaskId),
    /// The control plane has read the result with [`Get`](Self::Get); the response to a callback acknowledges by itself.
    /// The relay may delete the objects of the ended task, unless it has to [`keep`](ObjectTask::keep) them.
    Acknowledge(TaskId),
    /// The control plane reads nothing of an instance any more: the relay may delete the Secrets with its sensitive
    /// outputs.
    #[serde(rename_all = "camelCase")]
    Release {
        /// As in [`ObjectTask::instance`].
        instance: String,
    },
    /// Which relay responds.
    About,
    /// Lists a page of the tasks, and of the objects that have their labels and belong to none. The response is a listing.
    List {
        /// [`ClusterListing::next_token`] of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// Ends a task for which no further request comes, and deletes the objects that were applied for it, by the uids that
    /// were recorded. A result that was not acknowledged stays. The response is `done` once all objects are gone.
    Delete(TaskId),
}

impl RelayRequest {
    /// Returns the time that the control plane waits for the response.
    pub fn timeout(&self) -> Duration {
        match self {
            Self::Get(_) | Self::Acknowledge(_) | Self::Release { .. } | Self::About => SHORT_RESPONSE_TIMEOUT,
            Self::Ensure(_) | Self::Cancel { .. } | Self::Dequeue(_) | Self::List { .. } | Self::Delete(_) => {
                RESPONSE_TIMEOUT
            }
        }
    }
}

/// The response of a relay to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResponse {
    /// Version of this message; 1.
    pub v: u32,
    /// The uid of the namespace `kube-system` of its cluster.
    pub cluster: String,
    /// One for each request, in their order.
    pub responses: Vec<RelayResponse>,
}

/// The response of a relay to one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RelayResponse {
    State(TaskState),
    Done,
    About(RelayInfo),
    Listing(ClusterListing),
    /// The relay will never do it as it is written: its policy or the cluster forbids it. For people.
    Refused(String),
    /// Not now: send the request again. For people.
    Unavailable(String),
    /// The responses to the batch are larger than its sender reads: send this request in a batch by itself.
    TooLarge,
}

/// Starts a task or finds it. Idempotent: the id decides, and a second request changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnsureTask<W = TaskBody> {
    /// Version of this message; 1.
    pub v: u32,
    pub task: TaskId,
    /// Milliseconds after which a relay must not accept this request any more. It may begin an accepted task later, when
    /// others have ended: a cancellation finds it.
    pub valid_for_ms: u64,
    /// Milliseconds that the task may take once it has a slot.
    pub timeout_ms: u64,
    pub callback: CallbackEndpoint,
    pub body: W,
}

impl EnsureTask {
    /// Returns the script, if the task is one.
    pub fn script(&self) -> Option<&ScriptTask> {
        match &self.body {
            TaskBody::Script(script) => Some(script),
            TaskBody::Objects(_) => None,
        }
    }

    /// Returns the request if the task is a script.
    pub fn into_script(self) -> Option<EnsureTask<ScriptTask>> {
        let Self { v, task, valid_for_ms, timeout_ms, callback, body } = self;
        let TaskBody::Script(body) = body else { return None };
        Some(EnsureTask { v, task, valid_for_ms, timeout_ms, callback, body })
    }
}

impl From<EnsureTask<ScriptTask>> for EnsureTask {
    fn from(request: EnsureTask<ScriptTask>) -> Self {
        let EnsureTask { v, task, valid_for_ms, timeout_ms, callback, body } = request;
        Self { v, task, valid_for_ms, timeout_ms, callback, body: TaskBody::Script(body) }
    }
}

/// The contents of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskBody {
    Script(ScriptTask),
    Objects(ObjectTask),
}

/// Objects of a cluster to apply and to remove, what to wait for, and what to collect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectTask {
    /// The key of the instance that the objects belong to; a label value.
    pub instance: String,
    /// The namespace of objects that name none; `None`: the relay's default for units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Manifests, applied in this order by server-side apply, each labelled with the task's id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apply: Vec<serde_json::Value>,
    /// Secrets with values that only the cluster knows. They are there before the first object is applied, and go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretDocument>,
    /// Units whose applied objects are removed, of all attempts: deleted by the uids that were recorded when they were
    /// applied, and waited for, finalizers included. As [`TaskId::unit`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// What ends the task, beside the removal of all that is to be removed.
    pub until: TaskCompletion,
    /// What is collected when the task has succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<ObjectOutput>,
    /// Whether the objects stay after the result was acknowledged, until another task removes them. Those of a failed or
    /// cancelled task stay as well, until another task removes them.
    #[serde(default)]
    pub keep: bool,
}

/// What ends a task with objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskCompletion {
    /// All applied objects are ready, each by its rules: they stand in the order of the manifests. With none: at once.
    Ready(Vec<ReadyRules>),
    /// The container of this name, in the pod of the first applied object (a Job), has ended. The entrypoint in it reports
    /// the result (see [`crate::entrypoint`]).
    #[serde(rename_all = "camelCase")]
    Ended { container: String },
}

impl Default for TaskCompletion {
    fn default() -> Self {
        Self::Ready(Vec::new())
    }
}

/// When an object is ready or has failed. What is left out is decided by the contract of its kind (`ebb-readiness`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadyRules {
    /// CEL over `object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// CEL over `object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
}

/// An output of applied objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectOutput {
    pub name: String,
    pub from: ObjectOutputFrom,
    /// True if the value stays in the cluster: the result has a reference to a Secret.
    #[serde(default)]
    pub sensitive: bool,
}

/// Where an output of applied objects comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ObjectOutputFrom {
    /// CEL over `object`, the first applied one as it is now, and `objects`, all of them in their order.
    Value(String),
    /// A key of a Secret in the namespace of the first applied object.
    #[serde(rename_all = "camelCase")]
    Secret {
        /// CEL over `object` and `objects` that gives the Secret's name.
        name: String,
        key: String,
    },
}

/// A Secret that holds one JSON document, some of whose values only the cluster knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretDocument {
    /// Name of the Secret, in the namespace of the task.
    pub name: String,
    /// The key that holds the document.
    pub key: String,
    /// The document, at most 1 MiB with what is filled in.
    pub document: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fill: Vec<DocumentFill>,
}

/// A value that is put into a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DocumentFill {
    /// Where: a JSON Pointer (RFC 6901) to a value of the document, which is replaced.
    pub pointer: String,
    pub with: FillWith,
}

/// What is put into a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FillWith {
    /// The value of a Secret's key, written as a [`UnitValue`].
    Secret(SecretRef),
    /// The [`RelayAddress`](crate::entrypoint::RelayAddress) at which this relay takes the reports of this task alone.
    Report,
}

/// Identifies an attempt of a unit. Attempts of one unit share `unit`. A higher attempt replaces the lower ones: they are
/// cancelled before it starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskId {
    /// The unit of one run, a DNS label: `RUN-INDEX`.
    pub unit: String,
    pub attempt: u32,
}

impl TaskId {
    /// Returns the name of a unit of a run, which all its attempts share.
    pub fn unit_of(run: &RunId, unit: Unit) -> String {
        format!("{run}-{}", unit.0)
    }

    /// Returns the key of the instance that the run belongs to: its name begins with it.
    pub fn instance(&self) -> &str {
        self.unit.split_once('-').map_or(self.unit.as_str(), |(instance, _)| instance)
    }
}

/// The endpoint that takes a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallbackEndpoint {
    /// `POST` here.
    pub url: String,
    pub token: String,
    /// The installation that takes it, however its URL changes; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub installation: String,
}

/// A script with its environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptTask {
    pub image: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A pod template as YAML text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<String>,
    /// The script, first line `#!`.
    pub text: String,
    /// Environment variables that are not inputs.
    pub env: Vec<(String, String)>,
    pub inputs: Vec<ScriptInput>,
    /// Files to collect when it has succeeded.
    pub outputs: Vec<ScriptOutput>,
}

/// An input of a script. Without a value it is unset, and no file is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptInput {
    pub name: String,
    /// The environment variable that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The absolute path of the file that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<UnitValue>,
}

/// An output of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptOutput {
    pub name: String,
    /// The absolute path of the file.
    pub path: String,
    /// True if the value stays in the cluster.
    #[serde(default)]
    pub sensitive: bool,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskState {
    Unknown,
    #[serde(rename_all = "camelCase")]
    Running {
        /// The tail of its log so far.
        log: String,
        /// The last known reason why the task waits: a node, an image, a condition of an object. For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pending: Option<String>,
        /// Milliseconds since the last heartbeat of its entrypoint.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heartbeat_ms: Option<u64>,
    },
    /// The task waits for a slot, because no more may run at one time. Its timeout begins when it has one.
    #[serde(rename_all = "camelCase")]
    Queued {
        /// The number of queued tasks before it.
        ahead: usize,
    },
    Ended(Box<Callback>),
    /// The task does not run and never will: it was cancelled, perhaps before it came.
    Tombstoned,
}

impl TaskState {
    /// Returns the state of a task that runs and has printed `log`.
    pub fn running(log: impl Into<String>) -> Self {
        Self::Running { log: log.into(), pending: None, heartbeat_ms: None }
    }
}
