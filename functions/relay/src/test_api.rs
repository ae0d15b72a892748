//! Rows of tables and API servers for unit tests. One server lists records and answers no request for a single one, the other has Secrets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb_kube::podspec::ClusterPolicy;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Relay, RelaySettings};

/// Returns the rows of a test in `tests/rows.yaml`.
pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, Vec<Value>> = serde_saphyr::from_str(include_str!("../tests/rows.yaml")).unwrap();
    let rows = parts.remove(test).filter(|rows| !rows.is_empty()).unwrap_or_else(|| panic!("no rows of {test}"));
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}

#[derive(Default)]
pub(crate) struct TestApi {
    /// The Secrets in the namespace of the relay.
    pub(crate) secrets: Mutex<Vec<Value>>,
    /// The number of requests for single objects, which get no response.
    pub(crate) unanswered: AtomicUsize,
}

impl TestApi {
    pub(crate) async fn relay(self: &Arc<Self>) -> Relay {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, path) = (Arc::clone(&server), request.uri().path().to_owned());
            async move {
                Ok::<_, kube::Error>(Response::new(Body::from(server.respond(&path).await.to_string().into_bytes())))
            }
        });
        open_relay(Client::new(service, "relay")).await
    }

    async fn respond(&self, path: &str) -> Value {
        match path {
            "/api/v1/namespaces/kube-system" => {
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "u"}})
            }
            "/api/v1/namespaces/relay/secrets" => {
                let items = self.secrets.lock().unwrap().clone();
                json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {}, "items": items})
            }
            "/api/v1/namespaces/relay/secrets/ebb-kept-since" => {
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ebb-kept-since"}})
            }
            _ => {
                self.unanswered.fetch_add(1, SeqCst);
                std::future::pending().await
            }
        }
    }
}

pub(crate) async fn open_relay(client: Client) -> Relay {
    let settings = RelaySettings::new("relay", "units", "http://127.0.0.1:1");
    Relay::open(client, settings, ClusterPolicy::default()).await.unwrap()
}

pub(crate) async fn until(condition: &str, is_true: impl Fn() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect(condition);
}

/// Secrets by their names. `secrets` is the list that a server returns.
pub(crate) type StoredSecrets = Arc<Mutex<BTreeMap<String, Value>>>;

/// Returns a client of a namespace. Each write changes the version of a Secret.
pub(crate) fn secrets_client(stored: &StoredSecrets) -> Client {
    let (stored, version) = (Arc::clone(stored), Arc::new(AtomicU32::new(0)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (stored, version) = (Arc::clone(&stored), Arc::clone(&version));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let mut stored = stored.lock().unwrap();
            let mut name = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            if matches!(parts.method, Method::POST | Method::PUT) {
                let mut secret: Value = serde_json::from_slice(&body).unwrap();
                secret["metadata"]["resourceVersion"] = version.fetch_add(1, SeqCst).to_string().into();
                name = secret["metadata"]["name"].as_str().unwrap().to_owned();
                stored.insert(name.clone(), secret);
            }
            let found = if parts.method == Method::DELETE { stored.remove(&name) } else { stored.get(&name).cloned() };
            let missing = || json!(Status::failure("", "NotFound").with_code(404));
            let status = if found.is_some() { 200 } else { 404 };
            let text = found.unwrap_or_else(missing).to_string();
            Ok::<_, kube::Error>(Response::builder().status(status).body(Body::from(text.into_bytes())).unwrap())
        }
    });
    Client::new(service, "relay")
}
