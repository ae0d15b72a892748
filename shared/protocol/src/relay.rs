//! What the control plane asks of a relay. Durations, never points in time: clocks differ.
//!
//! A relay knows works by their names and does with them what their data says: apply these objects, wait by these rules,
//! collect these outputs, call back there. It has no part in unit kinds, retries or plugins. A cluster's relay takes
//! [`ObjectTask`]; what runs scripts without a cluster takes [`ScriptTask`].
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

/// How long the control plane waits for the answer to a batch of starts, kills, removals and lists.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the control plane waits for the answer to a batch of short requests: nothing depends on them, and an invocation
/// that kills a script asks for its log first.
pub const SHORT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much earlier than the timeout of its caller a relay answers "not now": the request and the answer need time on
/// their way.
pub const RESPONSE_MARGIN: Duration = Duration::from_secs(2);

/// Requests that are answered in their order, each by itself: one that fails says nothing of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// Version of this message; 1.
    pub v: u32,
    /// The uid of the namespace `kube-system` that the control plane has pinned for this relay's cluster. A relay of
    /// another cluster does nothing and answers 409: a restored or cloned relay must not act for the original.
    pub cluster: String,
    /// At most [`BATCH`].
    pub requests: Vec<RelayRequest>,
}

impl Batch {
    /// The batch for whoever gets it that much later than it was written: its durations are shorter.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        for request in &mut self.requests {
            if let RelayRequest::Ensure(request) = request {
                request.not_after_ms = request.not_after_ms.saturating_sub(millis);
                request.timeout_ms = request.timeout_ms.saturating_sub(millis);
            }
        }
        self
    }
}

/// One verb.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum RelayRequest {
    /// Starts work under its name or finds it there; first kills or tombstones all lower tries. Answered by a state;
    /// ended work calls back again.
    Ensure(Box<EnsureTask<ObjectTask>>),
    /// Where the work stands. Answered by a state.
    Get(TaskId),
    /// Kills the work, leaves a tombstone under its name, known or not. Answered by a state: ended if it had ended by
    /// itself, running while it dies (ask again), tombstoned once nothing of it runs.
    #[serde(rename_all = "camelCase")]
    Cancel {
        name: TaskId,
        /// Milliseconds that its containers get between `SIGTERM` and `SIGKILL`.
        grace_ms: u64,
    },
    /// Removes work that waits for its turn, and leaves a tombstone under its name, known or not. Work that runs or has
    /// ended stays as it is. Answered by a state.
    Dequeue(TaskId),
    /// The result was taken by asking; the answer to a callback says so by itself. What is left of ended work may go, but for what it was to [`keep`](Objects::keep).
    Acknowledge(TaskId),
    /// Nothing of a life is read any more: the Secrets that hold its sensitive outputs may go.
    #[serde(rename_all = "camelCase")]
    Release {
        /// As in [`ObjectTask::life`].
        instance: String,
    },
    Info,
    /// What there is of works, and what carries their labels and is none of them; a page. Answered by a listing.
    List {
        /// [`ClusterListing::next`](crate::listing::Listing::next) of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// Nobody will ever ask for the work again: it is ended if it runs, and what was applied for it is deleted, by the uids
    /// that were recorded. A result that nobody has taken stays. Done once all of it is gone.
    Delete(TaskId),
}

impl RelayRequest {
    /// Returns how long the control plane waits for the answer.
    pub fn timeout(&self) -> Duration {
        match self {
            Self::Get(_) | Self::Acknowledge(_) | Self::Release { .. } | Self::Info => SHORT_RESPONSE_TIMEOUT,
            Self::Ensure(_)
            | Self::Cancel { .. }
            | Self::Dequeue(_)
            | Self::List { .. }
            | Self::Delete(_) => RESPONSE_TIMEOUT,
        }
    }
}

/// What a relay answers to a batch.
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

/// What a relay answers to one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RelayResponse {
    State(TaskState),
    Done,
    Info(RelayInfo),
    /// A page of what there is.
    Listing(ClusterListing),
    /// It will never be done as it is written: not allowed, or not what the cluster takes. For people.
    Refused(String),
    /// Not now: ask again. For people.
    Failed(String),
    /// The answers to the batch are larger than what its sender reads: ask for this one in a batch by itself.
    TooLarge,
}

/// Starts work under a name, or finds it there. Idempotent: the name decides, and a second request changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnsureTask<W = TaskBody> {
    /// Version of this message; 1.
    pub v: u32,
    pub name: TaskId,
    /// Milliseconds after which this request must not be taken any more. What a relay knows by then it may begin later, when
    /// others have ended: a cancellation finds it.
    pub not_after_ms: u64,
    /// Milliseconds that the work may take from when it may begin.
    pub timeout_ms: u64,
    pub callback: CallbackEndpoint,
    pub body: W,
}

