//! The receiver of notifications on one machine: it verifies signatures and stores the events.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ebb_flow::ports::Clock as _;
use ebb_flow::system::SystemClock;
use ebb_protocol::sign::{self, WebhookKeys};

use crate::files::StateFileError;

/// The size in bytes at which `notifications.jsonl` replaces `notifications.1.jsonl`.
const MAX_FILE: u64 = 64 << 20;

/// The received notifications, as JSON lines in `notifications.jsonl`.
pub(super) struct OutcomeLog {
    keys: WebhookKeys,
    path: PathBuf,
    file: Mutex<File>,
}

impl OutcomeLog {
    pub(super) fn open(state: &Path, keys: WebhookKeys) -> Result<Self, StateFileError> {
        let path = state.join("notifications.jsonl");
        let file = opened(&path).map_err(|error| StateFileError::io(&path, error))?;
        Ok(Self { keys, path, file: Mutex::new(file) })
    }

    /// Appends a line in one write, so that a crash rarely leaves an incomplete one.
    fn record(&self, event: &serde_json::Value) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.metadata()?.len() >= MAX_FILE {
            std::fs::rename(&self.path, self.path.with_extension("1.jsonl"))?;
            *file = opened(&self.path)?;
        }
        file.write_all(format!("{event}\n").as_bytes())
    }
}

/// Opens the file at its end. Removes an incomplete last line, which a crash left. Its notification was not
/// acknowledged and will be sent again.
fn opened(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let text = std::fs::read(path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        file.set_len(whole as u64)?;
    }
    Ok(file)
}

pub(super) fn router(outcomes: Arc<OutcomeLog>) -> Router {
    // The outputs of a target can be large.
    let limit = DefaultBodyLimit::max(64 << 20);
    Router::new().route("/platform/events", post(receive)).layer(limit).with_state(outcomes)
}

async fn receive(State(outcomes): State<Arc<OutcomeLog>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if let Err(error) = sign::verify(&outcomes.keys, &headers, &body, SystemClock.now()) {
        tracing::warn!(%error, "rejected a notification");
        return StatusCode::UNAUTHORIZED;
    }
    match serde_json::from_slice::<serde_json::Value>(&body).map(|event| outcomes.record(&event)) {
        Ok(Ok(())) => StatusCode::NO_CONTENT,
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot store a notification");
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use ebb_protocol::sign::{WebhookKeys, WebhookSecret};
    use serde_json::json;

    use super::{MAX_FILE, OutcomeLog};

    fn outcomes(folder: &tempfile::TempDir) -> OutcomeLog {
        let keys = WebhookKeys::new(WebhookSecret::from_bytes(&[7; 32]).unwrap(), vec![]).unwrap();
        OutcomeLog::open(folder.path(), keys).unwrap()
    }

    #[test]
    fn the_file_is_replaced_when_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let outcomes = outcomes(&folder);
        let large = json!("x".repeat(MAX_FILE as usize));
        for event in [&large, &json!(1), &large, &json!(2)] {
            outcomes.record(event).unwrap();
        }
        let names = ["notifications.jsonl", "notifications.1.jsonl"];
        let [newest, before] = names.map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap());
        assert_eq!(newest, "2\n");
        assert!(before.starts_with("1\n"));
    }

    #[test]
    fn an_incomplete_line_is_removed() {
        for (content, kept) in [("", 0), ("{\"a\":", 0), ("{\"a\": 1}\n", 1), ("{\"a\": 1}\n{\"b\"", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("notifications.jsonl");
            std::fs::write(&path, content).unwrap();
            outcomes(&folder).record(&json!({"c": 2})).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines.len(), lines.last()), (kept + 1, Some(&"{\"c\":2}")), "{content:?}");
        }
    }
}
