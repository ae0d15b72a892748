//! A server for webhook units and the platform. It records requests and responds by rules.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture as _};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use ebb_protocol::unit::{CALLBACK_TOKEN, CALLBACK_URL};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::wait::until;

const CONCURRENT_CALLBACKS: usize = 32;

#[derive(Clone, Debug)]
pub struct ReceivedCall {
    /// Method and path, as in `POST /path`.
    pub line: String,
    /// What follows `?` in the URL.
    pub query: String,
    pub headers: HeaderMap,
    /// The JSON of the body. A body that is not JSON is a string. An empty body is null.
    pub body: Value,
    pub at: Instant,
}

impl ReceivedCall {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn token(&self) -> &str {
        self.header(CALLBACK_TOKEN)
    }

    pub fn path(&self) -> &str {
        self.line.split_once(' ').map_or("", |(_, path)| path)
    }

    /// Returns true if the request has a line such as `POST /a`, or `POST /a with b` with a text of the JSON of its body or
    /// of a header. A line with `*` at its end is a prefix.
    fn matches(&self, line: &str) -> bool {
        let (line, text) = line.split_once(" with ").unwrap_or((line, ""));
        let has_line = line.strip_suffix('*').map_or(line == self.line, |start| self.line.starts_with(start));
        let mut headers = self.headers.values().filter_map(|value| value.to_str().ok());
        has_line
            && (text.is_empty() || self.body.to_string().contains(text) || headers.any(|value| value.contains(text)))
    }
}

type Callbacks = Pin<Box<dyn Future<Output = Vec<Value>> + Send>>;

#[derive(Clone, Debug)]
pub struct CannedReply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

pub struct CallbackReply(CannedReply, Option<Callbacks>);

impl CannedReply {
    pub fn status(status: u16) -> Self {
        Self::text(status, "application/json", "{}")
    }

    pub fn ok(body: Value) -> Self {
        Self::status(200).with(body)
    }

    /// Replies with a text of a type such as `text/html`.
    pub fn text(status: u16, content_type: &str, text: &str) -> Self {
        Self { status, headers: Vec::new(), body: text.to_owned() }.header("content-type", content_type)
    }

    /// Ends the task of the connection, so the client gets no response.
    pub fn lost() -> ! {
        resume_unwind(Box::new("the connection is lost"))
    }

    pub fn with(mut self, body: Value) -> Self {
        self.headers.retain(|(name, _)| *name != "content-type");
        Self { body: body.to_string(), ..self }.header("content-type", "application/json")
    }

    pub fn after(self, seconds: u32) -> Self {
        self.header("retry-after", &seconds.to_string())
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends these bodies to the callback URL of the request, one after the other. Each is repeated on server errors.
    pub fn then(self, callbacks: impl Future<Output = Vec<Value>> + Send + 'static) -> CallbackReply {
        CallbackReply(self, Some(Box::pin(callbacks)))
    }
}

impl From<CannedReply> for CallbackReply {
    fn from(reply: CannedReply) -> Self {
        Self(reply, None)
    }
}

impl From<u16> for CannedReply {
    fn from(status: u16) -> Self {
        Self::status(status)
    }
}

impl From<Value> for CannedReply {
    fn from(body: Value) -> Self {
        Self::ok(body)
    }
}

type ReplyFn = Arc<dyn Fn(&ReceivedCall, usize) -> CallbackReply + Send + Sync>;
type VerifyFn = dyn Fn(&ReceivedCall, &[u8]) -> Result<(), String> + Send + Sync;

#[derive(Default)]
struct ReceivedCalls {
    all: Vec<ReceivedCall>,
    counts: BTreeMap<String, usize>,
    refused: Vec<String>,
}

struct ReceiverState {
    calls: Mutex<ReceivedCalls>,
    rules: Mutex<Vec<(String, ReplyFn)>>,
    held: Mutex<BTreeMap<String, watch::Receiver<()>>>,
    verify: Box<VerifyFn>,
    http: reqwest::Client,
    slots: Semaphore,
}

/// A running receiver. It stops when its last clone is dropped.
#[derive(Clone)]
pub struct TestReceiver {
    url: String,
    state: Arc<ReceiverState>,
    _server: Arc<JoinSet<()>>,
}

/// Delays the responses to requests with one line until it is dropped.
pub type ReplyHold = watch::Sender<()>;

impl TestReceiver {
    /// Starts a receiver on the loopback interface that responds 200 to every request without a rule.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), |_, _| Ok(())).await
    }

