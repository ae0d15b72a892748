//! The receiver of notifications on one machine: it verifies signatures and stores the events.

use std::collections::VecDeque;
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

use super::KeysError;

/// The most events in memory.
const MAX_EVENTS: usize = 1_000;
/// The most bytes of events in memory, as JSON. The newest event is kept in any case.
const MAX_BYTES: usize = 4 << 20;
/// The size in bytes at which `notifications.jsonl` replaces `notifications.1.jsonl`.
const MAX_FILE: u64 = 64 << 20;

/// The received notifications: all as JSON lines in `notifications.jsonl`, the newest in memory.
pub struct OutcomeLog {
    keys: WebhookKeys,
    file: Mutex<OutcomeFile>,
    events: Mutex<RecentEvents>,
}

/// The newest events, bounded in number and size.
#[derive(Default)]
struct RecentEvents {
    events: VecDeque<(serde_json::Value, usize)>,
    bytes: usize,
}

impl RecentEvents {
    fn push(&mut self, event: serde_json::Value, bytes: usize) {
        self.events.push_back((event, bytes));
        self.bytes += bytes;
        while self.events.len() > MAX_EVENTS || (self.bytes > MAX_BYTES && self.events.len() > 1) {
            if let Some((_, bytes)) = self.events.pop_front() {
                self.bytes -= bytes;
            }
        }
    }
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

    /// Appends a line in one write, so that a crash rarely leaves a part of it.
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
    pub(crate) fn open(state: &Path, keys: WebhookKeys) -> Result<Self, KeysError> {
        let path = state.join("notifications.jsonl");
        let file = OutcomeFile::open(path.clone()).map_err(|source| KeysError::Io { path, source })?;
        Ok(Self { keys, file: Mutex::new(file), events: Mutex::default() })
    }

    /// Returns the newest CloudEvents since the start, oldest first: at most 1,000, and at most 4 MiB unless a single
    /// one is larger.
    pub fn events(&self) -> Vec<serde_json::Value> {
        let recent = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        recent.events.iter().map(|(event, _)| event.clone()).collect()
    }

    fn record(&self, event: serde_json::Value) -> std::io::Result<()> {
        let line = format!("{event}\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.append(&line)?;
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event, line.len());
        Ok(())
    }
}

/// Removes an incomplete last line, which a crash left. Its notification was not acknowledged and will be sent again.
fn truncate_incomplete_line(path: &Path, file: &File) -> std::io::Result<()> {
    let text = std::fs::read(path)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() { file.set_len(whole as u64) } else { Ok(()) }
}

pub(crate) fn router(outcomes: Arc<OutcomeLog>) -> Router {
    // The outputs of a target can be large.
    let limit = DefaultBodyLimit::max(64 << 20);
    Router::new().route("/platform/events", post(receive)).layer(limit).with_state(outcomes)
}

async fn receive(State(outcomes): State<Arc<OutcomeLog>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if let Err(error) = sign::verify(&outcomes.keys, &headers, &body, SystemClock.now()) {
        tracing::warn!(%error, "rejected a notification");
        return StatusCode::UNAUTHORIZED;
    }
    match serde_json::from_slice::<serde_json::Value>(&body).map(|event| outcomes.record(event)) {
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

    use super::{MAX_BYTES, MAX_EVENTS, MAX_FILE, OutcomeLog};

    fn outcomes(folder: &tempfile::TempDir) -> OutcomeLog {
        let keys = WebhookKeys::new(WebhookSecret::from_bytes(&[7; 32]).unwrap(), vec![]).unwrap();
        OutcomeLog::open(folder.path(), keys).unwrap()
    }

    #[test]
    fn memory_is_bounded_in_events_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let small = outcomes(&folder);
        for number in 0..MAX_EVENTS + 10 {
            small.record(json!(number)).unwrap();
        }
        assert_eq!(small.events().len(), MAX_EVENTS);
        assert_eq!(small.events().last(), Some(&json!(MAX_EVENTS + 9)));
        let large = outcomes(&tempfile::tempdir().unwrap());
        for number in 0..10 {
            large.record(json!([number, "x".repeat(MAX_BYTES / 4)])).unwrap();
        }
        assert_eq!(large.events().len(), 3);
        large.record(json!("x".repeat(MAX_BYTES * 2))).unwrap();
        assert_eq!(large.events().len(), 1);
    }

    #[test]
    fn the_file_is_replaced_when_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let outcomes = outcomes(&folder);
        let large = json!("x".repeat(MAX_FILE as usize));
        for event in [&large, &json!(1), &large, &json!(2)] {
            outcomes.record(event.clone()).unwrap();
        }
        let names = ["notifications.jsonl", "notifications.1.jsonl"];
        let [newest, before] = names.map(|name| std::fs::read_to_string(folder.path().join(name)).unwrap());
        assert_eq!(newest, "2\n");
        assert!(before.starts_with("1\n"));
    }

    #[test]
    fn an_incomplete_line_is_removed() {
        for (left, kept) in [("", 0), ("{\"a\":", 0), ("{\"a\": 1}\n", 1), ("{\"a\": 1}\n{\"b\"", 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("notifications.jsonl");
            std::fs::write(&path, left).unwrap();
            outcomes(&folder).record(json!({"c": 2})).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines.len(), lines.last()), (kept + 1, Some(&"{\"c\":2}")), "{left:?}");
        }
    }
}
