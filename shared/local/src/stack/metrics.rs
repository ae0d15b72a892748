//! The metrics of one machine at `GET /metrics`, in the text format of Prometheus: counts and times of invocations, and
//! gauges of what the table holds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use ebb_api::queries::state_counts::{self, StateCounts};
use ebb_api::{HttpProblem, HttpResult, ServerState};
use ebb_flow::FlowResult;
use ebb_flow::telemetry::{InvocationMetrics, METRIC_COUNTS, METRIC_TIMES, MetricSink};
use ebb_protocol::error_code::ErrorCode;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry, TEXT_FORMAT, TextEncoder,
};
use tokio::sync::Mutex;

use crate::embedded::names_loopback;

/// The age from which a request reads the gauges again.
const MAX_AGE: Duration = Duration::from_secs(15);

/// The upper bounds of the buckets of times, in seconds.
const BOUNDS: [f64; 15] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0];

pub(super) struct StackMetrics {
    /// The counts and times of invocations.
    registry: Registry,
    /// The gauges, and the time at which they were read. Requests that arrive together read them once.
    gauges: Mutex<Option<(Instant, Vec<MetricFamily>)>>,
}

/// Adds the metrics of invocations to those of a stack.
pub(super) struct PrometheusSink {
    counts: BTreeMap<&'static str, IntCounter>,
    times: BTreeMap<&'static str, Histogram>,
    failed_of_plugins: IntCounterVec,
}

impl StackMetrics {
    /// Returns counts and times that are all zero, and their sink.
    pub(super) fn new() -> (Self, PrometheusSink) {
        let registry = Registry::new();
        let counts = METRIC_COUNTS.map(|(name, help)| {
            let counter = IntCounter::new(exposed_name(name, "total"), help);
            (name, registered(&registry, counter))
        });
        let times = METRIC_TIMES.map(|(name, help)| {
            let options = HistogramOpts::new(exposed_name(name, "seconds"), help).buckets(BOUNDS.to_vec());
            (name, registered(&registry, Histogram::with_opts(options)))
        });
        let failed = Opts::new("ebb_plugin_failed_total", "Units of each plugin that failed.");
        let failed_of_plugins = registered(&registry, IntCounterVec::new(failed, &["plugin"]));
        let (counts, times) = (BTreeMap::from(counts), BTreeMap::from(times));
        (Self { registry, gauges: Mutex::default() }, PrometheusSink { counts, times, failed_of_plugins })
    }

    /// Returns the text at the time `now`. `counts` is read if the gauges are older than [`MAX_AGE`].
    async fn text(&self, now: Instant, counts: impl Future<Output = FlowResult<StateCounts>>) -> HttpResult<String> {
        let mut read = self.gauges.lock().await;
        if read.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= MAX_AGE) {
            *read = Some((now, gauges(&counts.await?)));
        }
        let mut all = self.registry.gather();
        all.extend(read.iter().flat_map(|(_, gauges)| gauges.clone()));
        drop(read);
        TextEncoder::new()
            .encode_to_string(&all)
            .map_err(|error| HttpProblem::new(ErrorCode::Internal, format!("cannot write metrics: {error}")))
    }
}

impl MetricSink for PrometheusSink {
    fn take(&self, metrics: &InvocationMetrics) {
        for (name, count) in &metrics.counts {
            if let Some(counter) = self.counts.get(name) {
                counter.inc_by(*count);
            }
        }
        for (name, times) in &metrics.times {
            let Some(histogram) = self.times.get(name) else { continue };
            times.iter().for_each(|millis| histogram.observe(seconds(*millis)));
        }
        for (plugin, count) in &metrics.failed_of_plugins {
            self.failed_of_plugins.with_label_values(&[plugin.as_str()]).inc_by(*count);
        }
    }
}

/// Returns the gauges of what the table holds.
fn gauges(counts: &StateCounts) -> Vec<MetricFamily> {
    let registry = Registry::new();
    for (name, help, value) in [
        ("ebb_open_runs", "Runs that have not ended.", counts.open_runs as f64),
        ("ebb_due_lag_seconds", "Time for which the most urgent run or target is due.", seconds(counts.due_lag_ms)),
        ("ebb_cluster_outages", "Clusters whose relay does not respond.", counts.outages as f64),
        ("ebb_notifications_waiting", "Notifications that wait for receivers of subscriptions.", counts.waiting as f64),
        ("ebb_notifications_waiting_seconds", "Time for which the oldest of them waits.", seconds(counts.waiting_ms)),
    ] {
        registered(&registry, Gauge::new(name, help)).set(value);
    }
    let targets = Opts::new("ebb_targets", "Targets in each phase, without those that are gone.");
    let plugins = Opts::new("ebb_plugin_targets", "Targets that use each plugin, in each phase.");
    let subscriptions =
        Opts::new("ebb_subscription_notifications", "Notifications of each subscription, in each state.");
    let targets = registered(&registry, GaugeVec::new(targets, &["phase"]));
    for (phase, count) in &counts.targets {
        targets.with_label_values(&[*phase]).set(*count as f64);
    }
    for (options, labels, rows) in [
        (plugins, ["phase", "plugin"], &counts.plugins),
        (subscriptions, ["state", "subscription"], &counts.subscriptions),
    ] {
        let gauges = registered(&registry, GaugeVec::new(options, &labels));
        for ((name, state), count) in rows {
            gauges.with_label_values(&[*state, name.as_str()]).set(*count as f64);
        }
    }
    registry.gather()
}

