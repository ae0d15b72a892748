//! The requests of a platform: signed lifecycle webhooks.

use std::time::SystemTime;

use ebb_protocol::{LifecycleData, LifecycleType, MessageId, Timestamp, WebhookSecret, cloudevents, sign};
use reqwest::{Client, RequestBuilder};

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

pub fn http() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

pub fn named(kind: &str, name: &str, rest: &str) -> String {
    format!("apiVersion: ebb.dev/v1\nkind: {kind}\nname: {name}\n{rest}")
}

/// Returns an event of a sandbox. `rest` is the rest of its document.
pub fn sandbox(name: &str, uid: &str, rest: &str) -> LifecycleData {
    LifecycleData {
        kind: "sandbox".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        generation: 1,
        document: Some(named("Sandbox", name, rest)),
        routing_key: None,
        event: None,
    }
}

/// A body and its headers, including the signature.
#[derive(Clone, Debug)]
pub struct SignedRequest {
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl SignedRequest {
    pub fn new(secret: &WebhookSecret, id: &str, time: Timestamp, body: Vec<u8>) -> Self {
        let headers = sign::sign(secret, &MessageId::parse(id).unwrap(), time, &body).to_vec();
        Self { headers, body }
    }

    /// Signs a lifecycle webhook. The same event of an instance has the same id.
    pub fn lifecycle(secret: &WebhookSecret, event_type: LifecycleType, data: &LifecycleData) -> Self {
        let (id, time) = (format!("msg-{}-{}-{event_type:?}", data.name, data.uid), now());
        let (content_type, body) = cloudevents::lifecycle(&id, "urn:tests", event_type, time, data);
        Self::new(secret, &id, time, body).header("content-type", content_type)
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn post(&self, http: &Client, url: &str) -> RequestBuilder {
        let request = http.post(url).body(self.body.clone());
        self.headers.iter().fold(request, |request, (name, value)| request.header(*name, value))
    }
}
