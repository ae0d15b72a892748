//! The service of the example `mixed`. It verifies the signatures of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ebb_protocol::sign::{WebhookKeys, WebhookSecret};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::receiver::{CannedReply, ReceivedCall, TestReceiver};

/// Paths that scripts request without a signature.
const UNSIGNED_PATHS: [&str; 2] = ["/goods/", "/openings"];

/// The service. It listens until the runtime of the test ends.
#[derive(Clone)]
pub(crate) struct ExampleService {
    pub(crate) receiver: TestReceiver,
}

impl ExampleService {
    /// Starts the service. `keys` is the file with the secret from which the secrets of plugins are derived. Each request
    /// reads it.
    pub(crate) async fn start(keys: PathBuf) -> Self {
        let verify = move |call: &ReceivedCall, body: &[u8]| {
            let is_signed = !UNSIGNED_PATHS.iter().any(|path| call.path().starts_with(path));
            if is_signed { verify_signature(&keys, call, body) } else { Ok(()) }
        };
        let receiver = TestReceiver::start_at(Ipv4Addr::UNSPECIFIED.into(), verify).await;
        receiver.always("*", 404);
        receiver.always("DELETE *", 204);
        receiver.always("POST /goods/*", 200);
        receiver.always("POST /openings", 200);
        receiver.always("POST /tenants", json!({"id": "tenant-7"}));
        receiver.on("POST /indexes", |_, _| {
            let callback = json!({"status": "succeeded", "outputs": {"endpoint": "index-7.search.test:9200"}});
            CannedReply::status(202).then(async { vec![callback] })
        });
        Self { receiver }
    }

    /// Returns the number of created objects by path. A repeated request has the idempotency key of the first one and
    /// creates nothing.
    pub(crate) fn created(&self) -> Vec<(String, usize)> {
        let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in self.requests().iter().filter(|request| request.line.starts_with("POST ")) {
            let key = request.header("idempotency-key").to_owned();
            keys.entry(request.path().to_owned()).or_default().insert(key);
        }
        keys.into_iter().map(|(path, keys)| (path, keys.len())).collect()
    }

    /// Returns the kinds with an object that was not deleted after its last creation.
    pub(crate) fn remaining(&self) -> Vec<String> {
        let mut kinds = BTreeSet::new();
        for request in self.requests() {
            let kind = request.path().split('/').nth(1).unwrap_or_default().to_owned();
            match request.line.starts_with("POST ") {
                true => kinds.insert(kind),
                false => kinds.remove(&kind),
            };
        }
        kinds.into_iter().collect()
    }

    /// Returns the requests so far. Panics if the service refused one.
    pub(crate) fn requests(&self) -> Vec<ReceivedCall> {
        assert_eq!(self.receiver.refused(), [""; 0]);
        self.receiver.all()
    }
}

/// Verifies a request with a library of Standard Webhooks and the secret of the plugin.
fn verify_signature(keys: &PathBuf, call: &ReceivedCall, body: &[u8]) -> Result<(), String> {
    let keys: Value = serde_json::from_slice(&std::fs::read(keys).unwrap()).unwrap();
    let keys: WebhookKeys = WebhookSecret::parse(keys["unitSecret"].as_str().unwrap()).unwrap().into();
    let webhook = Webhook::new(&keys.for_plugin("shop").reveal()[0]).map_err(|error| error.to_string())?;
    webhook.verify(body, &call.headers).map_err(|error| error.to_string())
}
