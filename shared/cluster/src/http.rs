//! What the relay answers over HTTP. It counts with `metrics`; whoever records that may show it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{Router, get, post};
use ebb_wire::engine::Timestamp;
use ebb_wire::mail::Outcome;
use ebb_wire::relay::{Answer, Batch, Request, WorkName, WorkState};
use ebb_wire::runner::REPORT_BODY;
use ebb_wire::sign::{self, Keys, SignatureError};

use crate::bodies::Room;
use crate::store::now_ms;
use crate::{Relay, Reported};

/// Bytes of a batch: what one function sends at once, documents included.
const BATCH_BODY: usize = 32 << 20;
/// Largest batches that are read at one time.
const BATCHES: usize = 2;
/// How long a batch waits for room, and how long its body may take to arrive: less than its sender waits for an answer.
const BATCH_TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));

struct Served {
    relay: Relay,
    keys: Keys,
    room: Room,
}

/// Largest reports that are read at one time.
const REPORTS: usize = 8;
/// How long a report waits for room, and how long its body may take to come.
const REPORT_TIMES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60));

struct Reports {
    relay: Relay,
    room: Room,
}

/// The routes of runners.
pub fn reports(relay: Relay) -> Router {
    let room = Room::new(REPORT_BODY, REPORTS, REPORT_TIMES.0, REPORT_TIMES.1);
    Router::new()
        .route("/v1/reports/{unit}/{attempt}", post(report))
        .with_state(Arc::new(Reports { relay, room }))
}

/// The route of the control plane, whose batches are signed with one of `keys`.
pub fn batches(relay: Relay, keys: Keys) -> Router {
    let room = Room::new(BATCH_BODY, BATCHES, BATCH_TIMES.0, BATCH_TIMES.1);
    Router::new().route("/v1/batch", post(batch)).with_state(Arc::new(Served { relay, keys, room }))
}

/// The routes of probes.
pub fn probes(relay: Relay) -> Router {
    Router::new()
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(ready))
        .with_state(relay)
}

async fn batch(State(served): State<Arc<Served>>, headers: HeaderMap, body: Body) -> Response {
    let (came, now) = (Instant::now(), Timestamp(now_ms()));
    let refused = |error: SignatureError| {
        metrics::counter!("ebb_relay_refused_batches_total").increment(1);
        (StatusCode::UNAUTHORIZED, error.to_string()).into_response()
    };
    // Nobody gets memory whose signature cannot be right, whatever the body is.
    if let Err(error) = sign::check_headers(&headers, now) {
        return refused(error);
    }
    let body = match served.room.read(&headers, body).await {
        Ok(body) => body,
        // A gateway in front of a relay that is down answers 503. This relay only has no room now.
        Err(StatusCode::SERVICE_UNAVAILABLE) => {
            let why = "the relay reads as many batches as it has memory for";
            return (StatusCode::TOO_MANY_REQUESTS, why).into_response();
        }
        Err(status) => return status.into_response(),
    };
    // A repetition within the tolerance does no harm: names decide.
    if let Err(error) = sign::verify(&served.keys, &headers, body.as_ref(), now) {
        return refused(error);
    }
    match answer(&served.relay, body, came.elapsed()).await {
        Outcome::Answers(answers) => Json(answers).into_response(),
        Outcome::Status { status, said } => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), said).into_response()
        }
    }
}

/// Answers a batch, however it came, that was under way for some time.
pub(crate) async fn answer(relay: &Relay, body: impl AsRef<[u8]>, late: Duration) -> Outcome {
    let not = |status: StatusCode, said: String| Outcome::Status { status: status.as_u16(), said };
    let batch: Batch = match serde_json::from_slice(body.as_ref()) {
        Ok(batch) => batch,
        Err(error) => return not(StatusCode::BAD_REQUEST, error.to_string()),
    };
    drop(body);
    let verbs: Vec<_> = batch.requests.iter().map(verb).collect();
    match relay.batch(batch, late).await {
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
    // Nobody gets memory, or a place, who has no token.
    let reported = match reports.relay.expects(&name, token).await {
        Ok(Reported::Taken) => {
            let body = match reports.room.read(&headers, body).await {
                Ok(body) => body,
                Err(status) => return status.into_response(),
            };
            reports.relay.report(&name, token, body.as_ref()).await
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
        Request::Dequeue(_) => "dequeue",
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
        Answer::Alone => "alone",
    }
}
