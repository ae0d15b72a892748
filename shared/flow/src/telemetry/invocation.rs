//! Where what is observed of invocations goes.

use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use ebb_engine::Timestamp;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::sinks::{MetricSink, SpanSink};
use super::trace::InvocationTrace;
use super::{INVOCATION, InvocationTelemetry};
use crate::background::{BackgroundTasks, RemainingWork, is_change};
use crate::ports::Clock as _;
use crate::system::SystemClock;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    Receive,
    Complete,
    Sweep,
    Api,
}

impl FunctionKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Complete => "complete",
            Self::Sweep => "sweep",
            Self::Api => "api",
        }
    }

    /// The function that a request to all of them is for.
    fn of(path: &str) -> Self {
        match path {
            "/v1/events" => Self::Receive,
            "/v1/callbacks" => Self::Complete,
            _ => Self::Api,
        }
    }
}

/// How an invocation has come.
#[derive(Clone, Debug, Default)]
pub struct InvocationOrigin {
    /// Its id, which log lines and figures have.
    pub request_id: String,
    /// When somebody before us has seen it first.
    pub received: Option<Timestamp>,
}

/// Where figures and spans go.
#[derive(Default)]
pub struct Telemetry {
    metrics: Option<Arc<dyn MetricSink>>,
    spans: Option<Box<dyn SpanSink>>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// Has the figures of each invocation that has any told to `sink`.
    pub fn with_metrics(self, sink: impl MetricSink + 'static) -> Self {
        Self { metrics: Some(Arc::new(sink)), ..self }
    }

    /// Sends spans to `sink`. Without a sink, requests have no `traceparent`.
    pub fn with_spans(self, sink: impl SpanSink + 'static) -> Self {
        Self { spans: Some(Box::new(sink)), ..self }
    }

    /// Does the work of one invocation, and has told its figures and spans when this returns.
    pub async fn invoke<T>(&self, function: FunctionKind, came: InvocationOrigin, work: impl Future<Output = T>) -> T {
        let InvocationOrigin { request_id: request, received: at } = came;
        let known = (!request.is_empty()).then_some(request.as_str());
        let span = tracing::info_span!("invocation", function = function.name(), requestId = known);
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
        let done = INVOCATION.scope(Arc::clone(&invocation), work).instrument(span.clone()).await;
        self.export(&invocation, now).instrument(span).await;
        done
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

    /// Makes an invocation of each request to `router`. `came` says how a request has come. An invocation that changes
    /// something is a task of `background`: it goes on when the client goes away, and after its answer.
    pub fn instrument_router(
        self: Arc<Self>,
        router: Router,
        background: &Arc<BackgroundTasks>,
        came: fn(&Request) -> InvocationOrigin,
    ) -> Router {
        let background = Arc::clone(background);
        router.layer(from_fn(move |request: Request, next: Next| {
            let (telemetry, background) = (Arc::clone(&self), Arc::clone(&background));
            async move {
                let (function, came) = (FunctionKind::of(request.uri().path()), came(&request));
                let changes = is_change(&request);
                let (answer, answered) = oneshot::channel();
                let work = async move {
                    let mut response = next.run(request).await;
                    let remainder = RemainingWork::take(&mut response);
                    // The client may be gone.
                    answer.send(response).ok();
                    if let Some(remainder) = remainder {
                        remainder.await;
                    }
                };
                let invocation = async move { telemetry.invoke(function, came, work).await };
                if changes {
                    background.spawn(invocation)
                } else {
                    invocation.await
                }
                // A task that panicked has no answer.
                answered.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
            }
        }))
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
        fn take(&self, figures: &InvocationMetrics) {
            lock(&self.0).0.push(figures.clone());
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
    async fn nothing_is_told_of_what_is_not_proven() {
        let kept = MemorySinks::default();
        let telemetry = Telemetry::default().with_metrics(kept.clone()).with_spans(kept.clone());
        telemetry.invoke(FunctionKind::Receive, InvocationOrigin::default(), async {}).await;
        assert_eq!(*lock(&kept.0), (vec![], vec![]));
        let event = async {
            crate::telemetry::webhook_received("sandbox", "demo", None);
            crate::telemetry::result_late();
            7
        };
        assert_eq!(telemetry.invoke(FunctionKind::Receive, InvocationOrigin::default(), event).await, 7);
        let (figures, spans) = &*lock(&kept.0);
        let ([figures], [span]) = (&figures[..], &spans[..]) else { panic!("{figures:?} {spans:?}") };
        assert_eq!((figures.function, &figures.counts[..]), ("receive", &[("LateResults", 1)][..]));
        assert_eq!((span.name.as_str(), span.parent), ("receive", None));
    }
}