/// Returns the name of a metric of the functions, such as `ebb_late_results_total` for `LateResults`.
fn exposed_name(name: &str, unit: &str) -> String {
    let mut exposed = String::from("ebb");
    for letter in name.chars() {
        exposed.extend(letter.is_ascii_uppercase().then_some('_'));
        exposed.push(letter.to_ascii_lowercase());
    }
    format!("{exposed}_{unit}")
}

fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("the names of metrics and labels are valid");
    registry.register(Box::new(metric.clone())).expect("each metric has a name of its own");
    metric
}

/// Functions, metrics and the address of the listener. Only programs of this machine reach a loopback address.
type MetricsServer = (ServerState, StackMetrics, IpAddr);

/// Returns the route of the metrics. It needs a token with the scope `read`, unless `address` is a loopback address and the
/// request names one.
pub(super) fn router(functions: ServerState, metrics: StackMetrics, address: IpAddr) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(Arc::<MetricsServer>::new((functions, metrics, address)))
}

async fn scrape(State(server): State<Arc<MetricsServer>>, headers: HeaderMap) -> HttpResult<impl IntoResponse> {
    let (functions, metrics, address) = &*server;
    if !address.is_loopback() || !names_loopback(&headers) {
        functions.authorize_metrics(&headers).await?;
    }
    let counts = Box::pin(state_counts::read(&functions.env.store, functions.env.now()));
    Ok(([(CONTENT_TYPE, TEXT_FORMAT)], metrics.text(Instant::now(), counts).await?))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// The page with the name and the unit of each metric.
    const PAGE: &str = include_str!("../../../../docs/src/operations/observability.md");

    #[tokio::test]
    async fn gauges_are_read_again_after_their_age() {
        let (metrics, _) = StackMetrics::new();
        let start = Instant::now();
        let text = async |after: Duration, ready| {
            let counts = StateCounts { targets: vec![("ready", ready)], ..StateCounts::default() };
            metrics.text(start + after, async { Ok(counts) }).await.unwrap()
        };
        let millisecond = Duration::from_millis(1);
        for (after, ready, shown) in [(Duration::ZERO, 1, 1), (MAX_AGE - millisecond, 2, 1), (MAX_AGE, 3, 3)] {
            let text = text(after, ready).await;
            assert!(text.contains(&format!("ebb_targets{{phase=\"ready\"}} {shown}\n")), "{text}");
        }
    }

    #[tokio::test]
    async fn every_metric_of_the_functions_is_exposed() {
        let (metrics, sink) = StackMetrics::new();
        for _ in 0..2 {
            sink.take(&InvocationMetrics {
                at: SystemTime::UNIX_EPOCH,
                function: "complete",
                request_id: None,
                run: None,
                unit: None,
                counts: METRIC_COUNTS.map(|(name, _)| (name, 2)).into(),
                times: METRIC_TIMES.map(|(name, _)| (name, vec![20, 2_000])).into(),
                failed_of_plugins: BTreeMap::from([("db".to_owned(), 3)]),
            });
        }
        let text = metrics.text(Instant::now(), async { Ok(StateCounts::default()) }).await.unwrap();
        assert!(text.contains("\nebb_plugin_failed_total{plugin=\"db\"} 6\n"), "{text}");
        for (own, help) in METRIC_COUNTS {
            let name = exposed_name(own, "total");
            assert!(PAGE.contains(&format!("| `{own}` | count | `{name}` |")), "{name}");
            let lines = format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} 4\n");
            assert!(text.contains(&lines), "{lines}\n{text}");
        }
        for (own, _) in METRIC_TIMES {
            let name = exposed_name(own, "seconds");
            assert!(PAGE.contains(&format!("| `{own}` | ms | `{name}` |")), "{name}");
            for line in [
                format!("{name}_bucket{{le=\"0.01\"}} 0\n"),
                format!("{name}_bucket{{le=\"0.025\"}} 2\n"),
                format!("{name}_bucket{{le=\"3600\"}} 4\n"),
                format!("{name}_sum 4.04\n"),
            ] {
                assert!(text.contains(&line), "{line}\n{text}");
            }
        }
    }
}
