//! The server of the units and of the platform: creates and drops objects, records them, and receives notifications.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Json;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{delete, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use ebb_protocol::lifecycle::{GONE, READY};

/// Nothing new is told for this long only if nothing moves any more.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server on the loopback interface; ends when dropped.
pub(crate) struct ManyTargetsReceiver {
    url: String,
    kept: Arc<ObjectLedger>,
    task: JoinHandle<()>,
}

/// The expected record of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectExpectation {
    Made,
    TakenAway,
}

#[derive(Default)]
struct ObjectEntry {
    /// The keys that a thing was made under, and those of the requests that took it away. A request that is sent again
    /// has the same key and means the same thing.
    created: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

struct ObjectLedger {
    entries: Mutex<BTreeMap<String, ObjectEntry>>,
    /// The last outcome of each target.
    outcomes: Mutex<BTreeMap<String, String>>,
    changed: watch::Sender<u64>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ManyTargetsReceiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("the receiver's port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let kept =
            ObjectLedger { entries: Mutex::default(), outcomes: Mutex::default(), changed: watch::Sender::new(0) };
        let kept = Arc::new(kept);
        let router = axum::Router::new()
            .route("/things", post(make))
            .route("/things/{name}", delete(unmake))
            .route("/outcomes", post(outcome))
            .layer(DefaultBodyLimit::max(8 << 20))
            .with_state(Arc::clone(&kept));
        let task = tokio::spawn(async move {
            // An error shows as outcomes that are not told.
            axum::serve(listener, router).await.ok();
        });
        Ok(Self { url, kept, task })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Where outcomes go.
    pub(crate) fn outcomes(&self) -> String {
        format!("{}/outcomes", self.url)
    }

    /// Waits until the last outcome of all is `wanted`, for as long as any is told.
    pub(crate) async fn all_are(&self, names: &[String], wanted: &str) -> anyhow::Result<()> {
        let mut told = self.kept.changed.subscribe();
        loop {
            told.mark_unchanged();
            let left: Vec<String> = {
                let outcomes = lock(&self.kept.outcomes);
                let is = |name: &&String| outcomes.get(*name).is_none_or(|outcome| outcome != wanted);
                names.iter().filter(is).cloned().collect()
            };
            if left.is_empty() {
                return Ok(());
            }
            let waited = tokio::time::timeout(PATIENCE, told.changed()).await;
            waited.with_context(|| format!("{} of {} are not {wanted}: {left:?}", left.len(), names.len()))??;
        }
    }

    /// That there is one make of each, and one drop, or none yet.
    pub(crate) fn expect_objects(&self, names: &[String], expected: ObjectExpectation) -> anyhow::Result<()> {
        let entries = lock(&self.kept.entries);
        let drops = usize::from(expected == ObjectExpectation::TakenAway);
        for name in names {
            let entry = entries.get(name).with_context(|| format!("{name} was never made"))?;
            let (made, dropped) = (entry.created.len(), entry.deleted.len());
            ensure!((made, dropped) == (1, drops), "{name} was made {made} times and dropped {dropped} times");
        }
        Ok(())
    }
}

impl Drop for ManyTargetsReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn key(headers: &HeaderMap) -> String {
    headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned()
}

async fn make(State(kept): State<Arc<ObjectLedger>>, headers: HeaderMap, Json(body): Json<Value>) -> Json<Value> {
    let name = body["name"].as_str().unwrap_or_default().to_owned();
    let id = format!("id-of-{name}");
    lock(&kept.entries).entry(name).or_default().created.insert(key(&headers));
    Json(json!({"id": id}))
}

async fn unmake(State(kept): State<Arc<ObjectLedger>>, headers: HeaderMap, Path(name): Path<String>) -> StatusCode {
    lock(&kept.entries).entry(name).or_default().deleted.insert(key(&headers));
    StatusCode::NO_CONTENT
}

async fn outcome(State(kept): State<Arc<ObjectLedger>>, Json(event): Json<Value>) -> StatusCode {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lock(&kept.outcomes).insert(text(&event["data"]["name"]), text(&event["type"]));
    kept.changed.send_modify(|count| *count += 1);
    StatusCode::NO_CONTENT
}
