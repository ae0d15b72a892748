//! The service of the webhooks example and of the mixed one: it believes only what is signed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use ebb_protocol::sign::{WebhookKeys, WebhookSecret};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use crate::receiver::{CannedReply, ReceivedCall, TestReceiver};

/// Paths that scripts request; they sign nothing.
const OF_SCRIPTS: [&str; 2] = ["/goods/", "/openings"];

/// The service, listening for as long as the test's runtime lives.
#[derive(Clone)]
pub(crate) struct ExampleService {
    receiver: TestReceiver,
}

impl ExampleService {
    /// Starts it for the webhooks example. `keys` is the file with the secret from which the secrets of plugins are
    /// derived; it is read when a request comes.
    pub(crate) async fn start(keys: PathBuf) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), keys, "tenant-services").await
    }

    /// Starts it on all addresses of this machine, for the mixed example.
    pub(crate) async fn start_everywhere(keys: PathBuf) -> Self {
        Self::start_on(Ipv4Addr::UNSPECIFIED.into(), keys, "shop").await
    }

    async fn start_on(address: IpAddr, keys: PathBuf, plugin: &'static str) -> Self {
        let verify = move |call: &ReceivedCall, body: &[u8]| {
            let is_signed = !OF_SCRIPTS.iter().any(|path| call.path().starts_with(path));
            if is_signed { believe(&keys, plugin, call, body) } else { Ok(()) }
        };
        let receiver = TestReceiver::start_at(address, verify).await;
        receiver.always("*", 404);
        receiver.always("DELETE *", 204);
        receiver.always("POST /goods/*", 200);
        receiver.always("POST /openings", 200);
        receiver.always("POST /tenants", json!({"id": "tenant-7"}));
        let (again, made) = (CannedReply::status(202).after(1), CannedReply::ok(json!({"id": "certificate-7"})));
        receiver.replies("POST /certificates", &[again.clone(), again, made]);
        receiver.on("POST /indexes", |_, _| {
            let made = json!({"status": "succeeded", "outputs": {"endpoint": "index-7.search.test:9200"}});
            CannedReply::status(202).then(async { vec![made] })
        });
        Self { receiver }
    }

    pub(crate) fn url(&self) -> &str {
        self.receiver.url()
    }

    /// Returns its URL for those who reach this machine at `host`.
    pub(crate) fn url_at(&self, host: &str) -> String {
        self.receiver.url().replace("127.0.0.1", host)
    }

    /// Forgets all requests.
    pub(crate) fn forget(&self) {
        self.receiver.forget();
    }

    /// Returns how many different things were requested at each path. A request that comes again has the key of the first
    /// one, and a receiver makes nothing for it.
    pub(crate) fn made(&self) -> Vec<(String, usize)> {
        let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in self.requests().iter().filter(|request| request.line.starts_with("POST ")) {
            let key = request.header("idempotency-key").to_owned();
            keys.entry(request.path().to_owned()).or_default().insert(key);
        }
        keys.into_iter().map(|(path, keys)| (path, keys.len())).collect()
    }

    /// Checks that one thing of each kind of the webhooks example was made.
    pub(crate) fn each_was_made_once(&self) {
        let kinds = ["/certificates", "/indexes", "/tenants"];
        assert_eq!(self.made(), kinds.map(|kind| (kind.to_owned(), 1)));
    }

    /// Returns the kinds of things of which one is left: it was requested after it was last deleted.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut there = BTreeSet::new();
        for request in self.requests() {
            let kind = request.path().split('/').nth(1).unwrap_or_default().to_owned();
            match request.line.starts_with("POST ") {
                true => there.insert(kind),
                false => there.remove(&kind),
            };
        }
        there.into_iter().collect()
    }

    /// Returns the requests so far; none was refused.
    pub(crate) fn requests(&self) -> Vec<ReceivedCall> {
        assert_eq!(self.receiver.refused(), [""; 0]);
        self.receiver.all()
    }
}

/// Verifies a request as a receiver does that knows nothing of Ebb but the secret.
fn believe(keys: &PathBuf, plugin: &str, call: &ReceivedCall, body: &[u8]) -> Result<(), String> {
    let keys: Value = serde_json::from_slice(&std::fs::read(keys).unwrap()).unwrap();
    let keys: WebhookKeys = keys["unitSecret"].as_str().unwrap().parse::<WebhookSecret>().unwrap().into();
    let webhook = Webhook::new(&keys.for_plugin(plugin).reveal()[0]).map_err(|error| error.to_string())?;
    webhook.verify(body, &call.headers).map_err(|error| error.to_string())
}
