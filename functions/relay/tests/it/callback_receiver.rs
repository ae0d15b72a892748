//! A server in the role of the control plane. It records callbacks in their order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ebb_protocol::callback::{Callback, CallbackStatus};

use crate::receiver::{CannedReply, TestReceiver};

/// Received callbacks by their tokens. Heartbeats are always accepted.
#[derive(Clone)]
pub(crate) struct CallbackReceiver {
    state: Arc<Mutex<ReceiverState>>,
    _receiver: TestReceiver,
}

#[derive(Default)]
struct ReceiverState {
    accepted: BTreeMap<String, Vec<Callback>>,
    heartbeats: BTreeMap<String, Vec<Callback>>,
    rejected: BTreeMap<String, usize>,
    failure: Option<u16>,
}

impl CallbackReceiver {
    /// Starts the server on an address of this machine. Returns it and the URL of callbacks.
    pub(crate) async fn start_at(address: &str) -> (Self, String) {
        let (state, receiver) = (
            Arc::<Mutex<ReceiverState>>::default(),
            TestReceiver::start_at(address.parse().unwrap(), |_, _| Ok(())).await,
        );
        let (url, of_calls) = (format!("{}/v1/callbacks", receiver.url()), Arc::clone(&state));
        receiver.on("POST /v1/callbacks", move |call, _| {
            let token = call.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
            let callback: Callback = serde_json::from_value(call.body.clone()).unwrap();
            let mut state = of_calls.lock().unwrap();
            if callback.status == CallbackStatus::Heartbeat {
                state.heartbeats.entry(token).or_default().push(callback);
                return CannedReply::status(200);
            }
            match state.failure {
                Some(_) => *state.rejected.entry(token).or_default() += 1,
                None => state.accepted.entry(token).or_default().push(callback),
            }
            CannedReply::status(state.failure.unwrap_or(200))
        });
        (Self { state, _receiver: receiver }, url)
    }

    /// Rejects callbacks with a status from now on. With `None`, accepts them.
    pub(crate) fn reject_with(&self, status: Option<u16>) {
        self.state.lock().unwrap().failure = status;
    }

    pub(crate) fn accepted(&self, token: &str) -> Vec<Callback> {
        self.state.lock().unwrap().accepted.get(token).cloned().unwrap_or_default()
    }

    pub(crate) fn heartbeats(&self, token: &str) -> Vec<Callback> {
        self.state.lock().unwrap().heartbeats.get(token).cloned().unwrap_or_default()
    }

    pub(crate) fn rejected(&self, token: &str) -> usize {
        self.state.lock().unwrap().rejected.get(token).copied().unwrap_or_default()
    }
}
