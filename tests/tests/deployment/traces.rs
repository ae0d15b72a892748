//! The spans of all invocations of a run form one trace.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_api::OtlpExporter;
use ebb_flow::telemetry::{Span, SpanAttribute, SpanKind, SpanSink, Telemetry, metric_names};
use ebb_lambda::EmfSink;
use ebb_tests::log_buffer::LogBuffer;
use ebb_tests::receiver::TestReceiver;
use ebb_tests::wait::until;
use serde_json::Value;

use super::outside::SeenTraces;
use super::run::LifecycleRun;

/// The trace and span of the client that creates the sandbox.
const CALLER: (u128, u64) = (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7);

/// Keeps the spans and exports them to a collector.
#[derive(Clone)]
struct KeptSpans {
    kept: Arc<Mutex<Vec<Span>>>,
    exporter: Arc<OtlpExporter>,
}

#[async_trait]
impl SpanSink for KeptSpans {
    async fn take(&self, spans: Vec<Span>) {
        self.kept.lock().unwrap().extend(spans.iter().cloned());
        self.exporter.take(spans).await;
    }
}

fn one<'a>(spans: &'a [Span], name: &str, trace: u128) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name && span.id.trace == trace).collect();
    let [span] = found[..] else { panic!("{name} in {trace:x}: {found:#?}\nof {spans:#?}") };
    span
}

fn traceparent(trace: u128, span: u64) -> String {
    format!("00-{trace:032x}-{span:016x}-01")
}

fn parent(span: &Span) -> Option<u64> {
    span.parent.map(|parent| parent.span)
}

fn links(span: &Span) -> Vec<u64> {
    span.links.iter().map(|link| link.span).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_for_each_run() {
    let collector = TestReceiver::start().await;
    let (lines, seen) = (LogBuffer::default(), SeenTraces::default());
    let exporter = Arc::new(OtlpExporter::open(collector.url(), "").unwrap().unwrap());
    let sink = KeptSpans { kept: Arc::default(), exporter };
    let telemetry = Telemetry::default().with_spans(sink.clone());
    let telemetry = telemetry.with_metrics(EmfSink::new("Ebb/test", Box::new(lines.clone())));
    let mut instance = LifecycleRun::begin(telemetry, seen.clone()).await;
    instance.publish("traced@1.0.0", include_str!("documents/traced.yaml")).await;
    instance.traceparent = Some(traceparent(CALLER.0, CALLER.1));
    assert_eq!(instance.create("called", "1", "traced", "").await, 202);
    instance.phase("called", "1", "ready").await;
    let mut received = seen.take();
    instance.traceparent = None;
    assert_eq!(instance.delete("called", "1").await, 202);
    instance.phase("called", "1", "gone").await;
    let spans = until("the spans of both runs", async || {
        let spans = sink.kept.lock().unwrap().clone();
        let of = |name| spans.iter().filter(|span: &&Span| span.name == name).count();
        let ended = of("run preStart") == 1 && of("run postStop") == 1 && of("receive") == 2;
        ended.then_some(spans)
    })
    .await;

    // Each receiver has the trace of the run and the span of its attempt.
    let run = spans.iter().find(|span| span.name == "run preStart").unwrap();
    let trace = run.id.trace;
    assert_eq!(run.parent, None);
    assert!(run.attributes.contains(&("ebb.target", SpanAttribute::Text("sandbox/called".to_owned()))), "{run:?}");
    for unit in ["later", "script", "last"] {
        let attempt = one(&spans, &format!("attempt r/{unit}"), trace);
        assert_eq!(received.remove(unit), Some(traceparent(trace, attempt.id.span)), "{unit}");
        assert_eq!(parent(attempt), Some(run.id.span), "{unit}");
        let is_of = |span: &Span| span.id.trace == trace && parent(span) == Some(attempt.id.span);
        let dispatches: Vec<&Span> = spans.iter().filter(|span| span.name == format!("dispatch r/{unit}")).collect();
        let fit = |span: &&Span| is_of(span) && span.kind == SpanKind::Client;
        assert!(!dispatches.is_empty() && dispatches.iter().all(fit), "{unit}: {dispatches:#?}");
        let mut completions = spans.iter().filter(|span| span.name == "complete" && is_of(span));
        assert_eq!(completions.next().is_some(), unit != "last", "{unit}");
    }
    // The webhook is in the trace of its sender. It is linked to the run, and the first dispatch is linked to it.
    let event = one(&spans, "receive", CALLER.0);
    assert_eq!((parent(event), links(event)), (Some(CALLER.1), vec![run.id.span]));
    // On a slow machine, `sweep` may repeat the request.
    let mut sent = spans.iter().filter(|span| span.name == "dispatch r/later" && span.id.trace == trace);
    assert!(sent.any(|span| links(span) == [event.id.span]), "{spans:#?}");

    // A webhook without a trace is in the trace of the run that it started. Each attempt has a span.
    let teardown = spans.iter().find(|span| span.name == "run postStop").unwrap();
    assert_ne!(teardown.id.trace, trace);
    assert_eq!(parent(one(&spans, "receive", teardown.id.trace)), Some(teardown.id.span));
    let attempts: BTreeSet<u64> =
        spans.iter().filter(|span| span.name == "attempt r/undo").map(|span| span.id.span).collect();
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    // No output and no token is in spans or metrics.
    let exported = collector.calls("POST /v1/traces");
    let kinds: BTreeSet<&str> = exported.iter().map(|call| call.header("content-type")).collect();
    assert_eq!(kinds, BTreeSet::from(["application/x-protobuf"]));
    let metrics = lines.text();
    let exported = exported.iter().map(|call| call.body.to_string());
    for text in exported.chain([format!("{spans:?}"), metrics.clone()]) {
        assert!(!text.contains("long long") && !text.contains("ebb1."), "{text}");
    }
    assert_metrics(&metrics);
}

fn assert_metrics(text: &str) {
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |name: &str| lines.iter().filter_map(|line| line[name].as_u64()).sum::<u64>();
    assert_eq!((sum("Completed"), sum("Retried"), sum("Failed"), sum("Stuck")), (4, 1, 0, 0), "{text}");
    assert!(sum("Dispatched") >= 5, "{text}");
    for (function, name) in
        [("receive", "FirstDispatch"), ("complete", "NextDispatch"), ("sweep", "SweepLag"), ("complete", "AttemptTime")]
    {
        let matches = |line: &&Value| line["function"] == function && !line[name].is_null();
        let line = lines.iter().find(matches).unwrap_or_else(|| panic!("{name} of {function}: {text}"));
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Ebb/test");
        assert_eq!(line["requestId"].is_null(), !line["run"].is_null() && line["Retried"].is_null(), "{line}");
    }
    let named = lines.iter().flat_map(|line| line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap());
    for metric in named {
        assert!(metric_names().any(|name| metric["Name"] == name), "{metric}");
    }
}
