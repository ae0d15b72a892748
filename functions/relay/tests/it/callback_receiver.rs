//! The side of the control plane: takes callbacks and keeps them in their order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ebb_protocol::callback::Callback;

use crate::receiver::{CannedReply, TestReceiver};

/// The callbacks by their tokens.
#[derive(Clone)]
pub(crate) struct CallbackReceiver {
    state: Arc<Mutex<ReceiverState>>,
    _receiver: TestReceiver,
}

#[derive(Default)]
struct ReceiverState {
    taken: BTreeMap<String, Vec<Callback>>,
    refused: BTreeMap<String, usize>,
    answer: Option<u16>,
}

impl CallbackReceiver {
    /// Starts it on an address of this machine. Returns the URL of callbacks, too.
    pub(crate) async fn start_at(address: &str) -> (Self, String) {
        let (state, receiver) = (
            Arc::<Mutex<ReceiverState>>::default(),
            TestReceiver::start_at(address.parse().unwrap(), |_, _| Ok(())).await,
        );
        let (url, of_calls) = (format!("{}/v1/callbacks", receiver.url()), Arc::clone(&state));
        receiver.on("POST /v1/callbacks", move |call, _| {
            let token = call.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
            let mut state = of_calls.lock().unwrap();
            match state.answer {
                Some(_) => *state.refused.entry(token).or_default() += 1,
                None => state.taken.entry(token).or_default().push(serde_json::from_value(call.body.clone()).unwrap()),
            }
            CannedReply::status(state.answer.unwrap_or(200))
        });
        (Self { state, _receiver: receiver }, url)
    }

    /// Answers so from now on; `None`: takes what comes.
    pub(crate) fn answer(&self, status: Option<u16>) {
        self.state.lock().unwrap().answer = status;
    }

    /// Returns what came with a token and was taken.
    pub(crate) fn taken(&self, token: &str) -> Vec<Callback> {
        self.state.lock().unwrap().taken.get(token).cloned().unwrap_or_default()
    }

    /// Returns how often something came with a token and was not taken.
    pub(crate) fn refused(&self, token: &str) -> usize {
        self.state.lock().unwrap().refused.get(token).copied().unwrap_or_default()
    }
}
