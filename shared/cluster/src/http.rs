//! What the relay answers over HTTP. It counts with `metrics`; whoever records that may show it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{Router, get, post};
use ebb_wire::engine::Timestamp;
use ebb_wire::mail::Outcome;
use ebb_wire::relay::{Answer, Batch, Request, WorkName, WorkState};
use ebb_wire::runner::REPORT_BODY;
use ebb_wire::sign::{self, Keys};
use tokio::sync::Semaphore;

use crate::store::now_ms;
use crate::{Relay, Reported};

/// Bytes of a batch: what one function sends at once, documents included.
const BATCH_BODY: usize = 32 << 20;

struct Served {
    relay: Relay,
    keys: Keys,
}

/// Bytes of a report that is no matter: a heartbeat, an end without outputs.
const SMALL: usize = 16 << 10;
/// Reports that are larger, and are read at one time.
const LARGE_AT_ONCE: usize = 8;
/// How long the body of a report may take to come.
const SLOWEST: Duration = Duration::from_secs(60);

struct Reports {
    relay: Relay,
    large: Semaphore,
}

/// The routes of runners.
pub fn reports(relay: Relay) -> Router {
    Router::new()
        .route("/v1/reports/{unit}/{attempt}", post(report))
        .with_state(Arc::new(Reports { relay, large: Semaphore::new(LARGE_AT_ONCE) }))
}

/// The route of the control plane, whose batches are signed with one of `keys`.
pub fn batches(relay: Relay, keys: Keys) -> Router {
    Router::new()
        .route("/v1/batch", post(batch).layer(DefaultBodyLimit::max(BATCH_BODY)))
        .with_state(Arc::new(Served { relay, keys }))
}

/// The routes of probes.
pub fn probes(relay: Relay) -> Router {
    Router::new()
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(ready))
        .with_state(relay)
}

async fn batch(State(served): State<Arc<Served>>, headers: HeaderMap, body: Bytes) -> Response {
    let now = Timestamp(now_ms());
    // A repetition within the tolerance does no harm: names decide.
    if let Err(error) = sign::verify(&served.keys, &headers, &body, now) {
        metrics::counter!("ebb_relay_refused_batches_total").increment(1);
        return (StatusCode::UNAUTHORIZED, error.to_string()).into_response();
    }
    match answer(&served.relay, &body, Duration::ZERO).await {
        Outcome::Answers(answers) => Json(answers).into_response(),
        Outcome::Status { status, said } => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), said).into_response()
        }
    }
}

/// Answers a batch, however it came, that was under way for some time.
pub(crate) async fn answer(relay: &Relay, body: &[u8], late: Duration) -> Outcome {
    let not = |status: StatusCode, said: String| Outcome::Status { status: status.as_u16(), said };
    let batch: Batch = match serde_json::from_slice(body) {
        Ok(batch) => batch,
        Err(error) => return not(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let verbs: Vec<_> = batch.requests.iter().map(verb).collect();
    match relay.batch(batch.after(late)).await {
        Ok(answers) => {
            for (verb, answer) in verbs.into_iter().zip(&answers.answers) {
                let answer = answered(answer);
                metrics::counter!("ebb_relay_requests_total", "verb" => verb, "answer" => answer)
                    .increment(1);
            }
            Outcome::Answers(answers)
        }
        Err(other) => not(StatusCode::CONFLICT, other.to_string()),
    }
}

async fn report(
    State(reports): State<Arc<Reports>>,
    Path((unit, attempt)): Path<(String, u32)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = token.and_then(|value| value.strip_prefix("Bearer ")) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let name = WorkName { unit, attempt };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let is_small = length.is_some_and(|length: usize| length <= SMALL);
    // Nobody gets memory, or a place, who has no token.
    let reported = match reports.relay.expects(&name, token).await {
        Ok(Reported::Taken) => {
            let _room = if is_small { None } else { reports.large.acquire().await.ok() };
            let body = tokio::time::timeout(SLOWEST, to_bytes(body, REPORT_BODY)).await;
            let Ok(body) = body else { return StatusCode::REQUEST_TIMEOUT.into_response() };
            let Ok(body) = body else { return StatusCode::PAYLOAD_TOO_LARGE.into_response() };
            reports.relay.report(&name, token, &body).await
        }
        other => other,
    };
    let (said, answer) = match reported {
        Ok(Reported::Taken) => ("taken", StatusCode::NO_CONTENT.into_response()),
        Ok(Reported::Gone) => ("gone", StatusCode::GONE.into_response()),
        Ok(Reported::NotYours) => ("not yours", StatusCode::UNAUTHORIZED.into_response()),
        Ok(Reported::Unreadable(why)) => ("unreadable", (StatusCode::BAD_REQUEST, why).into_response()),
        Err(error) => {
            tracing::warn!(%error, "a report could not be written down");
            ("failed", StatusCode::SERVICE_UNAVAILABLE.into_response())
        }
    };
    metrics::counter!("ebb_relay_reports_total", "answer" => said).increment(1);
    answer
}

async fn ready(State(relay): State<Relay>) -> Response {
    match relay.check().await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

fn verb(request: &Request) -> &'static str {
    match request {
        Request::Ensure(_) => "ensure",
        Request::Get(_) => "get",
        Request::Cancel { .. } => "cancel",
        Request::Acknowledge(_) => "acknowledge",
        Request::Release { .. } => "release",
        Request::About => "about",
        Request::List { .. } => "list",
        Request::Discard(_) => "discard",
    }
}

fn answered(answer: &Answer) -> &'static str {
    match answer {
        Answer::State(WorkState::Unknown) => "unknown",
        Answer::State(WorkState::Running { .. }) => "running",
        Answer::State(WorkState::Waiting { .. }) => "waiting",
        Answer::State(WorkState::Ended(_)) => "ended",
        Answer::State(WorkState::Tombstoned) => "tombstoned",
        Answer::Done | Answer::About(_) | Answer::Listing(_) => "done",
        Answer::Refused(_) => "refused",
        Answer::Failed(_) => "failed",
    }
}
