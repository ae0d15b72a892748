//! Requests of the control plane to a relay. They contain durations, never points in time, because clocks differ.
//!
//! A relay applies objects, evaluates their rules, collects outputs and calls back. Actions, retries, hooks and plugins
//! are not part of its protocol. The relay of a cluster executes an [`ObjectTask`], a relay without a cluster a
//! [`ScriptTask`].
//!
//! The control plane sends a [`Batch`] by `POST /v1/batch`, signed as Standard Webhooks are. The response is a
//! [`BatchResponse`].

use std::fmt;
use std::time::Duration;

use ebb_engine::Millis;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Callback, ClusterListing, ObjectStatus, ReasonCode, RelayInfo, SecretRef, UnitValue};

pub use crate::id::TaskId;

/// The version of every message in this module.
pub const VERSION: u32 = 1;
/// The maximum number of requests in a batch.
pub const BATCH: usize = 100;

/// The timeout of batches with starts, cancels, deletions and lists.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout of batches with short requests. An invocation that cancels a script first requests its log. It is longer than
/// [`IDLE_POLL_MS`](crate::pull::IDLE_POLL_MS) and [`RESPONSE_MARGIN`] together.
pub const SHORT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);
/// The beginning of the text of an unavailable response to a call that was not sent.
pub const NOT_SENT: &str = "nothing was sent: ";
/// The beginning of the text about a request that a relay cannot read.
pub const UNREADABLE: &str = "this version of the relay cannot read the request: ";
/// What a start may need in its member `needs`. A relay that does not know a need refuses the start. It ignores members that it
/// does not know.
pub const KNOWN_NEEDS: [&str; 0] = [];
/// A relay responds this long before the timeout of its caller, because the response takes time in transit.
pub const RESPONSE_MARGIN: Duration = Duration::from_secs(2);

/// Requests with one response each, in their order. Their errors are independent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    pub v: u32,
    /// The UID of the namespace `kube-system` that the control plane has pinned. Another cluster responds with 409 and
    /// executes nothing: a restored or cloned relay must not act for the original.
    pub cluster: String,
    /// At most [`BATCH`].
    #[serde(deserialize_with = "each_request")]
    pub requests: Vec<RelayRequest>,
}

/// Reads each request on its own, so that one of a newer control plane does not hide the others.
fn each_request<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RelayRequest>, D::Error> {
    Ok(Vec::<serde_json::Value>::deserialize(deserializer)?.into_iter().map(RelayRequest::read).collect())
}

