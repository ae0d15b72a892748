//! The other end: the server of the units' webhooks, and the platform that is told notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use ebb_protocol::unit::{CALLBACK_TOKEN, CALLBACK_URL};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::shapes::{CountCase, ResultDelivery, UnitOutputs};

/// Callbacks that are under way at a time: as many invocations of `complete`.
const AT_ONCE: usize = 32;

/// A server on the loopback interface; ends when dropped.
pub(crate) struct CountsReceiver {
    url: String,
    state: Arc<CountsReceiverState>,
    task: JoinHandle<()>,
}

struct CountsReceiverState {
    case: CountCase,
    client: reqwest::Client,
    permits: Semaphore,
    asked: AtomicUsize,
    under_way: AtomicUsize,
    failed: AtomicUsize,
}

impl CountsReceiver {
    pub(crate) async fn start(case: CountCase) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("the receiver's port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let state = Arc::new(CountsReceiverState {
            case,
            client: reqwest::Client::new(),
            permits: Semaphore::new(AT_ONCE),
            asked: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
        });
        let router = axum::Router::new()
            .route("/work", post(work))
            .route("/outcomes", post(async || StatusCode::NO_CONTENT))
            .with_state(Arc::clone(&state));
        let task = tokio::spawn(async move {
            // It ends with the case; an error before that shows as units that are not answered.
            axum::serve(listener, router).await.ok();
        });
        Ok(Self { url, state, task })
    }

    /// Where units are asked for.
    pub(crate) fn work(&self) -> String {
        format!("{}/work", self.url)
    }

    /// Where notifications go.
    pub(crate) fn outcomes(&self) -> String {
        format!("{}/outcomes", self.url)
    }

    /// Webhooks that came in.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    /// Callbacks that have not been answered yet.
    pub(crate) fn under_way(&self) -> usize {
        self.state.under_way.load(Ordering::SeqCst)
    }

    /// Callbacks that were not taken.
    pub(crate) fn failed(&self) -> usize {
        self.state.failed.load(Ordering::SeqCst)
    }
}

impl Drop for CountsReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn work(State(taken): State<Arc<CountsReceiverState>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    taken.asked.fetch_add(1, Ordering::SeqCst);
    let made = match taken.case.outputs {
        UnitOutputs::Kept => json!({"id": format!("made-by-{}", body["unit"].as_str().unwrap_or("?"))}),
        UnitOutputs::Nothing => json!({}),
    };
    match taken.case.answers {
        ResultDelivery::AtOnce => Json(made).into_response(),
        ResultDelivery::Later => {
            taken.under_way.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                if !call_back(&taken, &headers, made).await {
                    taken.failed.fetch_add(1, Ordering::SeqCst);
                }
                taken.under_way.fetch_sub(1, Ordering::SeqCst);
            });
            StatusCode::ACCEPTED.into_response()
        }
    }
}

/// Returns true if the callback was taken.
async fn call_back(taken: &CountsReceiverState, headers: &HeaderMap, outputs: Value) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(url), Some(token)) = (text(CALLBACK_URL), text(CALLBACK_TOKEN)) else { return false };
    let Ok(_place) = taken.permits.acquire().await else { return false };
    let body = json!({"status": "succeeded", "outputs": outputs});
    let answer = taken.client.post(url).bearer_auth(token).json(&body).send().await;
    answer.is_ok_and(|answer| answer.status().is_success())
}