    /// Starts a receiver that responds 401 to a request that is not verified.
    pub async fn start_at(
        address: IpAddr,
        verify: impl Fn(&ReceivedCall, &[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let mut local = listener.local_addr().unwrap();
        if address.is_unspecified() {
            local.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let state = Arc::new(ReceiverState {
            calls: Mutex::default(),
            rules: Mutex::default(),
            held: Mutex::default(),
            verify: Box::new(verify),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            slots: Semaphore::new(CONCURRENT_CALLBACKS),
        });
        let router = Router::new().fallback(take).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&state));
        let server = axum::serve(listener, router).into_future();
        // Its task ends when the set is dropped.
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.await.unwrap() });
        Self { url: format!("http://{local}"), state, _server: Arc::new(tasks) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets the rule for requests with a line such as `POST /a`, with a prefix such as `POST /a/*`, or with a text in the body
    /// such as `POST /a with b`. The latest matching rule applies. `reply` gets the number of the request among those with the
    /// same line, from 1.
    pub fn on<R>(&self, line: &str, reply: impl Fn(&ReceivedCall, usize) -> R + Send + Sync + 'static)
    where
        R: Into<CallbackReply>,
    {
        let reply: ReplyFn = Arc::new(move |call, number| reply(call, number).into());
        self.state.rules.lock().unwrap().insert(0, (line.to_owned(), reply));
    }

    /// Responds always with the same reply: a status, or 200 and JSON.
    pub fn always(&self, line: &str, reply: impl Into<CannedReply> + Clone + Send + Sync + 'static) {
        self.on::<CannedReply>(line, move |_, _| reply.clone().into());
    }

    /// Responds with one reply after the other, and then repeats the last one.
    pub fn replies<R: Into<CannedReply> + Clone + Send + Sync + 'static>(&self, line: &str, replies: &[R]) {
        let replies = replies.to_vec();
        self.on::<CannedReply>(line, move |_, number| replies[number.min(replies.len()) - 1].clone().into());
    }

    /// Delays the responses to requests with this line until the hold is dropped.
    pub fn hold(&self, line: &str) -> ReplyHold {
        let (hold, held) = watch::channel(());
        self.state.held.lock().unwrap().insert(line.to_owned(), held);
        hold
    }

    pub fn all(&self) -> Vec<ReceivedCall> {
        self.state.calls.lock().unwrap().all.clone()
    }

    pub fn calls(&self, line: &str) -> Vec<ReceivedCall> {
        self.state.calls.lock().unwrap().all.iter().filter(|call| call.matches(line)).cloned().collect()
    }

    /// Returns the number of requests with a line, which can have a text of the body.
    pub fn count(&self, line: &str) -> usize {
        if line.contains(" with ") {
            return self.calls(line).len();
        }
        self.state.calls.lock().unwrap().counts.get(line).copied().unwrap_or_default()
    }

    pub fn order(&self) -> Vec<String> {
        self.state.calls.lock().unwrap().all.iter().map(|call| call.line.clone()).collect()
    }

    /// Waits for the request with this line and this number, from 1.
    pub async fn call(&self, line: &str, number: usize) -> ReceivedCall {
        let event = format!("{line}, number {number}");
        until(&event, async || {
            let arrived = self.count(line) >= number;
            arrived.then(|| self.calls(line).remove(number - 1))
        })
        .await
    }

    pub fn forget(&self) {
        *self.state.calls.lock().unwrap() = ReceivedCalls::default();
    }

    pub fn refused(&self) -> Vec<String> {
        self.state.calls.lock().unwrap().refused.clone()
    }
}

async fn take(
    State(state): State<Arc<ReceiverState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let body = match &*bytes {
        [] => Value::Null,
        bytes => serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into()),
    };
    let (line, query) = (format!("{method} {}", uri.path()), uri.query().unwrap_or_default().to_owned());
    let call = ReceivedCall { line, query, headers, body, at: Instant::now() };
    if let Err(error) = (state.verify)(&call, &bytes) {
        state.calls.lock().unwrap().refused.push(format!("{}: {error}", call.line));
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let number = {
        let mut calls = state.calls.lock().unwrap();
        calls.all.push(call.clone());
        let number = calls.counts.entry(call.line.clone()).or_default();
        *number += 1;
        *number
    };
    let held = state.held.lock().unwrap().get(&call.line).cloned();
    if let Some(mut held) = held {
        held.changed().await.ok();
    }
    let rules = state.rules.lock().unwrap().clone();
    let rule = rules.iter().find(|(line, _)| call.matches(line));
    let CallbackReply(reply, callbacks) =
        rule.map_or_else(|| CannedReply::status(200).into(), |(_, reply)| reply(&call, number));
    if let Some(callbacks) = callbacks {
        tokio::spawn(call_back(state, call, callbacks));
    }
    let status = StatusCode::from_u16(reply.status).unwrap();
    (status, AppendHeaders(reply.headers), Body::from(reply.body)).into_response()
}

async fn call_back(state: Arc<ReceiverState>, call: ReceivedCall, callbacks: Callbacks) {
    for body in callbacks.await {
        loop {
            let _slot = state.slots.acquire().await;
            let request = state.http.post(call.header(CALLBACK_URL));
            // Units of other engines have no token.
            let request = if call.token().is_empty() { request } else { request.bearer_auth(call.token()) };
            if request.json(&body).send().await.is_ok_and(|response| !response.status().is_server_error()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
