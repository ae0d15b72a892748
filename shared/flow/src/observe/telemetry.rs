//! Where what is observed of invocations goes.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use ebb_engine::Timestamp;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::collector::{Collector, CollectorError, SpanSender};
use super::figures::Figures;
use super::trace::Trace;
use super::{INVOCATION, Invocation, Subject, lock};
use crate::background::{Background, RemainingWork, is_change};
use crate::ports::Clock as _;
use crate::system::SystemClock;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Takes lifecycle webhooks.
    Receive,
    /// Takes callbacks.
    Complete,
    /// Acts on time.
    Sweep,
    /// Answers people and programs.
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

/// A place for lines.
pub(super) struct Lines {
    namespace: String,
    to: Mutex<Box<dyn Write + Send>>,
}

impl Lines {
    /// Prints the figures of an invocation.
    pub(super) fn print(&self, figures: &Figures, function: Function, request: &str, subject: &Subject) {
        let lines = figures.lines(&self.namespace, function, request, subject, SystemClock.now().0);
        let mut to = lock(&self.to);
        if let Err(error) = to.write_all(&lines).and_then(|()| to.flush()) {
            tracing::warn!(%error, "figures were not written");
        }
    }
}

/// Where figures and spans go.
#[derive(Default)]
pub struct Telemetry {
    figures: Option<Arc<Lines>>,
    collector: Option<SpanSender>,
}

impl Telemetry {
    /// Has spans sent to a collector, if there is one.
    ///
    /// # Errors
    /// The collector cannot be used. That nobody answers there is no error.
    pub fn with_collector(self, collector: Option<&Collector>) -> Result<Self, CollectorError> {
        Ok(Self { collector: collector.map(Collector::open).transpose()?, ..self })
    }

    /// Has figures written to `to`, in a namespace of CloudWatch's: at the end of each invocation that has any.
    pub fn with_figures(self, namespace: &str, to: Box<dyn Write + Send>) -> Self {
        let lines = Lines { namespace: namespace.to_owned(), to: Mutex::new(to) };
        Self { figures: Some(Arc::new(lines)), ..self }
    }

    /// Does the work of one invocation, and has sent its telemetry when this returns. A collector that does not answer
    /// takes less than a second.
    pub async fn invoke<T>(&self, function: Function, came: Came, work: impl Future<Output = T>) -> T {
        let Came { request, at } = came;
        let known = (!request.is_empty()).then_some(request.as_str());
        let span = tracing::info_span!("invocation", function = function.name(), request = known);
        let now = SystemClock.now();
        let invocation = Arc::new(Invocation {
            function,
            request,
            lines: self.figures.clone(),
            began: at.map_or(now, |at| at.min(now)),
            figures: Mutex::default(),
            subject: Mutex::default(),
            begun: Mutex::default(),
            trace: self.collector.is_some().then(|| Mutex::new(Trace::new())),
        });
        let done = INVOCATION.scope(Arc::clone(&invocation), work).instrument(span.clone()).await;
        self.tell(&invocation, now).instrument(span).await;
        done
    }

    async fn tell(&self, invocation: &Invocation, began: Timestamp) {
        let now = SystemClock.now();
        invocation.print();
        let trace = invocation.trace().map(|mut trace| std::mem::replace(&mut *trace, Trace::new()));
        if let (Some(collector), Some(trace)) = (&self.collector, trace) {
            collector.take(trace.finish(invocation.function, &invocation.request, (began, now))).await;
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
    use std::time::{Duration, Instant};

    use axum::routing::post;
    use tokio::net::TcpListener;

    use super::*;

    fn towards(address: std::net::SocketAddr) -> Telemetry {
        let collector = Collector::parse(&format!("http://{address}"), "").unwrap();
        Telemetry::default().with_collector(collector.as_ref()).unwrap()
    }

    async fn event() -> u8 {
        crate::observe::event("sandbox", "demo", None);
        7
    }

    #[tokio::test]
    async fn a_collector_that_hangs_costs_less_than_a_second() {
        // Connections wait there, and nobody takes them.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hangs = towards(listener.local_addr().unwrap());
        let begun = Instant::now();
        assert_eq!(hangs.invoke(Function::Receive, Came::default(), event()).await, 7);
        let took = begun.elapsed();
        // 0.8 s, and what a busy machine adds.
        assert!(took > Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
        // Nor is one that is gone an error.
        let gone = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(towards(gone).invoke(Function::Receive, Came::default(), event()).await, 7);
    }

    #[tokio::test]
    async fn nothing_is_told_of_what_is_not_proven() {
        let told = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&told);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let telemetry = towards(listener.local_addr().unwrap());
        let take = post(move || async move { *lock(&counted) += 1 });
        let router = Router::new().route("/v1/traces", take);
        tokio::spawn(async move { axum::serve(listener, router).await });
        telemetry.invoke(Function::Receive, Came::default(), async {}).await;
        assert_eq!(*lock(&told), 0);
        telemetry.invoke(Function::Receive, Came::default(), event()).await;
        assert_eq!(*lock(&told), 1);
    }
}
