//! The metrics of the relay as text for Prometheus. A counter with few values of labels begins at zero, for its rate.

use std::sync::LazyLock;

use prometheus::core::Collector;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

/// The metrics of this process, which has one relay.
pub(crate) static METRICS: LazyLock<RelayMetrics> = LazyLock::new(RelayMetrics::new);

pub(crate) struct RelayMetrics {
    registry: Registry,
    tasks: IntGauge,
    tasks_running: IntGauge,
    tasks_queued: IntGauge,
    pub(crate) tasks_ended: IntCounterVec,
    pub(crate) requests: IntCounterVec,
    pub(crate) batches_rejected: IntCounter,
    pub(crate) polls: IntCounterVec,
    pub(crate) reports: IntCounterVec,
}

impl RelayMetrics {
    fn new() -> Self {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| registered(&registry, IntGauge::new(name, help));
        let counter = |name: &str, help: &str, labels: &[&str], results: &[&str]| {
            let counter = registered(&registry, IntCounterVec::new(Opts::new(name, help), labels));
            for result in results {
                counter.with_label_values(&[*result]);
            }
            counter
        };
        Self {
            tasks: gauge("ebb_relay_tasks", "Tasks in progress."),
            tasks_running: gauge("ebb_relay_tasks_running", "Tasks with a slot."),
            tasks_queued: gauge("ebb_relay_tasks_queued", "Tasks that wait for a slot."),
            tasks_ended: counter("ebb_relay_tasks_ended_total", "Tasks that have ended.", &["code"], &["succeeded"]),
            // Not every verb has every result.
            requests: counter("ebb_relay_requests_total", "Requests by their result.", &["verb", "result"], &[]),
            batches_rejected: registered(
                &registry,
                IntCounter::new("ebb_relay_batches_rejected_total", "Batches with a wrong signature or seal."),
            ),
            polls: counter("ebb_relay_polls_total", "Polls of the relay.", &["result"], &["accepted", "failed"]),
            reports: counter(
                "ebb_relay_reports_total",
                "Reports of entrypoints.",
                &["result"],
                &["accepted", "gone", "unauthorized", "malformed", "failed"],
            ),
            registry,
        }
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("the names of metrics and labels are valid");
    registry.register(Box::new(metric.clone())).expect("each metric has a name of its own");
    metric
}

/// Returns the metrics as text, with the present numbers of tasks: all, those with a slot, and queued ones.
pub(crate) fn text(tasks: usize, (running, queued): (usize, usize)) -> prometheus::Result<String> {
    for (gauge, count) in [(&METRICS.tasks, tasks), (&METRICS.tasks_running, running), (&METRICS.tasks_queued, queued)]
    {
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    TextEncoder::new().encode_to_string(&METRICS.registry.gather())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use ebb_protocol::callback::{Callback, ReasonCode};
    use ebb_protocol::relay::{TaskId, TaskNames};
    use prometheus::TEXT_FORMAT;
    use tower::ServiceExt as _;

    use crate::reconcile::task_events::{self, TaskEnd};
    use crate::test_api::{TestApi, rows};
    use crate::transport::http;

    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("ebb_relay_")).collect()
    }

    #[tokio::test]
    async fn every_metric_is_exposed_documented_and_shown() {
        let relay = TestApi::silent().relay().await;
        // A request of an unknown verb needs no response of the API server.
        http::execute_batch(&relay, r#"{"v": 1, "cluster": "u", "requests": [{"explode": {}}]}"#, Duration::ZERO).await;
        let failed = TaskEnd::of(&Callback::failed(ReasonCode::ImagePull, "no such image"));
        let name = TaskId { unit: "run-0".to_owned(), attempt: 1 };
        task_events::record_end(&name, &TaskNames::default(), &failed);
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = http::monitoring(relay).oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], TEXT_FORMAT);
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        for line in rows::<String>("every_metric_is_exposed_documented_and_shown") {
            assert!(text.contains(&line), "{line}\n{text}");
        }
        // As `promtool check metrics` expects.
        for (name, kind) in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')) {
            assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        }
        let (dashboard, page) = (
            include_str!("../../../infra/grafana/ebb.json"),
            include_str!("../../../docs/src/operations/observability.md"),
        );
        assert_eq!(names(dashboard), names(&text));
        assert_eq!(names(page), names(&text));
    }
}
