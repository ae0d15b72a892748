//! An API server for unit tests. It lists records and answers no request for a single one.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ebb_kube::podspec::ClusterPolicy;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::{Relay, RelaySettings};

#[derive(Default)]
pub(crate) struct TestApi {
    /// The Secrets in the namespace of the relay.
    pub(crate) secrets: Mutex<Vec<Value>>,
    /// The number of requests for single objects, which get no response.
    pub(crate) unanswered: AtomicUsize,
}

impl TestApi {
    /// Opens a relay that uses the server.
    pub(crate) async fn relay(self: &Arc<Self>) -> Relay {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, path) = (Arc::clone(&server), request.uri().path().to_owned());
            async move {
                let body = server.respond(&path).await;
                Ok::<_, kube::Error>(Response::new(Body::from(body.to_string().into_bytes())))
            }
        });
        let settings = RelaySettings::new("relay", "units", "http://127.0.0.1:1");
        Relay::open(Client::new(service, "relay"), settings, ClusterPolicy::default()).await.unwrap()
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
