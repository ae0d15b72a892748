//! HTTP routes of the relay: batches, reports of entrypoints, probes, metrics.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{Router, get, post};
use ebb_protocol::entrypoint::REPORT_BODY;
use ebb_protocol::{
    Batch, RelayResponse, ReplyOutcome, SignatureError, TaskId, TaskState, Timestamp, WebhookKeys, sign,
};
use prometheus::TEXT_FORMAT;
use tokio::sync::Semaphore;

use crate::metrics::{self, METRICS};
use crate::transport::bodies::BodyPool;
use crate::transport::reports::ReportError;
use crate::{Relay, error_message, now_ms};

const BATCH_BODY: usize = 32 << 20;
/// Batches of the largest size that are read at the same time.
const BATCHES: usize = 2;
/// The timeouts for memory and for the body of a batch. Together they are shorter than the timeout of the sender.
const BATCH_TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));

struct BatchServer {
    relay: Relay,
    keys: Arc<OnceLock<WebhookKeys>>,
    bodies: BodyPool,
}

/// Reports of the largest size that are read at the same time.
const REPORTS: usize = 8;
/// The timeouts for memory and for the body of a report.
const REPORT_TIMES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(60));

/// Reports that ask the API server at the same time: half of the requests that the client permits. A pod can send any
/// number of reports, also with a wrong token, and tasks need the other requests.
const LOOKUPS: usize = 32;

struct ReportServer {
    relay: Relay,
    bodies: BodyPool,
    lookups: Semaphore,
}

pub fn reports(relay: Relay) -> Router {
    let bodies = BodyPool::new(REPORT_BODY, REPORTS, REPORT_TIMES.0, REPORT_TIMES.1);
    let server = ReportServer { relay, bodies, lookups: Semaphore::new(LOOKUPS) };
    Router::new().route("/v1/reports/{unit}/{attempt}", post(report)).with_state(Arc::new(server))
}

/// Returns the route for the control plane, which signs batches with one of `keys`. Until they are set, it answers 503.
pub fn batches(relay: Relay, keys: Arc<OnceLock<WebhookKeys>>) -> Router {
    let bodies = BodyPool::new(BATCH_BODY, BATCHES, BATCH_TIMES.0, BATCH_TIMES.1);
    Router::new().route("/v1/batch", post(batch)).with_state(Arc::new(BatchServer { relay, keys, bodies }))
}

/// Returns the routes for probes and for the metrics, in the text format of Prometheus. They have no authentication.
pub fn monitoring(relay: Relay) -> Router {
    Router::new()
        .route("/healthz", get(|| async { StatusCode::OK }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(relay)
}

async fn batch(State(server): State<Arc<BatchServer>>, headers: HeaderMap, body: Body) -> Response {
    let (received, now) = (Instant::now(), Timestamp(now_ms()));
    let refused = |error: SignatureError| {
        METRICS.batches_rejected.inc();
        (StatusCode::UNAUTHORIZED, error.to_string()).into_response()
    };
    // Headers are checked first, so that an unsigned request uses no memory.
    if let Err(error) = sign::check_headers(&headers, now) {
        return refused(error);
    }
    let Some(keys) = server.keys.get() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the relay is not registered yet: its log says why").into_response();
    };
    let body = match server.bodies.read(&headers, body).await {
        Ok(body) => body,
        // 503 would look like a gateway that cannot reach its relay. This relay is only busy.
        Err(StatusCode::SERVICE_UNAVAILABLE) => {
            let why = "the relay receives too many batches; repeat the request later";
            return (StatusCode::TOO_MANY_REQUESTS, why).into_response();
        }
        Err(status) => return status.into_response(),
    };
    // A repetition within the tolerance is harmless for tasks, whose names are idempotent. It sends a call again while the
    // call is valid.
    if let Err(error) = sign::verify(keys, &headers, body.as_ref(), now) {
        return refused(error);
    }
    match execute_batch(&server.relay, body, received.elapsed()).await {
        ReplyOutcome::Response(responses) => Json(responses).into_response(),
        ReplyOutcome::Status { status, message } => {
            (StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST), message).into_response()
        }
    }
}

