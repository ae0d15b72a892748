//! What the relay answers over HTTP. It counts with `metrics`; whoever records that may show it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{Router, get, post};
use ebb_protocol::engine::Timestamp;
use ebb_protocol::entrypoint::REPORT_BODY;
use ebb_protocol::pull::ReplyOutcome;
use ebb_protocol::relay::{Batch, RelayRequest, RelayResponse, TaskId, TaskState};
use ebb_protocol::sign::{self, SignatureError, WebhookKeys};

use crate::bodies::BodyPool;
use crate::store::now_ms;
use crate::{Relay, ReportOutcome};

/// Bytes of a batch: what one function sends at once, documents included.
const BATCH_BODY: usize = 32 << 20;
/// Largest batches that are read at one time.
const BATCHES: usize = 2;
/// How long a batch waits for room, and how long its body may take to arrive: less than its sender waits for an answer.
const BATCH_TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));

struct BatchServer {
    relay: Relay,
    keys: WebhookKeys,
    bodies: BodyPool,
}

/// Largest reports that are read at one time.
const REPORTS: usize = 8;
/// How long a report waits for room, and how long its body may take to come.
const REPORT_TIMES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60));

struct ReportServer {
    relay: Relay,
    bodies: BodyPool,
}

/// The routes of entrypoints.
pub fn reports(relay: Relay) -> Router {
    let room = BodyPool::new(REPORT_BODY, REPORTS, REPORT_TIMES.0, REPORT_TIMES.1);
    Router::new()
        .route("/v1/reports/{unit}/{attempt}", post(report))
        .with_state(Arc::new(ReportServer { relay, bodies: room }))
}

/// The route of the control plane, whose batches are signed with one of `keys`.
pub fn batches(relay: Relay, keys: WebhookKeys) -> Router {
    let room = BodyPool::new(BATCH_BODY, BATCHES, BATCH_TIMES.0, BATCH_TIMES.1);
    Router::new().route("/v1/batch", post(batch)).with_state(Arc::new(BatchServer { relay, keys, bodies: room }))
}

/// The routes of probes.
pub fn probes(relay: Relay) -> Router {
    Router::new().route("/healthz", get(|| async { StatusCode::OK })).route("/readyz", get(ready)).with_state(relay)
}

async fn batch(State(served): State<Arc<BatchServer>>, headers: HeaderMap, body: Body) -> Response {
    let (came, now) = (Instant::now(), Timestamp(now_ms()));
    let refused = |error: SignatureError| {
        metrics::counter!("ebb_relay_batches_rejected_total").increment(1);
        (StatusCode::UNAUTHORIZED, error.to_string()).into_response()
    };
    // Nobody gets memory whose signature cannot be right, whatever the body is.
    if let Err(error) = sign::check_headers(&headers, now) {
        return refused(error);
    }
    let body = match served.bodies.read(&headers, body).await {
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
    match answer_batch(&served.relay, body, came.elapsed()).await {
        ReplyOutcome::Response(answers) => Json(answers).into_response(),
        ReplyOutcome::Status { status, message: said } => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), said).into_response()
        }
    }
}

/// Answers a batch, however it came, that was under way for some time.
pub(crate) async fn answer_batch(relay: &Relay, body: impl AsRef<[u8]>, late: Duration) -> ReplyOutcome {
    let not = |status: StatusCode, said: String| ReplyOutcome::Status { status: status.as_u16(), message: said };
    let batch: Batch = match serde_json::from_slice(body.as_ref()) {
        Ok(batch) => batch,
        Err(error) => return not(StatusCode::BAD_REQUEST, error.to_string()),
    };
    drop(body);
    let verbs: Vec<_> = batch.requests.iter().map(verb).collect();
    match relay.batch(batch, late).await {
        Ok(answers) => {
            for (verb, answer) in verbs.into_iter().zip(&answers.responses) {
                let result = response_label(answer);
                metrics::counter!("ebb_relay_requests_total", "verb" => verb, "result" => result).increment(1);
            }
            ReplyOutcome::Response(answers)
        }
        Err(other) => not(StatusCode::CONFLICT, other.to_string()),
    }
}

async fn report(
    State(reports): State<Arc<ReportServer>>,
    Path((unit, attempt)): Path<(String, u32)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = token.and_then(|value| value.strip_prefix("Bearer ")) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let name = TaskId { unit, attempt };
    // Nobody gets memory, or a place, who has no token.
    let reported = match reports.relay.expects(&name, token).await {
        Ok(ReportOutcome::Accepted) => {
            let body = match reports.bodies.read(&headers, body).await {
                Ok(body) => body,
                Err(status) => return status.into_response(),
            };
            reports.relay.report(&name, token, body.as_ref()).await
        }
        other => other,
    };
    let (result, answer) = match reported {
        Ok(ReportOutcome::Accepted) => ("accepted", StatusCode::NO_CONTENT.into_response()),
        Ok(ReportOutcome::Gone) => ("gone", StatusCode::GONE.into_response()),
        Ok(ReportOutcome::Unauthorized) => ("unauthorized", StatusCode::UNAUTHORIZED.into_response()),
        Ok(ReportOutcome::Invalid(why)) => ("malformed", (StatusCode::BAD_REQUEST, why).into_response()),
        Err(error) => {
            tracing::warn!(%error, "a report could not be written down");
            ("failed", StatusCode::SERVICE_UNAVAILABLE.into_response())
        }
    };
    metrics::counter!("ebb_relay_reports_total", "result" => result).increment(1);
    answer
}

async fn ready(State(relay): State<Relay>) -> Response {
    match relay.check().await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

fn verb(request: &RelayRequest) -> &'static str {
    match request {
        RelayRequest::Ensure(_) => "ensure",
        RelayRequest::Get(_) => "get",
        RelayRequest::Cancel { .. } => "cancel",
        RelayRequest::Dequeue(_) => "dequeue",
        RelayRequest::Acknowledge(_) => "acknowledge",
        RelayRequest::Release { .. } => "release",
        RelayRequest::About => "about",
        RelayRequest::List { .. } => "list",
        RelayRequest::Delete(_) => "delete",
    }
}

fn response_label(response: &RelayResponse) -> &'static str {
    match response {
        RelayResponse::State(TaskState::Unknown) => "unknown",
        RelayResponse::State(TaskState::Running { .. }) => "running",
        RelayResponse::State(TaskState::Queued { .. }) => "queued",
        RelayResponse::State(TaskState::Ended(_)) => "ended",
        RelayResponse::State(TaskState::Tombstoned) => "tombstoned",
        RelayResponse::Done | RelayResponse::About(_) | RelayResponse::Listing(_) => "done",
        RelayResponse::Refused(_) => "refused",
        RelayResponse::Unavailable(_) => "unavailable",
        RelayResponse::TooLarge => "too_large",
    }
}
