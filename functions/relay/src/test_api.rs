//! Rows of tables and an API server for unit tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ebb_kube::podspec::ClusterPolicy;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Relay, RelaySettings};

#[path = "../../../tests/src/wait.rs"]
#[allow(unreachable_pub, reason = "the library of the tests exports it")]
mod wait;

pub(crate) use wait::until;

/// Returns the rows of a test in `tests/rows.yaml`.
pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, Vec<Value>> = serde_saphyr::from_str(include_str!("../tests/rows.yaml")).unwrap();
    let rows = parts.remove(test).filter(|rows| !rows.is_empty()).unwrap_or_else(|| panic!("no rows of {test}"));
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}

/// An API server. Each write changes the version of an object.
#[derive(Default)]
pub(crate) struct TestApi {
    /// Objects by the last part of their paths. `secrets` is the list of Secrets, which writes do not change.
    pub(crate) objects: Mutex<BTreeMap<String, Value>>,
    version: AtomicU32,
    /// A request for another object gets no response. Otherwise, the response is 404.
    is_silent: bool,
    /// The number of requests that get no response.
    pub(crate) unanswered: AtomicUsize,
}

impl TestApi {
    /// Returns a silent server that has only what a relay reads at its start.
    pub(crate) fn silent() -> Arc<Self> {
        let objects = Mutex::new(rows::<(String, Value)>("start_of_a_relay").into_iter().collect());
        Arc::new(Self { objects, is_silent: true, ..Self::default() })
    }

    pub(crate) async fn relay(self: &Arc<Self>) -> Relay {
        let settings = RelaySettings::new("relay", "units", "http://127.0.0.1:1");
        Relay::open(self.client(), settings, ClusterPolicy::default()).await.unwrap()
    }

    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move { server.respond(request).await }
        });
        Client::new(service, "relay")
    }

    async fn respond(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let mut name = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        if self.is_silent && !self.objects.lock().unwrap().contains_key(&name) {
            self.unanswered.fetch_add(1, SeqCst);
            return std::future::pending().await;
        }
        let mut objects = self.objects.lock().unwrap();
        if matches!(parts.method, Method::POST | Method::PUT) {
            let mut object: Value = serde_json::from_slice(&body).unwrap();
            object["metadata"]["resourceVersion"] = self.version.fetch_add(1, SeqCst).to_string().into();
            name = object["metadata"]["name"].as_str().unwrap().to_owned();
            objects.insert(name.clone(), object);
        }
        let found = if parts.method == Method::DELETE { objects.remove(&name) } else { objects.get(&name).cloned() };
        let missing = || json!(Status::failure("", "NotFound").with_code(404));
        let status = if found.is_some() { 200 } else { 404 };
        let text = found.unwrap_or_else(missing).to_string();
        Ok(Response::builder().status(status).body(Body::from(text.into_bytes())).unwrap())
    }
}
