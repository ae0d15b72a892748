//! The platform's end on one machine: takes outcomes, checks their signatures, and keeps them.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ebb_flow::ports::Clock as _;
use ebb_flow::system::SystemClock;
use ebb_wire::sign::{self, Keys};

use super::KeysError;

/// Events that stay in memory.
const REMEMBERED: usize = 1_000;

/// The outcomes that came in, in order: as JSON lines in `outcomes.jsonl`, and in memory.
pub struct Outcomes {
    keys: Keys,
    file: Mutex<File>,
    events: Mutex<Vec<serde_json::Value>>,
}

impl Outcomes {
    pub(crate) fn open(state: &Path, keys: Keys) -> Result<Self, KeysError> {
        let path = state.join("outcomes.jsonl");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(|source| KeysError::Io { path, source })?;
        Ok(Self { keys, file: Mutex::new(file), events: Mutex::new(Vec::new()) })
    }

    /// The last thousand events since the start, whole CloudEvents.
    pub fn events(&self) -> Vec<serde_json::Value> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, event: serde_json::Value) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{event}")?;
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        let excess = events.len().saturating_sub(REMEMBERED);
        events.drain(..excess);
        Ok(())
    }
}

pub(crate) fn router(outcomes: Arc<Outcomes>) -> Router {
    // Outputs of a target may be large.
    let limit = DefaultBodyLimit::max(64 << 20);
    Router::new().route("/platform/events", post(take)).layer(limit).with_state(outcomes)
}

async fn take(State(outcomes): State<Arc<Outcomes>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if let Err(error) = sign::verify(&outcomes.keys, &headers, &body, SystemClock.now()) {
        tracing::warn!(%error, "an outcome was refused");
        return StatusCode::UNAUTHORIZED;
    }
    match serde_json::from_slice::<serde_json::Value>(&body).map(|event| outcomes.keep(event)) {
        Ok(Ok(())) => StatusCode::NO_CONTENT,
        Ok(Err(error)) => {
            tracing::warn!(%error, "an outcome could not be kept");
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
