//! What a relay is opened with.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use ebb_podspec::Allowed;

/// About what one node takes: the kubelet's own limit is 110 pods, and some of them are the cluster's.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(100).expect("it is not 0");

/// What a relay is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of its records. Nothing else belongs there.
    pub own_namespace: String,
    /// The namespace of units that name none.
    pub default_namespace: String,
    /// What the operator of the cluster allows.
    pub allowed: Allowed,
    /// Where pods reach it: `http://ADDRESS:PORT`, by IP address, for runners look up no names.
    pub reach: String,
    /// Hosts that callbacks may go to, as `HOST` or `HOST:PORT`.
    pub callback_hosts: BTreeSet<String>,
    /// How many works may run containers at one time. The others wait for their turn, in which lives follow one another.
    pub at_once: NonZeroUsize,
    /// Between two heartbeats of a runner.
    pub heartbeat: Duration,
    /// How long a runner reports its end again and again.
    pub runner_patience: Duration,
    /// How long what may pass by itself may last: an image that cannot be pulled, a quota that is used up.
    pub trouble: Duration,
    /// How long what could not be scheduled is waited for; `None`: until the work's deadline.
    pub unschedulable: Option<Duration>,
    /// How long the API server may take to do what it was asked for by a relay that is not there any more: until then what
    /// such a relay has begun is not over. Its own limit for a request is a minute, unless it was told otherwise.
    pub landing: Duration,
    /// How long one step of a work may take: an API server may have forgotten what it was asked for. Then it is done again.
    /// A request is answered earlier: before the timeout of its sender.
    pub longest: Duration,
    /// How long tombstones are kept, at least an hour.
    pub remember: Duration,
}

impl Settings {
    /// Ready to use but for what the operator has to say.
    pub fn new(own_namespace: &str, default_namespace: &str, reach: &str) -> Self {
        Self {
            own_namespace: own_namespace.to_owned(),
            default_namespace: default_namespace.to_owned(),
            allowed: Allowed::default(),
            reach: reach.trim_end_matches('/').to_owned(),
            callback_hosts: BTreeSet::new(),
            at_once: AT_ONCE,
            heartbeat: Duration::from_secs(15),
            runner_patience: Duration::from_secs(600),
            trouble: Duration::from_secs(60),
            unschedulable: None,
            landing: Duration::from_secs(60),
            longest: Duration::from_secs(90),
            remember: Duration::from_secs(3600),
        }
    }
}

/// As many milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
