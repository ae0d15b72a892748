//! A proxy between the SDK and the table. It passes requests on and injects faults of a network or a busy table.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Clone, Debug)]
pub(super) enum ProxyFault {
    /// The proxy responds, and the request does not reach the table.
    Respond(StatusCode, Value),
    /// The connection is closed, and the request does not reach the table.
    LoseRequest,
    /// The request reaches the table, and the connection is closed without a response.
    LoseReply,
}

impl ProxyFault {
    pub(super) fn error(status: u16, code: &str) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Self::Respond(StatusCode::from_u16(status).unwrap(), json!({"__type": kind, "message": "injected"}))
    }

    /// Returns the response of a transaction that was cancelled for these reasons, one per item.
    pub(super) fn cancelled(codes: &[&str]) -> Self {
        let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code, "Message": "injected"})).collect();
        let Self::Respond(status, mut body) = Self::error(400, "TransactionCanceledException") else {
            unreachable!("an error is a response")
        };
        body["CancellationReasons"] = Value::Array(reasons);
        Self::Respond(status, body)
    }
}

#[derive(Default)]
struct ProxyState {
    plan: BTreeMap<String, VecDeque<ProxyFault>>,
    hits: usize,
    requests: Vec<(String, Value)>,
}

/// A running proxy. It stops with the runtime of the test.
pub(super) struct FaultProxy {
    pub(super) endpoint: String,
    state: Arc<Mutex<ProxyState>>,
}

impl FaultProxy {
    pub(super) async fn start(table: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(ProxyState::default()));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let handler = ProxyHandler { table: table.to_owned(), client, state: Arc::clone(&state) };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let handler = handler.clone();
                let service = hyper::service::service_fn(move |request| {
                    let handler = handler.clone();
                    async move { handler.pass(request).await }
                });
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { endpoint, state }
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap()
    }

    /// Injects these faults into the next requests of `operation`, one each.
    pub(super) fn plan(&self, operation: &str, faults: impl IntoIterator<Item = ProxyFault>) {
        self.state().plan.entry(operation.to_owned()).or_default().extend(faults);
    }

    /// Awaits a request to the store. The first response to `operation` is lost.
    pub(super) async fn losing<T>(&self, operation: &str, request: impl Future<Output = T>) -> T {
        self.plan(operation, [ProxyFault::LoseReply]);
        let response = request.await;
        assert_eq!(self.hits(), 1, "{operation}");
        response
    }

    /// Returns the number of faults since the last call, and removes those that were not reached.
    pub(super) fn hits(&self) -> usize {
        let mut state = self.state();
        state.plan.clear();
        std::mem::take(&mut state.hits)
    }

    /// Returns operation and body of the requests since the last call.
    pub(super) fn requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.state().requests)
    }
}

/// An error, which closes the connection.
const CLOSED: &str = "injected";

#[derive(Clone)]
struct ProxyHandler {
    table: String,
    client: reqwest::Client,
    state: Arc<Mutex<ProxyState>>,
}

impl ProxyHandler {
    async fn pass(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| CLOSED)?.to_bytes();
        let target = head.headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let input: Value = serde_json::from_slice(&body).unwrap();
        let fault = {
            let mut state = self.state.lock().unwrap();
            let fault = state.plan.get_mut(&operation).and_then(VecDeque::pop_front);
            state.hits += usize::from(fault.is_some());
            state.requests.push((operation, input));
            fault
        };
        match fault {
            Some(ProxyFault::Respond(status, response)) => {
                return Ok(respond(status, response.to_string().into()));
            }
            Some(ProxyFault::LoseRequest) => return Err(CLOSED),
            Some(ProxyFault::LoseReply) | None => {}
        }
        let forwarded = self.client.post(&self.table).headers(head.headers).body(body).send().await;
        let response = forwarded.map_err(|_| CLOSED)?;
        let (status, response) = (response.status(), response.bytes().await.map_err(|_| CLOSED)?);
        match fault {
            Some(_) => Err(CLOSED),
            None => Ok(respond(status, response)),
        }
    }
}

fn respond(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("application/x-amz-json-1.0");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
