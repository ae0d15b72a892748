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

use super::sinks::{FigureSink, SpanSink};
use super::trace::Trace;
use super::{INVOCATION, Invocation};
use crate::background::{Background, RemainingWork, is_change};
use crate::ports::Clock as _;
use crate::system::SystemClock;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Receive,
    Complete,
    Sweep,
    Api,
}

impl Function {
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
pub struct Came {
    /// Its id, which log lines and figures have.
    pub request: String,
    /// When somebody before us has seen it first.
    pub at: Option<Timestamp>,
}

/// Where figures and spans go.
#[derive(Default)]
pub struct Telemetry {
    figures: Option<Arc<dyn FigureSink>>,
    spans: Option<Box<dyn SpanSink>>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

impl Telemetry {
    /// Has the figures of each invocation that has any told to `sink`.
    pub fn with_figures(self, sink: impl FigureSink + 'static) -> Self {
        Self { figures: Some(Arc::new(sink)), ..self }
    }

    /// Sends spans to `sink`. Without a sink, requests have no `traceparent`.
    pub fn with_spans(self, sink: impl SpanSink + 'static) -> Self {
        Self { spans: Some(Box::new(sink)), ..self }
    }

    /// Does the work of one invocation, and has told its figures and spans when this returns.
    pub async fn invoke<T>(&self, function: Function, came: Came, work: impl Future<Output = T>) -> T {
        let Came { request, at } = came;
        let known = (!request.is_empty()).then_some(request.as_str());
        let span = tracing::info_span!("invocation", function = function.name(), request = known);
        let now = SystemClock.now();
        let invocation = Arc::new(Invocation {
            function,
            request,
            sink: self.figures.clone(),
            began: at.map_or(now, |at| at.min(now)),
            counters: Mutex::default(),
            subject: Mutex::default(),
            begun: Mutex::default(),
            trace: self.spans.is_some().then(|| Mutex::new(Trace::new())),
        });
        let done = INVOCATION.scope(Arc::clone(&invocation), work).instrument(span.clone()).await;
        self.tell(&invocation, now).instrument(span).await;
        done
    }

    async fn tell(&self, invocation: &Invocation, began: Timestamp) {
        let now = SystemClock.now();
        invocation.tell_figures();
        let trace = invocation.trace().map(|mut trace| std::mem::replace(&mut *trace, Trace::new()));
        if let (Some(sink), Some(trace)) = (&self.spans, trace) {
            let spans = trace.finish(invocation.function, &invocation.request, (began, now));
            if !spans.is_empty() {
                sink.take(spans).await;
            }
        }
    }

    /// Makes an invocation of each request to `router`. `came` says how a request has come. An invocation that changes
    /// something is a task of `background`: it goes on when the client goes away, and after its answer.
    pub fn observed(
        self: Arc<Self>,
        router: Router,
        background: &Arc<Background>,
        came: fn(&Request) -> Came,
    ) -> Router {
        let background = Arc::clone(background);
        router.layer(from_fn(move |request: Request, next: Next| {
            let (telemetry, background) = (Arc::clone(&self), Arc::clone(&background));
            async move {
                let (function, came) = (Function::of(request.uri().path()), came(&request));
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
    use crate::observe::{Figures, Span, lock};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<(Vec<Figures>, Vec<Span>)>>);

    impl FigureSink for Kept {
        fn take(&self, figures: &Figures) {
            lock(&self.0).0.push(figures.clone());
        }
    }

    #[async_trait]
    impl SpanSink for Kept {
        async fn take(&self, spans: Vec<Span>) {
            assert!(!spans.is_empty());
            lock(&self.0).1.extend(spans);
        }
    }

    #[tokio::test]
    async fn nothing_is_told_of_what_is_not_proven() {
        let kept = Kept::default();
        let telemetry = Telemetry::default().with_figures(kept.clone()).with_spans(kept.clone());
        telemetry.invoke(Function::Receive, Came::default(), async {}).await;
        assert_eq!(*lock(&kept.0), (vec![], vec![]));
        let event = async {
            crate::observe::event("sandbox", "demo", None);
            crate::observe::late();
            7
        };
        assert_eq!(telemetry.invoke(Function::Receive, Came::default(), event).await, 7);
        let (figures, spans) = &*lock(&kept.0);
        let ([figures], [span]) = (&figures[..], &spans[..]) else { panic!("{figures:?} {spans:?}") };
        assert_eq!((figures.function, &figures.counts[..]), ("receive", &[("LateResults", 1)][..]));
        assert_eq!((span.name.as_str(), span.parent), ("event received", None));
    }
}