impl Batch {
    /// Subtracts `time` in transit from all durations.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        let Millis(millis) = time.into();
        for request in &mut self.requests {
            match request {
                RelayRequest::Ensure(request) => {
                    request.valid_for_ms = request.valid_for_ms.saturating_sub(millis);
                    request.timeout_ms = request.timeout_ms.saturating_sub(millis);
                }
                RelayRequest::Call(request) => {
                    request.valid_for_ms = request.valid_for_ms.saturating_sub(millis);
                }
                _ => {}
            }
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum RelayRequest {
    /// Starts a task or finds it, and first cancels all lower attempts. Returns a state. An ended task calls back
    /// again.
    Ensure(Box<EnsureTask<ObjectTask>>),
    /// Returns the state of a task with its log.
    Get(TaskId),
    /// Returns the state of a task without its log.
    Status(TaskId),
    /// Cancels a task and leaves a tombstone, even for an unknown one. Returns a state: ended if it had ended before,
    /// running while it terminates (repeat the request), tombstoned when nothing runs.
    Cancel {
        task: TaskId,
        /// Milliseconds between `SIGTERM` and `SIGKILL`.
        grace_ms: u64,
    },
    /// Removes a queued task and leaves a tombstone, even for an unknown one. Other tasks stay unchanged. Returns a
    /// state.
    Dequeue(TaskId),
    /// Confirms a result from [`Get`](Self::Get). A callback is acknowledged by its response. The relay may then
    /// delete the objects, except those to [`keep`](ObjectTask::keep).
    Acknowledge(TaskId),
    /// Permits the relay to delete the Secrets with sensitive outputs of an instance.
    Release {
        /// As in [`ObjectTask::instance`].
        instance: String,
    },
    About,
    /// Sends a request to a Service that the policy of the cluster lists. Returns the response of the Service. The relay
    /// sends the request once and keeps no record of it. An unavailable response leaves open if the Service received it, unless
    /// its text begins with [`NOT_SENT`].
    Call(Box<ServiceRequest>),
    /// Lists a page of tasks and of labelled objects without a task. Returns a listing.
    List {
        /// [`ClusterListing::next_token`] of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// Stops a task and deletes its applied objects by the recorded UIDs. An unacknowledged result stays. The response
    /// is `done` when all objects are gone.
    Delete(TaskId),
    /// A request that this version cannot read. It is never sent.
    #[serde(skip)]
    Unreadable {
        is_start: bool,
        /// For people.
        reason: String,
    },
}

impl RelayRequest {
    fn read(json: serde_json::Value) -> Self {
        let is_start = json.get("ensure").is_some();
        let mut needs = json["ensure"]["needs"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
        let unknown = needs.find(|need| !KNOWN_NEEDS.contains(need)).map(|need| format!("it needs `{need}`"));
        let read = match unknown {
            Some(unknown) => Err(unknown),
            None => serde_json::from_value(json).map_err(|error| error.to_string()),
        };
        read.unwrap_or_else(|why| Self::Unreadable { is_start, reason: format!("{UNREADABLE}{why}; update the relay") })
    }

    /// Returns what both sides know of the request.
    pub fn properties(&self) -> RequestProperties<'_> {
        const SHORT: Duration = SHORT_RESPONSE_TIMEOUT;
        let (verb, task, timeout, shares_batch) = match self {
            Self::Ensure(request) => ("ensure", Some(&request.task), RESPONSE_TIMEOUT, true),
            Self::Get(task) => ("get", Some(task), SHORT, true),
            Self::Status(task) => ("status", Some(task), SHORT, true),
            Self::Cancel { task, .. } => ("cancel", Some(task), RESPONSE_TIMEOUT, true),
            Self::Dequeue(task) => ("dequeue", Some(task), RESPONSE_TIMEOUT, true),
            Self::Acknowledge(task) => ("acknowledge", Some(task), SHORT, true),
            Self::Release { .. } => ("release", None, SHORT, true),
            Self::About => ("about", None, SHORT, false),
            Self::Call(_) => ("call", None, RESPONSE_TIMEOUT, false),
            Self::List { .. } => ("list", None, RESPONSE_TIMEOUT, false),
            Self::Delete(task) => ("delete", Some(task), RESPONSE_TIMEOUT, false),
            Self::Unreadable { .. } => ("unreadable", None, SHORT, false),
        };
        RequestProperties { verb, task, timeout, shares_batch }
    }
}

/// What both sides know of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestProperties<'a> {
    pub verb: &'static str,
    pub task: Option<&'a TaskId>,
    /// The timeout of the control plane.
    pub timeout: Duration,
    /// False if the request needs a batch of its own. The slowest request delays the response of a batch.
    pub shares_batch: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchResponse {
    pub v: u32,
    /// The UID of the namespace `kube-system`.
    pub cluster: String,
    /// One per request, in their order.
    pub responses: Vec<RelayResponse>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RelayResponse {
    State(TaskState),
    Done,
    About(RelayInfo),
    Listing(ClusterListing),
    Service(ServiceResponse),
    /// Final: the policy or the cluster rejects the request as written. For people.
    Refused(String),
    /// Repeat the request later. For people.
    Unavailable(String),
    /// The responses of the batch are too large. Repeat this request in a batch of its own.
    TooLarge,
}

/// A request to a Service. The policy of the cluster has its namespace, name, port and path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRequest {
    /// The key of the Service in the policy, or its host and port: `NAME.NAMESPACE.svc:PORT`. An earlier relay knows keys only.
    pub service: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`. An earlier relay sends the first two.
    pub method: String,
    /// The path with an optional query. It begins with `/`. With a key, the relay puts the path of the policy before it. With a
    /// host, it begins with the path of the policy.
    pub path: String,
    /// Headers of the request, in lower case: those that `ebb_kube::podspec::is_service_header` permits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// At most 1 MiB.
    #[serde(default)]
    pub body: String,
    /// Milliseconds after which the relay must not send the request.
    pub valid_for_ms: u64,
    /// What the relay adds to the request. An earlier relay cannot read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<ServiceCredential>,
}

/// A credential in a Secret of the cluster. Its value is in no message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceCredential {
    /// The Secret, with its namespace.
    pub secret: SecretRef,
    /// The header with the value. Without one, the value signs the message, whose id is in the header `webhook-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The text before the value in the header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceResponse {
    pub status: u16,
    /// The headers of the Service, with names in lower case. An earlier relay sends none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// At most 1 MiB. Bytes that are not UTF-8 are replaced.
    pub body: String,
}

/// Starts a task or finds it. A second request for the same id changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnsureTask<W = TaskBody> {
    pub v: u32,
    pub task: TaskId,
    /// Milliseconds after which the request must not be accepted. An accepted task may wait longer for a slot, and a
    /// cancel finds it there.
    pub valid_for_ms: u64,
    /// Milliseconds that the task may take once it has a slot.
    pub timeout_ms: u64,
    pub callback: CallbackEndpoint,
    /// Names for labels and annotations of objects.
    #[serde(default, skip_serializing_if = "TaskNames::is_empty")]
    pub names: TaskNames,
    pub body: W,
}

/// Names for people who look at the cluster. Nothing is decided by them, because they are not unique.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskNames {
    /// `KIND/NAME`.
    pub target: String,
    pub resource: String,
    pub unit: String,
    /// `NAME@VERSION`, or empty for a unit of the target's own document.
    pub plugin: String,
    pub hook: String,
}

impl TaskNames {
    /// Returns true if no name is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl EnsureTask {
    pub fn into_script(self) -> Option<EnsureTask<ScriptTask>> {
        let Self { v, task, valid_for_ms, timeout_ms, callback, names, body } = self;
        let TaskBody::Script(body) = body else { return None };
        Some(EnsureTask { v, task, valid_for_ms, timeout_ms, callback, names, body })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskBody {
    Script(ScriptTask),
    Objects(ObjectTask),
}

/// Objects to apply and to remove, the end of the task, and its outputs.
#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectTask {
    /// The key of the instance that owns the objects. It is a label value.
    pub instance: String,
    /// The namespace of manifests that name none. `None` means the relay's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Manifests, applied in this order by server-side apply and labelled with the task.
    pub apply: Vec<serde_json::Value>,
    /// True for objects of `bind`: Secrets and ConfigMaps in the namespaces that the policy lists for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bind: bool,
    /// Values that only the cluster has, for applied Secrets.
    pub fill: Vec<ManifestFill>,
    /// Units, as in [`TaskId::unit`], whose objects this task may take over. Such an object changes in place.
    pub adopts: Vec<String>,
    /// Secrets with values that exist only in the cluster. They are created before the first object and deleted with
    /// it.
    pub secrets: Vec<SecretDocument>,
    /// Units whose objects are deleted, those of all attempts, by the recorded UIDs. The task waits until they are
    /// gone, including finalizers. As [`TaskId::unit`].
    pub remove: Vec<String>,
    /// The condition that ends the task. All removals must be complete too.
    pub until: TaskCompletion,
    /// Outputs to collect after a success.
    pub outputs: Vec<ObjectOutput>,
    /// True if the objects stay until another task removes them, even if the task fails or is cancelled.
    #[serde(default)]
    pub keep: bool,
    /// True if the task fails as soon as an object can never become ready, or after the time for which a pod may fail to
    /// start if a person must end the wait. Otherwise it waits until its deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
}

/// A key in `data` of an applied Secret that gets the value of a key of another Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestFill {
    /// The position of the Secret in [`ObjectTask::apply`].
    pub manifest: usize,
    pub key: String,
    pub secret: SecretRef,
}

/// The condition that ends a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TaskCompletion {
    /// All applied objects are ready, by rules in the order of the manifests. Without objects, the task ends at once.
    Ready(Vec<ReadyRules>),
    /// The container of this name in the pod of the first object (a Job) has ended. Its entrypoint reports the result:
    /// see [`crate::entrypoint`].
    Ended { container: String },
}

impl Default for TaskCompletion {
    fn default() -> Self {
        Self::Ready(Vec::new())
    }
}

/// Rules for readiness and failure. The contract of the kind replaces a missing rule (`ebb_kube::contract`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyRules {
    /// CEL over `object`.
    pub ready: Option<String>,
    /// CEL over `object`.
    pub fail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectOutput {
    pub name: String,
    pub from: ObjectOutputFrom,
    /// True if the value stays in the cluster. The result then has a reference to a Secret.
    #[serde(default)]
    pub sensitive: bool,
    /// True if a missing value is null. A null value is never a reference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum ObjectOutputFrom {
    /// CEL over `object`, the first applied object, and `objects`, all of them in order.
    Value(String),
    /// A key of a Secret in the namespace of the first applied object.
    Secret {
        /// CEL over `object` and `objects` for the name of the Secret.
        name: String,
        key: String,
    },
}

/// A Secret with a JSON document, some of whose values exist only in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretDocument {
    /// The name of the Secret in the namespace of the task.
    pub name: String,
    pub key: String,
    /// The document, at most 1 MiB after values are filled in.
    pub document: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fill: Vec<DocumentFill>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DocumentFill {
    /// The JSON Pointer (RFC 6901) of the value to replace.
    pub pointer: String,
    pub with: FillWith,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FillWith {
    /// The value of a key of a Secret, as a [`UnitValue`].
    Secret(SecretRef),
    /// The [`RelayAddress`](crate::entrypoint::RelayAddress) for reports of this task.
    Report,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackEndpoint {
    pub url: String,
    pub token: String,
    /// The installation that requested the task, or empty if unknown. It stays the same if the URL changes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub installation: String,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptTask {
    pub image: String,
    pub namespace: Option<String>,
    /// A pod template as YAML.
    pub pod_template: Option<String>,
    /// The script. Its first line is `#!`.
    pub text: String,
    /// Environment variables other than inputs.
    pub env: Vec<(String, String)>,
    pub inputs: Vec<ScriptInput>,
    /// Files to collect after a success.
    pub outputs: Vec<ScriptOutput>,
}

/// An input of a script. Without a value, its variable is unset and its file is not created.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScriptInput {
    pub name: String,
    /// The environment variable of the input.
    pub env: Option<String>,
    /// The absolute path of the input file.
    pub path: Option<String>,
    pub value: Option<UnitValue>,
    /// True if the value is sensitive. It is masked in the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptOutput {
    pub name: String,
    /// The absolute path of the file.
    pub path: String,
    /// True if the value stays in the cluster.
    #[serde(default)]
    pub sensitive: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TaskState {
    Unknown,
    Running(RunningTask),
    /// The task waits for a slot. Its timeout begins with the slot.
    Queued {
        /// The number of queued tasks before it.
        ahead: usize,
    },
    Ended(Box<Callback>),
    /// The task does not run and must never start, because it was cancelled, possibly before its request arrived.
    Tombstoned,
}

impl TaskState {
    pub fn running(log: impl Into<String>) -> Self {
        Self::Running(RunningTask { log: log.into(), ..RunningTask::default() })
    }
}

/// A task that has a slot and has not ended.
#[serde_with::skip_serializing_none]
#[serde_with::apply(Vec => #[serde(skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunningTask {
    /// The end of the log so far. Empty in the response to [`RelayRequest::Status`].
    pub log: String,
    /// Milliseconds since the last heartbeat of the entrypoint.
    pub heartbeat_ms: Option<u64>,
    /// Milliseconds since the task got its slot, from which its timeout counts.
    pub age_ms: Option<u64>,
    /// The last progress that the script reported.
    pub progress: Option<String>,
    /// The applied objects of a task that waits until all are ready. Absent until they were observed.
    pub objects: Option<ObjectCount>,
    /// The state of each applied object, if there are several, at most
    /// [`MAX_OBJECTS`](crate::object_status::MAX_OBJECTS). Absent until they were observed.
    pub object_states: Vec<ObjectStatus>,
    /// What the task waits for: at most one row per manifest, and at most [`MAX_WAITS`] rows.
    pub waits: Vec<TaskWait>,
}

/// The number of applied objects, and how many of them are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ObjectCount {
    pub total: usize,
    pub ready: usize,
}

/// Maximum rows of [`RunningTask::waits`].
pub const MAX_WAITS: usize = 20;

/// The reason why an object of a task is not ready, not started or not gone.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskWait {
    /// The manifest: `KIND NAMESPACE/NAME`, or `KIND NAME` for a cluster-wide object.
    pub object: String,
    /// The class of the failure if the task ended for this reason.
    pub code: ReasonCode,
    /// What is awaited or what blocks, for people. It names the pod or the owned object that reports it.
    pub message: String,
    /// Milliseconds since the reason was first reported, by the clock of the cluster.
    pub since_ms: Option<u64>,
    /// Milliseconds until the task fails if the wait does not end. Absent if only the timeout of the task ends it.
    pub fails_in_ms: Option<u64>,
    /// The awaited field of the object, such as `status.readyReplicas`.
    pub field: Option<String>,
    /// The last value of [`field`](Self::field) as JSON, at most 200 characters. Values of Secrets are never reported.
    pub last: Option<String>,
    #[serde(default)]
    pub resolves: WaitResolution,
}

impl fmt::Display for TaskWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)
    }
}

/// How a wait may end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum WaitResolution {
    /// Without an action: something is being created, started or deleted.
    #[default]
    Itself,
    /// A person or another program can end it: an image, a Secret or a node is missing.
    Person,
    /// The object as written can never become ready.
    Never,
}
