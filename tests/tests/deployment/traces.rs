//! Instances whose spans are collected: the spans of all invocations fit together.

use std::collections::BTreeSet;

use ebb_flow::telemetry::{METRIC_NAMES, Telemetry};
use ebb_lambda::EmfSink;
use ebb_tests::log_buffer::LogBuffer;
use serde_json::Value;

use crate::collector::{Collector, Span};
use crate::outside::SeenTraces;
use crate::run::LifecycleRun;

const PLUGIN: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  later:
    webhook: {url: "OUTSIDE/later"}
    outputs: {id: {value: "${response.body.id}"}}
  script:
    pod: {runner: sh, script: "#!/bin/sh\nprintf name >/tmp/name"}
    outputs: {name: {file: /tmp/name}}
  last: {webhook: {url: "OUTSIDE/last", body: {id: "${units.later.outputs.id}", of: "${units.script.outputs.name}"}}}
postStop:
  undo: {undoes: later, retry: {attempts: 2, backoff: 10ms}, webhook: {url: "OUTSIDE/flaky"}}
"##;
/// The trace and the span of the request for the first sandbox.
const CALLER: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

fn one<'a>(spans: &'a [Span], name: &str, trace: &str) -> &'a Span {
    let found: Vec<&Span> = spans.iter().filter(|span| span.name == name && span.trace_id == trace).collect();
    let [span] = found[..] else { panic!("{name} in {trace}: {found:#?}\nof {spans:#?}") };
    span
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_for_each_run() {
    let collector = Collector::start().await;
    let (lines, seen) = (LogBuffer::default(), SeenTraces::default());
    let spans = ebb_otlp::OtlpExporter::open(&collector.endpoint, "").unwrap().unwrap();
    let telemetry = Telemetry::default().with_spans(spans);
    let telemetry = telemetry.with_metrics(EmfSink::new("Ebb/test", Box::new(lines.clone())));
    let mut life = LifecycleRun::begin(telemetry, seen.clone()).await;
    life.publish("traced@1.0.0", PLUGIN).await;
    life.traceparent = Some(format!("00-{}-{}-01", CALLER.0, CALLER.1));
    assert_eq!(life.create("called", "1", "traced", "").await, 202);
    life.phase("called", "1", "ready").await;
    let mut received = seen.take();
    life.traceparent = None;
    assert_eq!(life.delete("called", "1").await, 202);
    life.phase("called", "1", "gone").await;
    let ended = |spans: &[Span]| {
        let of = |name| spans.iter().filter(|span: &&Span| span.name == name).count();
        of("run preStart") == 1 && of("run postStop") == 1 && of("receive") == 2
    };
    let spans = collector.spans(ended).await;

    // What each receiver was told is the try that it was sent, in the one trace of the run.
    let run = spans.iter().find(|span| span.name == "run preStart").unwrap();
    let trace = &*run.trace_id;
    assert_eq!((&*run.parent_span_id, run.attribute("ebb.target")), ("", Some("sandbox/called")));
    for unit in ["later", "script", "last"] {
        let tried = one(&spans, &format!("attempt r/{unit}"), trace);
        let told = received.remove(unit).unwrap_or_else(|| panic!("{unit} was told nothing"));
        assert_eq!(told, format!("00-{trace}-{}-01", tried.span_id), "{unit}");
        assert_eq!(tried.parent_span_id, run.span_id, "{unit}");
        let dispatches: Vec<&Span> = spans.iter().filter(|span| span.name == format!("dispatch r/{unit}")).collect();
        let fit = |span: &&Span| span.trace_id == trace && span.parent_span_id == tried.span_id && span.kind == 3;
        assert!(!dispatches.is_empty() && dispatches.iter().all(fit), "{unit}: {dispatches:#?}");
        let completions = spans.iter().filter(|span| span.name == "complete");
        let completions = completions.filter(|span| span.parent_span_id == tried.span_id && span.trace_id == trace);
        // One that was asked for twice is told of twice.
        assert_eq!(completions.count() > 0, unit != "last", "{unit}");
    }
    // The webhook is in the trace of its sender, and both are linked: by the event, and by what it led to.
    let event = one(&spans, "receive", CALLER.0);
    assert_eq!((&*event.parent_span_id, event.links()), (CALLER.1, vec![&*run.span_id]));
    // On a busy machine there is a second request, by `sweep`.
    let mut sent = spans.iter().filter(|span| span.name == "dispatch r/later" && span.trace_id == trace);
    assert!(sent.any(|span| span.links() == [&*event.span_id]), "{spans:#?}");

    // A webhook that tells of no trace is in that of the run that it has begun. Each try is a span of its own.
    let over = spans.iter().find(|span| span.name == "run postStop").unwrap();
    assert_ne!(over.trace_id, trace);
    assert_eq!(one(&spans, "receive", &over.trace_id).parent_span_id, over.span_id);
    let tries: BTreeSet<&str> =
        spans.iter().filter(|span| span.name == "attempt r/undo").map(|span| &*span.span_id).collect();
    assert_eq!(tries.len(), 2, "{spans:#?}");
    // Nothing that was handed on is in spans or figures.
    let told = lines.text();
    for text in [&collector.text(), &told] {
        assert!(!text.contains("long long") && !text.contains("ebb1."), "{text}");
    }
    figures(&told);
}

fn figures(text: &str) {
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |name: &str| lines.iter().filter_map(|line| line[name].as_u64()).sum::<u64>();
    assert_eq!((sum("Completed"), sum("Retried"), sum("Failed"), sum("Stuck")), (4, 1, 0, 0), "{text}");
    assert!(sum("Dispatched") >= 5, "{text}");
    for (function, name) in
        [("receive", "FirstDispatch"), ("complete", "NextDispatch"), ("sweep", "SweepLag"), ("complete", "AttemptTime")]
    {
        let said = |line: &&Value| line["function"] == function && !line[name].is_null();
        let line = lines.iter().find(said).unwrap_or_else(|| panic!("{name} of {function}: {text}"));
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "Ebb/test");
        assert_eq!(line["requestId"].is_null(), !line["run"].is_null() && line["Retried"].is_null(), "{line}");
    }
    let named = lines.iter().flat_map(|line| line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap());
    for metric in named {
        assert!(METRIC_NAMES.contains(&metric["Name"].as_str().unwrap()), "{metric}");
    }
}