impl EnsureTask {
    /// The script that is asked for, if it is one.
    pub fn script(&self) -> Option<&ScriptTask> {
        match &self.body {
            TaskBody::Script(script) => Some(script),
            TaskBody::Objects(_) => None,
        }
    }

    /// The request if it is for a script, for whoever runs scripts without a cluster.
    pub fn into_script(self) -> Option<EnsureTask<ScriptTask>> {
        let Self { v, name, not_after_ms, timeout_ms, callback, body: work } = self;
        let TaskBody::Script(work) = work else { return None };
        Some(EnsureTask { v, name, not_after_ms, timeout_ms, callback, body: work })
    }
}

impl From<EnsureTask<ScriptTask>> for EnsureTask {
    fn from(request: EnsureTask<ScriptTask>) -> Self {
        let EnsureTask { v, name, not_after_ms, timeout_ms, callback, body: work } = request;
        Self { v, name, not_after_ms, timeout_ms, callback, body: TaskBody::Script(work) }
    }
}

/// What a unit asks of whatever runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskBody {
    Script(ScriptTask),
    Objects(ObjectTask),
}

/// Objects of a cluster: some to apply, some to remove, what to wait for, and what to collect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectTask {
    /// Whose they are: the key of the target's life; a label value.
    pub instance: String,
    /// The namespace of what names none; `None`: the relay's default for units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Manifests, applied in this order by server-side apply, each labelled with the work's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apply: Vec<serde_json::Value>,
    /// Secrets with values that only the cluster knows. They are there before the first object is applied, and go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretDocument>,
    /// Units whose applied objects are removed, all tries of them: deleted by the uids that were recorded when they were
    /// applied, and waited for, finalizers and all. As [`TaskId::unit`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// What ends the work, beside the removal of all that is to be removed.
    pub until: TaskCompletion,
    /// What is collected when it has succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<ObjectOutput>,
    /// Whether the objects stay after the result was acknowledged, until another work removes them. Those of failed or
    /// cancelled work stay as well: what takes them away is another work too.
    #[serde(default)]
    pub keep: bool,
}

/// What ends a work with objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskCompletion {
    /// All applied objects are ready, each by its rules: they stand in the order of the manifests. With none: at once.
    Ready(Vec<ReadyRules>),
    /// The container of this name, in the pod of the first applied object (a Job), has ended. The runner in it says how
    /// (see [`crate::runner`]).
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
    /// Whether the value stays in the cluster: the result has a reference to a Secret.
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
    /// Name of the Secret, in the namespace of the work.
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
    /// The [`RelayAddress`](crate::runner::RelayAddress) at which this relay takes the reports of this work alone.
    Report,
}

/// Names a try of a unit. Tries of one unit share `unit`; a higher try replaces the lower ones: they are killed or
/// tombstoned before it starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskId {
    /// The unit of one run, a DNS label: `RUN-INDEX`.
    pub unit: String,
    pub attempt: u32,
}

impl TaskId {
    /// The name of a unit of a run, which all its tries share.
    pub fn unit_of(run: &RunId, unit: Unit) -> String {
        format!("{run}-{}", unit.0)
    }

    /// The key of the target's life that the run belongs to: what its name begins with.
    pub fn instance(&self) -> &str {
        self.unit.split_once('-').map_or(self.unit.as_str(), |(life, _)| life)
    }
}

/// Where a result goes.
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

/// A script with its surroundings.
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
    /// Whether the value stays in the cluster.
    #[serde(default)]
    pub sensitive: bool,
}

/// Where work stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskState {
    Unknown,
    #[serde(rename_all = "camelCase")]
    Running {
        /// The tail of its log so far.
        log: String,
        /// The last known reason why it waits: a node, an image, a condition of an object. For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pending: Option<String>,
        /// Milliseconds since the last heartbeat of its runner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heartbeat_ms: Option<u64>,
    },
    /// It waits for its turn, because no more may run at one time. Its time begins with its turn.
    #[serde(rename_all = "camelCase")]
    Waiting {
        /// How many of those that wait come before it.
        before: usize,
    },
    Ended(Box<Callback>),
    /// It does not run and never will: killed, or named by a cancellation before it came.
    Tombstoned,
}

impl TaskState {
    /// Work that runs and has printed `log`.
    pub fn running(log: impl Into<String>) -> Self {
        Self::Running { log: log.into(), pending: None, heartbeat_ms: None }
    }
}