/// Executes a batch of either transport. `transit` is the time for which it was in transit.
pub(crate) async fn execute_batch(relay: &Relay, body: impl AsRef<[u8]>, transit: Duration) -> ReplyOutcome {
    let not = |status: StatusCode, message: String| ReplyOutcome::Status { status: status.as_u16(), message };
    let batch: Batch = match serde_json::from_slice(body.as_ref()) {
        Ok(batch) => batch,
        Err(error) => return not(StatusCode::BAD_REQUEST, error.to_string()),
    };
    drop(body);
    let verbs: Vec<_> = batch.requests.iter().map(|request| request.properties().verb).collect();
    match relay.batch(batch, transit).await {
        Ok(responses) => {
            for (verb, response) in verbs.into_iter().zip(&responses.responses) {
                METRICS.requests.with_label_values(&[verb, response_label(response)]).inc();
            }
            ReplyOutcome::Response(responses)
        }
        Err(why) => not(StatusCode::CONFLICT, why),
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
        METRICS.reports.with_label_values(&["unauthorized"]).inc();
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let name = TaskId { unit, attempt };
    let reported = async {
        // This fails only if the semaphore is closed, which never happens.
        let lookup = reports.lookups.acquire().await;
        // The token is checked first, so that a request without one uses no memory.
        reports.relay.expects(&name, token).await?;
        drop(lookup);
        match reports.bodies.read(&headers, body).await {
            Ok(body) => {
                let _lookup = reports.lookups.acquire().await;
                reports.relay.report(&name, token, body.as_ref()).await.map(|()| StatusCode::NO_CONTENT)
            }
            Err(status) => Ok(status),
        }
    };
    let (result, response) = match reported.await {
        Ok(StatusCode::NO_CONTENT) => ("accepted", StatusCode::NO_CONTENT.into_response()),
        // The body was not read.
        Ok(status) => (if status.is_server_error() { "failed" } else { "malformed" }, status.into_response()),
        Err(ReportError::Gone) => ("gone", StatusCode::GONE.into_response()),
        Err(ReportError::Unauthorized) => ("unauthorized", StatusCode::UNAUTHORIZED.into_response()),
        Err(ReportError::Invalid(why)) => ("malformed", (StatusCode::BAD_REQUEST, why).into_response()),
        Err(ReportError::Failed(error)) => {
            if !reports.relay.inner.log_outage(&error) {
                tracing::warn!(%error, "cannot store a report");
            }
            ("failed", StatusCode::SERVICE_UNAVAILABLE.into_response())
        }
    };
    METRICS.reports.with_label_values(&[result]).inc();
    response
}

async fn ready(State(relay): State<Relay>) -> Response {
    match relay.inner.client.apiserver_version().await {
        Ok(_) => StatusCode::OK.into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error_message(&error)).into_response(),
    }
}

async fn scrape(State(relay): State<Relay>) -> Response {
    match metrics::text(relay.inner.registry.count(), relay.inner.queue.count()) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn response_label(response: &RelayResponse) -> &'static str {
    match response {
        RelayResponse::State(TaskState::Unknown) => "unknown",
        RelayResponse::State(TaskState::Running { .. }) => "running",
        RelayResponse::State(TaskState::Queued { .. }) => "queued",
        RelayResponse::State(TaskState::Ended(_)) => "ended",
        RelayResponse::State(TaskState::Tombstoned) => "tombstoned",
        RelayResponse::Done | RelayResponse::About(_) | RelayResponse::Listing(_) | RelayResponse::Service(_) => "done",
        RelayResponse::Refused(_) => "refused",
        RelayResponse::Unavailable(_) => "unavailable",
        RelayResponse::TooLarge => "too_large",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use axum::http::Request;
    use tokio::task::JoinSet;
    use tower::ServiceExt as _;

    use super::*;
    use crate::test_api::{TestApi, until};

    #[tokio::test]
    async fn a_report_without_a_token_is_counted() {
        let router = reports(TestApi::silent().relay().await);
        let count = || METRICS.reports.with_label_values(&["unauthorized"]).get();
        let before = count();
        let request = Request::post("/v1/reports/unit-1/1").body(Body::empty()).unwrap();
        assert_eq!(router.oneshot(request).await.unwrap().status(), StatusCode::UNAUTHORIZED);
        assert!(count() > before);
    }

    #[tokio::test]
    async fn reports_leave_requests_to_tasks() {
        let server = TestApi::silent();
        let (router, mut sent) = (reports(server.relay().await), JoinSet::new());
        for unit in 0..4 * LOOKUPS {
            let request = Request::post(format!("/v1/reports/unit-{unit}/1")).header("authorization", "Bearer t");
            sent.spawn(router.clone().oneshot(request.body(Body::empty()).unwrap()));
        }
        until("reports are looked up", async || (server.unanswered.load(SeqCst) >= LOOKUPS).then_some(())).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(server.unanswered.load(SeqCst), LOOKUPS);
    }
}
