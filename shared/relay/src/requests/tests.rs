//! Tests requests with an API server that responds with errors.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ebb_protocol::relay::CallbackEndpoint;
use http::{Method, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::RelaySettings;

const CLUSTER: &str = "cluster-uid";
const MAPS: &str = "/api/v1/namespaces/units/configmaps";

/// An API server with Secrets, and with ConfigMaps that cannot be read for a while.
#[derive(Default)]
struct FakeApiServer {
    objects: Mutex<BTreeMap<String, Value>>,
    fails: AtomicBool,
}

impl FakeApiServer {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let missing = || (StatusCode::NOT_FOUND, failure(404));
        let mut objects = self.objects.lock().unwrap();
        let version = objects.values().filter_map(|object| object["metadata"]["resourceVersion"].as_str());
        let version = version.filter_map(|version| version.parse::<u64>().ok()).max().unwrap_or(0) + 1;
        match (method, path) {
            (_, "/api/v1/namespaces/kube-system") => {
                (StatusCode::OK, json!({"metadata": {"name": "kube-system", "uid": CLUSTER}}))
            }
            (_, "/api/v1") => {
                let resource = |name: &str, kind: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get"]});
                let resources = [resource("configmaps", "ConfigMap"), resource("secrets", "Secret")];
                (StatusCode::OK, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}))
            }
            (_, path) if path.starts_with(MAPS) => match self.fails.load(SeqCst) {
                true => (StatusCode::INTERNAL_SERVER_ERROR, failure(500)),
                false => missing(),
            },
            (&Method::GET, path) if path.ends_with("/secrets") => {
                let items: Vec<&Value> = objects.values().collect();
                (StatusCode::OK, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
            }
            (&Method::GET, path) => objects.get(path).map_or_else(missing, |it| (StatusCode::OK, it.clone())),
            (&Method::POST | &Method::PUT, path) => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let path = if method == Method::POST { format!("{path}/{name}") } else { path.to_owned() };
                object["metadata"]["uid"] = name.into();
                object["metadata"]["resourceVersion"] = version.to_string().into();
                objects.insert(path, object.clone());
                (StatusCode::OK, object)
            }
            _ => missing(),
        }
    }
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": "as planned", "reason": "", "code": code})
}

fn client(server: &Arc<FakeApiServer>) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=")) {
                return std::future::pending().await;
            }
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (status, value) = server.answer(&parts.method, parts.uri.path(), &body);
            let body = Body::from(value.to_string().into_bytes());
            Ok::<_, kube::Error>(Response::builder().status(status).body(body).unwrap())
        }
    });
    Client::new(service, "relay")
}

fn ensure(name: &TaskId, token: &str) -> RelayRequest {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    RelayRequest::Ensure(Box::new(EnsureTask {
        v: VERSION,
        task: name.clone(),
        valid_for_ms: 60_000,
        timeout_ms: 90_000,
        callback: CallbackEndpoint {
            url: "http://127.0.0.1:1/".to_owned(),
            token: token.to_owned(),
            installation: String::new(),
        },
        body: ObjectTask { instance: "life-1".to_owned(), apply: vec![map], ..ObjectTask::default() },
    }))
}

/// A task whose object was never requested from the API server ends at once, whatever its callback.
#[tokio::test]
async fn a_newer_callback_casts_no_doubt_on_what_was_applied() {
    let server = Arc::new(FakeApiServer::default());
    let settings = RelaySettings {
        policy: serde_json::from_value(json!({"namespaces": {"units": []}, "kinds": ["ConfigMap"]})).unwrap(),
        callback_hosts: ["127.0.0.1".to_owned()].into(),
        api_server_request_timeout: Duration::from_secs(3600),
        ..RelaySettings::new("relay", "units", "http://127.0.0.1:1")
    };
    let relay = Relay::open(client(&server), settings).await.unwrap();
    let ask = async |request: RelayRequest| {
        let batch = Batch { v: VERSION, cluster: CLUSTER.to_owned(), requests: vec![request] };
        relay.batch(batch, Duration::ZERO).await.unwrap().responses.remove(0)
    };
    let name = TaskId { unit: "unit".to_owned(), attempt: 1 };
    // The record is created, and then its object cannot be read.
    let begun = {
        let RelayRequest::Ensure(mut request) = ensure(&name, "first") else { panic!("not a start") };
        relay.inner.validate(&mut request).await.unwrap_or_else(|_| panic!("refused"));
        server.fails.store(true, SeqCst);
        relay.inner.begin(&request, now_ms()).await
    };
    assert!(begun.is_err());
    let again = ask(ensure(&name, "second")).await;
    assert!(matches!(&again, RelayResponse::Unavailable(why) if why.contains("as planned")), "{again:?}");
    server.fails.store(false, SeqCst);
    let cancelled = ask(RelayRequest::Cancel { task: name, grace_ms: 0 }).await;
    assert!(matches!(cancelled, RelayResponse::State(TaskState::Tombstoned)), "{cancelled:?}");
}
