//! What a relay is opened with.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use ebb_podspec::ClusterPolicy;

/// About what one node takes: the kubelet's own limit is 110 pods, and some of them are the cluster's.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(100).expect("it is not 0");

/// What a relay is opened with.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// The namespace of its records. Nothing else belongs there.
    pub own_namespace: String,
    /// The namespace of units that name none.
    pub default_namespace: String,
    /// The policy of the operator of the cluster.
    pub policy: ClusterPolicy,
    /// The URL at which pods reach it: `http://ADDRESS:PORT`, by IP address, for entrypoints look up no names.
    pub advertise_url: String,
    /// Hosts that callbacks may go to, as `HOST` or `HOST:PORT`.
    pub callback_hosts: BTreeSet<String>,
    /// The number of tasks that may run containers at one time. The others are queued, and instances get slots in turn.
    pub max_concurrent_tasks: NonZeroUsize,
    /// The time between two heartbeats of an entrypoint.
    pub heartbeat: Duration,
    /// How long an entrypoint retries the report of its result.
    pub report_retry: Duration,
    /// How long an error that may pass may keep a pod from starting: an image that cannot be pulled, a quota that is used up.
    pub pod_start_timeout: Duration,
    /// How long a pod may wait for a node; `None`: until the task's deadline.
    pub scheduling_timeout: Option<Duration>,
    /// How long the API server may still carry out a request of a relay that was killed meanwhile: until then a task that
    /// such a relay has begun has not ended. The default limit of the API server for a request is a minute.
    pub api_server_request_timeout: Duration,
    /// How long one step of a task may take: an API server may have forgotten what it was asked for. Then it is done again.
    /// A request is answered earlier: before the timeout of its sender.
    pub step_timeout: Duration,
    /// How long tombstones are kept, at least an hour.
    pub tombstone_retention: Duration,
}

impl RelaySettings {
    /// Ready to use but for what the operator has to say.
    pub fn new(own_namespace: &str, default_namespace: &str, advertise_url: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            default_namespace: default_namespace.to_owned(),
            policy: ClusterPolicy::default(),
            advertise_url: advertise_url.trim_end_matches('/').to_owned(),
            callback_hosts: BTreeSet::new(),
            max_concurrent_tasks: AT_ONCE,
            heartbeat: Duration::from_secs(15),
            report_retry: Duration::from_secs(600),
            pod_start_timeout: Duration::from_secs(60),
            scheduling_timeout: None,
            api_server_request_timeout: Duration::from_secs(60),
            step_timeout: Duration::from_secs(90),
            tombstone_retention: Duration::from_secs(3600),
        }
    }
}

/// As many milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
