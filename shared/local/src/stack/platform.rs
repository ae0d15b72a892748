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
        let file = file.and_then(|file| cut(&path, &file).map(|()| file));
        let file = file.map_err(|source| KeysError::Io { path, source })?;
        Ok(Self { keys, file: Mutex::new(file), events: Mutex::new(Vec::new()) })
    }

    /// The last thousand events since the start, whole CloudEvents.
    pub fn events(&self) -> Vec<serde_json::Value> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, event: serde_json::Value) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // In one write, so that a crash hardly ever leaves a part of a line.
        file.write_all(format!("{event}\n").as_bytes())?;
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        let excess = events.len().saturating_sub(REMEMBERED);
        events.drain(..excess);
        Ok(())
    }
}

/// Takes off what a crash has left of a line: its outcome was not accepted, so it comes again.
fn cut(path: &Path, file: &File) -> std::io::Result<()> {
    let text = std::fs::read(path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() { file.set_len(whole as u64) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use ebb_wire::sign::{Keys, Secret};
    use serde_json::json;

    use super::Outcomes;

    #[test]
    fn what_a_crash_has_left_of_a_line_is_taken_off() {
        for (left, kept) in [("", 0), ("{\"a\":", 0), ("{\"a\": 1}\n", 1), ("{\"a\": 1}\n{\"b\"", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("outcomes.jsonl");
            std::fs::write(&path, left).unwrap();
            let keys = Keys::new(Secret::from_bytes(&[7; 32]).unwrap(), vec![]).unwrap();
            Outcomes::open(folder.path(), keys).unwrap().keep(json!({"c": 2})).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines.len(), lines.last()), (kept + 1, Some(&"{\"c\":2}")), "{left:?}");
        }
    }
}
