//! Settings of a relay, and its clock.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A node runs at most 110 pods by default, and some of them belong to the cluster.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(100).expect("it is not 0");

/// Missing heartbeats after which a script counts as lost: three minutes at 15 s.
const LOST_HEARTBEATS: u32 = 12;
/// The shortest time without a heartbeat after which a script counts as lost.
const MIN_LOST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// The namespace of its records. It must contain nothing else.
    pub own_namespace: String,
    /// The name of its cluster in the control plane, for the commands in texts. `NAME` if the relay does not know it.
    pub cluster: String,
    /// The default namespace of tasks.
    pub default_namespace: String,
    /// The URL at which pods reach it: `http://ADDRESS:PORT`. Entrypoints do not resolve names, so it needs an IP
    /// address.
    pub advertise_url: String,
    /// Allowed hosts of callbacks, as `HOST` or `HOST:PORT`.
    pub callback_hosts: BTreeSet<String>,
    /// The number of tasks that may run containers at the same time.
    pub max_concurrent_tasks: NonZeroUsize,
    pub heartbeat: Duration,
    /// The time for which an entrypoint repeats the report of its result.
    pub report_retry: Duration,
    /// The time for which a transient error may keep a pod from starting, for example an image that cannot be pulled.
    pub pod_start_timeout: Duration,
    /// The time in which a pod must be scheduled. `None` means the deadline of the task.
    pub scheduling_timeout: Option<Duration>,
    /// The time in which the API server may still execute a request of a relay that was killed. Until then, a task that
    /// such a relay started has not ended. The default of the API server is one minute.
    pub api_server_request_timeout: Duration,
    /// The timeout of one step of a task, after which it is repeated.
    pub step_timeout: Duration,
}

impl RelaySettings {
    /// Returns the defaults. The hosts of callbacks are empty.
    pub fn new(own_namespace: &str, default_namespace: &str, advertise_url: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            cluster: "NAME".to_owned(),
            default_namespace: default_namespace.to_owned(),
            advertise_url: advertise_url.trim_end_matches('/').to_owned(),
            callback_hosts: BTreeSet::new(),
            max_concurrent_tasks: AT_ONCE,
            heartbeat: Duration::from_secs(15),
            report_retry: Duration::from_secs(600),
            pod_start_timeout: Duration::from_secs(60),
            scheduling_timeout: None,
            api_server_request_timeout: Duration::from_secs(60),
            step_timeout: Duration::from_secs(90),
        }
    }

    /// Returns the time without a heartbeat after which a script counts as lost.
    pub(crate) fn lost_after(&self) -> Duration {
        self.heartbeat.saturating_mul(LOST_HEARTBEATS).max(MIN_LOST)
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns milliseconds since 1970 by the relay's clock, for records, which other processes read.
pub(crate) fn now_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
