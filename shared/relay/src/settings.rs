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
    /// What the operator of the cluster allows.
    pub policy: ClusterPolicy,
    /// Where pods reach it: `http://ADDRESS:PORT`, by IP address, for runners look up no names.
    pub advertise_address: String,
    /// Hosts that callbacks may go to, as `HOST` or `HOST:PORT`.
    pub callback_hosts: BTreeSet<String>,
    /// How many works may run containers at one time. The others wait for their turn, in which lives follow one another.
    pub max_concurrent_tasks: NonZeroUsize,
    /// Between two heartbeats of a runner.
    pub heartbeat: Duration,
    /// How long a runner reports its end again and again.
    pub report_retry: Duration,
    /// How long what may pass by itself may last: an image that cannot be pulled, a quota that is used up.
    pub pod_start_timeout: Duration,
    /// How long what could not be scheduled is waited for; `None`: until the work's deadline.
    pub unschedulable: Option<Duration>,
    /// How long the API server may take to do what it was asked for by a relay that is not there any more: until then what
    /// such a relay has begun is not over. Its own limit for a request is a minute, unless it was told otherwise.
    pub max_in_flight: Duration,
    /// How long one step of a work may take: an API server may have forgotten what it was asked for. Then it is done again.
    /// A request is answered earlier: before the timeout of its sender.
    pub step_timeout: Duration,
    /// How long tombstones are kept, at least an hour.
    pub tombstone_retention: Duration,
}

impl RelaySettings {
    /// Ready to use but for what the operator has to say.
    pub fn new(own_namespace: &str, default_namespace: &str, reach: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            default_namespace: default_namespace.to_owned(),
            policy: ClusterPolicy::default(),
            advertise_address: reach.trim_end_matches('/').to_owned(),
            callback_hosts: BTreeSet::new(),
            max_concurrent_tasks: AT_ONCE,
            heartbeat: Duration::from_secs(15),
            report_retry: Duration::from_secs(600),
            pod_start_timeout: Duration::from_secs(60),
            unschedulable: None,
            max_in_flight: Duration::from_secs(60),
            step_timeout: Duration::from_secs(90),
            tombstone_retention: Duration::from_secs(3600),
        }
    }
}

/// As many milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
