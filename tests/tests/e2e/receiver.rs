//! A service that units of the webhooks example speak to: it believes only what is signed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use ebb_protocol::sign::{WebhookKeys, WebhookSecret};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How often a certificate is not signed yet.
const NOT_YET: usize = 2;
/// What scripts ask for; they sign nothing.
const OF_SCRIPTS: [&str; 2] = ["/goods/", "/openings"];

/// A request that was believed.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
    headers: HeaderMap,
}

impl VerifiedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }

    /// `DELETE /path`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

struct ReceiverInner {
    keys: PathBuf,
    /// The plugin whose units send requests here: each plugin has a signing secret of its own.
    plugin: &'static str,
    requests: Mutex<Vec<VerifiedRequest>>,
    refused: Mutex<Vec<String>>,
    /// One permit per callback that may be sent.
    callbacks: Semaphore,
    called_back: Mutex<Vec<u16>>,
}

/// The service, listening for as long as the test's runtime lives.
#[derive(Clone)]
pub(crate) struct E2eReceiver {
    pub(crate) url: String,
    port: u16,
    inner: Arc<ReceiverInner>,
}

impl E2eReceiver {
    /// Starts it for the webhooks example. `keys` is the file with the secret from which the secrets of plugins are
    /// derived; it is read when a request comes.
    pub(crate) async fn start(keys: PathBuf) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST, keys, "tenant-services").await
    }

    /// Starts it on all addresses of this machine, for the mixed example.
    pub(crate) async fn start_everywhere(keys: PathBuf) -> Self {
        Self::start_on(Ipv4Addr::UNSPECIFIED, keys, "shop").await
    }

    async fn start_on(address: Ipv4Addr, keys: PathBuf, plugin: &'static str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("http://127.0.0.1:{port}");
        let inner = Arc::new(ReceiverInner {
            keys,
            plugin,
            requests: Mutex::default(),
            refused: Mutex::default(),
            callbacks: Semaphore::new(0),
            called_back: Mutex::default(),
        });
        let router = Router::new().fallback(take).with_state(Arc::clone(&inner));
        tokio::spawn(axum::serve(listener, router).into_future());
        Self { url, port, inner }
    }

    /// Its URL for who reaches this machine at `host`.
    pub(crate) fn url_at(&self, host: &str) -> String {
        format!("http://{host}:{}", self.port)
    }

    /// Forgets all requests.
    pub(crate) fn forget(&self) {
        self.inner.requests.lock().unwrap().clear();
    }

    /// Lets one callback go.
    pub(crate) fn call_back(&self) {
        self.inner.callbacks.add_permits(1);
    }

    /// Lets every callback go.
    pub(crate) fn call_back_always(&self) {
        self.inner.callbacks.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// How many different things were asked for at each path. A request that comes again has the key of the first one,
    /// and a receiver makes nothing for it.
    pub(crate) fn made(&self) -> Vec<(String, usize)> {
        let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in self.requests().iter().filter(|request| request.method == Method::POST) {
            let key = request.header("idempotency-key").to_owned();
            keys.entry(request.path.clone()).or_default().insert(key);
        }
        keys.into_iter().map(|(path, keys)| (path, keys.len())).collect()
    }

    /// That one thing of each kind of the webhooks example was made.
    pub(crate) fn each_was_made_once(&self) {
        let kinds = ["/certificates", "/indexes", "/tenants"];
        assert_eq!(self.made(), kinds.map(|kind| (kind.to_owned(), 1)));
    }

    /// The kinds of things of which one is left: it was asked for after it was last taken away.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut there = BTreeSet::new();
        for request in self.requests() {
            let kind = request.path.split('/').nth(1).unwrap_or_default().to_owned();
            match request.method {
                Method::POST => there.insert(kind),
                _ => there.remove(&kind),
            };
        }
        there.into_iter().collect()
    }

    /// The requests so far; none was refused.
    pub(crate) fn requests(&self) -> Vec<VerifiedRequest> {
        assert_eq!(*self.inner.refused.lock().unwrap(), [""; 0]);
        self.inner.requests.lock().unwrap().clone()
    }

    /// The requests so far by their line, each with how often it came.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in self.requests() {
            *counts.entry(request.line()).or_default() += 1;
        }
        counts
    }

    /// What callbacks were answered with.
    pub(crate) fn called_back(&self) -> Vec<u16> {
        self.inner.called_back.lock().unwrap().clone()
    }
}

async fn take(
    State(inner): State<Arc<ReceiverInner>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let is_signed = !OF_SCRIPTS.iter().any(|of| path.starts_with(of));
    if is_signed && let Err(error) = believe(&inner, &headers, &body) {
        inner.refused.lock().unwrap().push(format!("{method} {uri}: {error}"));
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let body = match &*body {
        [] => Value::Null,
        json if is_signed => serde_json::from_slice(json).unwrap(),
        text => String::from_utf8(text.to_vec()).unwrap().into(),
    };
    let request = VerifiedRequest { method, path, body, headers };
    let before = {
        let mut requests = inner.requests.lock().unwrap();
        requests.push(request.clone());
        requests.iter().filter(|other| other.line() == request.line()).count() - 1
    };
    match request.line().as_str() {
        "POST /tenants" => axum::Json(json!({"id": "tenant-7"})).into_response(),
        "POST /indexes" => {
            tokio::spawn(call_back(inner, request));
            StatusCode::ACCEPTED.into_response()
        }
        "POST /certificates" if before < NOT_YET => (StatusCode::ACCEPTED, [("retry-after", "1")]).into_response(),
        "POST /certificates" => axum::Json(json!({"id": "certificate-7"})).into_response(),
        line if line.starts_with("POST /goods/") || line == "POST /openings" => StatusCode::OK.into_response(),
        line if line.starts_with("DELETE ") => StatusCode::NO_CONTENT.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// As a receiver does it that knows nothing of Ebb but the secret.
fn believe(inner: &ReceiverInner, headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let keys: Value = serde_json::from_slice(&std::fs::read(&inner.keys).unwrap()).unwrap();
    let keys: WebhookKeys = keys["unitSecret"].as_str().unwrap().parse::<WebhookSecret>().unwrap().into();
    let webhook = Webhook::new(&keys.for_plugin(inner.plugin).reveal()[0]).map_err(|error| error.to_string())?;
    webhook.verify(body, headers).map_err(|error| error.to_string())
}

async fn call_back(inner: Arc<ReceiverInner>, request: VerifiedRequest) {
    inner.callbacks.acquire().await.unwrap().forget();
    let result = json!({"status": "succeeded", "outputs": {"endpoint": "index-7.search.test:9200"}});
    let (url, token) = (request.header("ebb-callback-url"), request.header("ebb-callback-token"));
    loop {
        let sent = reqwest::Client::new().post(url).bearer_auth(token).json(&result).send().await;
        if let Ok(answer) = sent {
            inner.called_back.lock().unwrap().push(answer.status().as_u16());
            if !answer.status().is_server_error() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
