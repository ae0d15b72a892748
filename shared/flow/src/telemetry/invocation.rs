//! Runs invocations with telemetry.

use std::fmt;
use std::sync::{Arc, Mutex};

use ebb_engine::Timestamp;
use tracing::Instrument as _;

use super::sinks::{FunctionKind, MetricSink, SpanSink};
use super::trace::InvocationTrace;
use super::{INVOCATION, InvocationTelemetry};
use crate::ports::Clock as _;
use crate::system::SystemClock;

#[derive(Clone, Debug, Default)]
pub struct InvocationOrigin {
    /// The request id in logs and metrics.
    pub request_id: String,
    /// The time at which an earlier server received the request.
    pub received: Option<Timestamp>,
}

#[derive(Clone, Default)]
pub struct Telemetry {
    metrics: Option<Arc<dyn MetricSink>>,
    spans: Option<Arc<dyn SpanSink>>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// Exports the metrics of each invocation to `sink`.
    pub fn with_metrics(self, sink: impl MetricSink + 'static) -> Self {
        Self { metrics: Some(Arc::new(sink)), ..self }
    }

    /// Exports spans to `sink`. Without a sink, requests have no `traceparent`.
    pub fn with_spans(self, sink: impl SpanSink + 'static) -> Self {
        Self { spans: Some(Arc::new(sink)), ..self }
    }

    /// Runs `handler` as an invocation. Metrics and spans are exported when this returns.
    pub async fn invoke<T>(
        &self,
        function: FunctionKind,
        origin: InvocationOrigin,
        handler: impl Future<Output = T>,
    ) -> T {
        let InvocationOrigin { request_id: request, received: at } = origin;
        let request_id = (!request.is_empty()).then_some(request.as_str());
        let span = tracing::info_span!("invocation", function = function.name(), requestId = request_id);
        let now = SystemClock.now();
        let invocation = Arc::new(InvocationTelemetry {
            function,
            request_id: request,
            sink: self.metrics.clone(),
            started: at.map_or(now, |at| at.min(now)),
            counters: Mutex::default(),
            subject: Mutex::default(),
            begun: Mutex::default(),
            trace: self.spans.is_some().then(|| Mutex::new(InvocationTrace::new())),
        });
        let result = INVOCATION.scope(Arc::clone(&invocation), handler).instrument(span.clone()).await;
        self.export(&invocation, now).instrument(span).await;
        result
    }

    async fn export(&self, invocation: &InvocationTelemetry, began: Timestamp) {
        let now = SystemClock.now();
        invocation.export_metrics();
        let trace = invocation.trace().map(|mut trace| std::mem::replace(&mut *trace, InvocationTrace::new()));
        if let (Some(sink), Some(trace)) = (&self.spans, trace) {
            let spans = trace.finish(invocation.function, &invocation.request_id, (began, now));
            if !spans.is_empty() {
                sink.take(spans).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::telemetry::{InvocationMetrics, Span, lock};

    #[derive(Clone, Default)]
    struct MemorySinks(Arc<Mutex<(Vec<InvocationMetrics>, Vec<Span>)>>);

    impl MetricSink for MemorySinks {
        fn take(&self, metrics: &InvocationMetrics) {
            lock(&self.0).0.push(metrics.clone());
        }
    }

    #[async_trait]
    impl SpanSink for MemorySinks {
        async fn take(&self, spans: Vec<Span>) {
            assert!(!spans.is_empty());
            lock(&self.0).1.extend(spans);
        }
    }

    #[tokio::test]
    async fn unverified_requests_emit_no_telemetry() {
        let sinks = MemorySinks::default();
        let telemetry = Telemetry::default().with_metrics(sinks.clone()).with_spans(sinks.clone());
        telemetry.invoke(FunctionKind::Receive, InvocationOrigin::default(), async {}).await;
        assert_eq!(*lock(&sinks.0), (vec![], vec![]));
        let event = async {
            crate::telemetry::webhook_received("sandbox", "demo", None);
            crate::telemetry::count(crate::telemetry::Counter::LateResults, 1);
            7
        };
        assert_eq!(telemetry.invoke(FunctionKind::Receive, InvocationOrigin::default(), event).await, 7);
        let (metrics, spans) = &*lock(&sinks.0);
        let ([metrics], [span]) = (&metrics[..], &spans[..]) else { panic!("{metrics:?} {spans:?}") };
        assert_eq!((metrics.function, &metrics.counts[..]), ("receive", &[("LateResults", 1)][..]));
        assert_eq!((span.name.as_str(), span.parent), ("receive", None));
    }
}
