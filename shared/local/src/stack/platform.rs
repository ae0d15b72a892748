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
    file: Mutex<OutcomeFile>,
}

struct OutcomeFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl OutcomeFile {
    fn open(path: PathBuf) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        truncate_incomplete_line(&path, &file)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes })
    }

    /// Appends a line in one write, so that a crash rarely leaves an incomplete one.
    fn append(&mut self, line: &str) -> std::io::Result<()> {
        if self.bytes >= MAX_FILE {
            std::fs::rename(&self.path, self.path.with_extension("1.jsonl"))?;
            *self = Self::open(self.path.clone())?;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(())
    }
}

impl OutcomeLog {
    pub(super) fn open(state: &Path, keys: WebhookKeys) -> Result<Self, StateFileError> {
        let path = state.join("notifications.jsonl");
        let file = OutcomeFile::open(path.clone()).map_err(|error| StateFileError::io(&path, error))?;
        Ok(Self { keys, file: Mutex::new(file) })
    }

    fn record(&self, event: &serde_json::Value) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.append(&format!("{event}\n"))
    }
}

/// Removes an incomplete last line, which a crash left. Its notification was not acknowledged and will be sent again.
fn truncate_incomplete_line(path: &Path, file: &File) -> std::io::Result<()> {
    let text = std::fs::read(path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() { file.set_len(whole as u64) } else { Ok(()) }
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
