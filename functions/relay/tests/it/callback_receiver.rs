//! The side of the control plane: takes callbacks and keeps them in their order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ebb_protocol::callback::Callback;

/// What came by which token, and how it is answered.
#[derive(Clone, Default)]
pub(crate) struct CallbackReceiver(Arc<Mutex<ReceiverState>>);

#[derive(Default)]
struct ReceiverState {
    taken: BTreeMap<String, Vec<Callback>>,
    refused: BTreeMap<String, usize>,
    answer: Option<StatusCode>,
}

impl CallbackReceiver {
    /// Starts it; gives its URL.
    pub(crate) async fn start() -> (Self, String) {
        Self::start_at("127.0.0.1").await
    }

    /// Starts it on an address of this machine.
    pub(crate) async fn start_at(address: &str) -> (Self, String) {
        let plane = Self::default();
        let app = Router::new().route("/v1/callbacks", post(callback)).with_state(plane.clone());
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}/v1/callbacks", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app.layer(axum::extract::DefaultBodyLimit::disable())).await });
        (plane, url)
    }

    /// Answers so from now on; `None`: takes what comes.
    pub(crate) fn answer(&self, status: Option<StatusCode>) {
        self.0.lock().unwrap().answer = status;
    }

    /// What came with a token and was taken.
    pub(crate) fn taken(&self, token: &str) -> Vec<Callback> {
        self.0.lock().unwrap().taken.get(token).cloned().unwrap_or_default()
    }

    /// How often something came with a token and was not taken.
    pub(crate) fn refused(&self, token: &str) -> usize {
        self.0.lock().unwrap().refused.get(token).copied().unwrap_or_default()
    }
}

async fn callback(State(plane): State<CallbackReceiver>, headers: HeaderMap, body: String) -> StatusCode {
    let token = headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let mut inner = plane.0.lock().unwrap();
    match inner.answer {
        Some(status) => {
            *inner.refused.entry(token).or_default() += 1;
            status
        }
        None => {
            inner.taken.entry(token).or_default().push(serde_json::from_str(&body).unwrap());
            StatusCode::OK
        }
    }
}
