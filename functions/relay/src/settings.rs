//! Settings of a relay, and its clock.

use std::net::SocketAddr;
use std::num::{NonZeroUsize, ParseIntError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args as _, FromArgMatches as _};

/// Missing heartbeats after which a script counts as lost: three minutes at 15 s.
const LOST_HEARTBEATS: u32 = 12;
/// The shortest time without a heartbeat after which a script counts as lost.
const MIN_LOST: Duration = Duration::from_secs(10);

/// The settings of a relay, which are options of its program.
#[derive(Clone, Debug, clap::Args)]
pub struct RelaySettings {
    /// The namespace of the relay's own records, which must contain nothing else
    #[arg(long = "namespace", env = "EBB_RELAY_NAMESPACE", value_name = "NAMESPACE", default_value = "ebb-relay")]
    pub own_namespace: String,
    /// The namespace of tasks that name none
    #[arg(long = "unit-namespace", env = "EBB_RELAY_UNIT_NAMESPACE", value_name = "NAMESPACE")]
    #[arg(default_value = "ebb-units")]
    pub default_namespace: String,
    /// The URL at which pods reach the relay: http://ADDRESS:PORT, by IP address
    #[arg(long, env = "EBB_RELAY_ADVERTISE_URL", value_name = "URL", value_parser = socket_url)]
    pub advertise_url: String,
    /// Allowed hosts of callbacks, as HOST or HOST:PORT
    #[arg(long, env = "EBB_RELAY_CALLBACK_HOSTS", value_delimiter = ',', required = true)]
    pub callback_hosts: Vec<String>,
    /// Tasks that may run containers at the same time; the others are queued, and instances take turns
    // A node runs at most 110 pods by default, and some of them belong to the cluster.
    #[arg(long, env = "EBB_RELAY_MAX_CONCURRENT_TASKS", default_value = "100")]
    pub max_concurrent_tasks: NonZeroUsize,
    /// Seconds between two heartbeats of an entrypoint
    #[arg(long = "heartbeat-seconds", env = "EBB_RELAY_HEARTBEAT_SECONDS", value_name = "SECONDS")]
    #[arg(value_parser = seconds, default_value = "15")]
    pub heartbeat: Duration,
    /// Seconds for which an entrypoint retries the report of its result
    #[arg(long = "report-retry-seconds", env = "EBB_RELAY_REPORT_RETRY_SECONDS", value_name = "SECONDS")]
    #[arg(value_parser = seconds, default_value = "600")]
    pub report_retry: Duration,
    /// Seconds for which an error may keep a pod from starting, such as an image that cannot be pulled
    #[arg(long = "pod-start-timeout-seconds", env = "EBB_RELAY_POD_START_TIMEOUT_SECONDS", value_name = "SECONDS")]
    #[arg(value_parser = seconds, default_value = "60")]
    pub pod_start_timeout: Duration,
    /// Seconds in which a pod must be scheduled; without it, the timeout of the task
    #[arg(long = "scheduling-timeout-seconds", env = "EBB_RELAY_SCHEDULING_TIMEOUT_SECONDS", value_name = "SECONDS")]
    #[arg(value_parser = seconds)]
    pub scheduling_timeout: Option<Duration>,
    /// Seconds in which the API server may still execute a request of a relay that was killed
    // Until then, a task that such a relay started has not ended. The default of the API server is one minute.
    #[arg(long = "api-server-request-timeout-seconds", env = "EBB_RELAY_API_SERVER_REQUEST_TIMEOUT_SECONDS")]
    #[arg(value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    pub api_server_request_timeout: Duration,
    /// The name of its cluster in the control plane, for the commands in texts. `NAME` if the relay does not know it.
    #[arg(skip = "NAME")]
    pub cluster: String,
    /// The timeout of one step of a task, after which it is repeated.
    #[arg(skip = STEP_TIMEOUT)]
    pub step_timeout: Duration,
}

const STEP_TIMEOUT: Duration = Duration::from_secs(90);

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// Parses the URL for entrypoints, which resolve no names. It also rejects a variable that was not filled in.
fn socket_url(text: &str) -> Result<String, String> {
    let url = text.trim_end_matches('/');
    match url.strip_prefix("http://").map(str::parse::<SocketAddr>) {
        Some(Ok(_)) => Ok(url.to_owned()),
        _ => Err("expected http://ADDRESS:PORT with an IP address".to_owned()),
    }
}

impl RelaySettings {
    /// Returns the defaults, for tests. The hosts of callbacks are empty.
    pub fn new(own_namespace: &str, default_namespace: &str, advertise_url: &str) -> Self {
        let given = ["", "--namespace", own_namespace, "--unit-namespace", default_namespace];
        let required = ["--callback-hosts", "", "--advertise-url", "http://127.0.0.1:1"];
        let parsed = Self::augment_args(clap::Command::new("relay")).get_matches_from([&given[..], &required].concat());
        let settings = Self::from_arg_matches(&parsed).expect("the arguments are those of the settings");
        Self { callback_hosts: Vec::new(), advertise_url: advertise_url.to_owned(), ..settings }
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
