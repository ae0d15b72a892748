//! The receiver of the units of both engines: it answers 202 and calls back. It also receives Ebb's notifications.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ebb_protocol::unit::{CALLBACK_TOKEN, CALLBACK_URL};
use ebb_tests::platform::http;
use reqwest::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot};

const RESULT: &str = r#"{"status":"succeeded","outputs":{"id":"done"}}"#;
/// Attempts of a callback, and the pause between them.
const CALLBACK_ATTEMPTS: usize = 50;
const CALLBACK_PAUSE: Duration = Duration::from_millis(100);

struct UnitReceiverState {
    http: Client,
    units: AtomicUsize,
    outcomes: Mutex<HashMap<String, oneshot::Sender<String>>>,
}

#[derive(Clone)]
pub(crate) struct UnitReceiver {
    /// It has `/units` for units, and `/outcomes` for Ebb's notifications.
    pub(crate) url: String,
    state: Arc<UnitReceiverState>,
}

impl UnitReceiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let state =
            Arc::new(UnitReceiverState { http: http(), units: AtomicUsize::new(0), outcomes: Mutex::default() });
        let router = Router::new().route("/units", post(unit)).route("/outcomes", post(outcome));
        let router = router.with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, state })
    }

    pub(crate) fn units(&self) -> usize {
        self.state.units.load(Ordering::Relaxed)
    }

    /// Returns the type of the next notification of a target.
    pub(crate) async fn next_outcome(&self, target: &str) -> oneshot::Receiver<String> {
        let (sender, receiver) = oneshot::channel();
        self.state.outcomes.lock().await.insert(target.to_owned(), sender);
        receiver
    }
}

async fn unit(State(state): State<Arc<UnitReceiverState>>, headers: HeaderMap, _body: Bytes) -> StatusCode {
    state.units.fetch_add(1, Ordering::Relaxed);
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    tokio::spawn(call_back(Arc::clone(&state), header(CALLBACK_URL), header(CALLBACK_TOKEN)));
    StatusCode::ACCEPTED
}

/// Sends the result of a unit. Only Ebb's units have a token.
async fn call_back(state: Arc<UnitReceiverState>, url: String, token: String) {
    let mut last = String::new();
    for _ in 0..CALLBACK_ATTEMPTS {
        let request = state.http.post(&url).header("content-type", "application/json").body(RESULT);
        let request = if token.is_empty() { request } else { request.bearer_auth(&token) };
        match request.send().await {
            Ok(response) => {
                let status = response.status();
                // A connection is used again after its response was read.
                let text = response.text().await.unwrap_or_default();
                if status.is_success() {
                    return;
                }
                last = format!("{status} {text}");
            }
            Err(error) => last = format!("{error:?}"),
        }
        tokio::time::sleep(CALLBACK_PAUSE).await;
    }
    eprintln!("{CALLBACK_ATTEMPTS} callbacks to {url} failed: {last}");
}

async fn outcome(State(state): State<Arc<UnitReceiverState>>, body: Bytes) -> StatusCode {
    let Ok(event) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST };
    let (Some(kind), Some(target)) = (event["type"].as_str(), event["data"]["name"].as_str()) else {
        return StatusCode::BAD_REQUEST;
    };
    if let Some(waiting) = state.outcomes.lock().await.remove(target) {
        // The run may have timed out.
        waiting.send(kind.to_owned()).ok();
    }
    StatusCode::NO_CONTENT
}
