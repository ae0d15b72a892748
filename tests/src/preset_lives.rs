//! The life of a target at senders that have a preset: a sender for each scheme, with the events that the test of the
//! presets in `shared/documents` reads.

use std::collections::BTreeMap;

use ebb_documents::model::VerifyDoc;
use ebb_documents::presets::preset;
use ebb_flow::source::delivery::scheme;
use ebb_protocol::source_signature::sign;
use ebb_protocol::{MessageId, SourceResponse, SourceResult, TargetPhase};
use serde::Deserialize;
use serde_json::Value;

use crate::api_client::{ApiClient, ApiReply};
use crate::platform::now;
use crate::receiver::TestReceiver;
use crate::wait::until;

pub const SENDERS: &str = include_str!("../../shared/documents/tests/preset_events.yaml");
/// The value of `note` that an update changes to [`CHANGED`].
pub const FIRST: &str = "ab12";
pub const CHANGED: &str = "cd34";

#[derive(Deserialize)]
struct RecordedSender {
    secret: Option<String>,
    note: Option<String>,
    body: Value,
    events: BTreeMap<String, Vec<RecordedEvent>>,
}

#[derive(Deserialize)]
struct RecordedEvent {
    #[serde(default)]
    with: BTreeMap<String, Value>,
    result: Option<SourceResult>,
}

#[derive(Clone, Debug)]
pub struct PresetLife {
    pub preset: String,
    /// `KIND/NAME`.
    pub target: String,
    /// The expression whose value an update changes.
    pub note: String,
    secret: String,
    events: Vec<(Value, SourceResult)>,
}

pub fn lives() -> Vec<PresetLife> {
    let senders: BTreeMap<String, RecordedSender> = serde_saphyr::from_str(SENDERS).unwrap();
    let life = |(preset, sender): (String, RecordedSender)| {
        let (secret, note) = (sender.secret?, sender.note?);
        let (mut target, mut events) = (None, Vec::new());
        for (effect, recorded) in sender.events {
            for RecordedEvent { with, result } in recorded {
                let Some(result) = result else { continue };
                let mut body = sender.body.clone();
                for (path, value) in with {
                    *path.split('.').fold(&mut body, |part, key| &mut part[key]) = value;
                }
                target = effect.split(' ').nth(1).map(str::to_owned);
                events.push((body, result));
            }
        }
        Some(PresetLife { preset, target: target?, note, secret, events })
    };
    senders.into_iter().filter_map(life).collect()
}

/// Returns one life of each kind: a token in a header, a secret in the URL without updates, and a signed body.
pub fn samples() -> impl Iterator<Item = PresetLife> {
    lives().into_iter().filter(|life| ["argocd", "coder", "github"].contains(&life.preset.as_str()))
}

pub fn secrets() -> Value {
    let mut secrets = BTreeMap::<String, Vec<String>>::new();
    for life in lives() {
        secrets.entry(life.verify().secret().value.clone()).or_default().push(life.secret);
    }
    secrets.into_iter().map(|(name, values)| (name, values.join(" "))).collect()
}

impl PresetLife {
    pub fn verify(&self) -> VerifyDoc {
        preset(&self.preset).and_then(|preset| preset.document().verify).unwrap()
    }

    /// Returns the name of the target, without its kind.
    pub fn name(&self) -> &str {
        self.target.split_once('/').map_or(&self.target, |(_, name)| name)
    }

    /// Returns the requests of the target's units, in their order, each with its note.
    pub fn requests(&self, receiver: &TestReceiver) -> Vec<String> {
        let calls = receiver.all().into_iter().filter(|call| call.body["target"] == self.name());
        calls.map(|call| format!("{} {}", call.line, call.body["note"].as_str().unwrap_or_default())).collect()
    }

    /// Returns true if the sender has an event that changes `note`.
    pub fn is_changed(&self) -> bool {
        self.events.iter().any(|(_, result)| *result == SourceResult::Updating)
    }

    /// Returns the source that `ebb source new` prints for the preset, with these resources.
    pub fn source(&self, resources: &str) -> String {
        let starter = preset(&self.preset).unwrap().starter(&self.preset);
        let source = starter.replace("  resources: {}\n", &format!("  resources: {resources}\n"));
        assert_ne!(source, starter);
        source
    }

    /// Stores a source, and sends each event with another secret, with the right one, and again.
    pub async fn live(&self, server: &ApiClient, source: &str) {
        server.put("Source", &self.preset, source).await.is(200);
        // `AAAA` would append zeros, which change no HMAC.
        let other_secret = format!("{}BBBB", self.secret);
        let state = async || {
            let target = server.target(&self.target).await;
            target.map(|it| (it.info.uid, it.info.generation, it.info.phase, it.decided_by))
        };
        for (number, (event, result)) in self.events.iter().enumerate() {
            let (place, delivery) = (format!("event {number} of {}", self.preset), format!("delivery-{number}"));
            let sent = async |status: u16| {
                let reply = self.send(server, &self.secret, &delivery, event).await;
                assert_eq!(reply.status, status, "{place}: {reply:?}");
                reply.json::<SourceResponse>().result
            };
            let before = state().await;
            let refused = self.send(server, &other_secret, &delivery, event).await;
            let code = refused.json::<Value>()["code"].clone();
            assert_eq!((refused.status, code), (401, "invalid-signature".into()), "{place}: {refused:?}");
            assert_eq!(state().await, before, "{place} with another secret");
            assert_eq!(sent(202).await, *result, "{place}");
            let phase = if *result == SourceResult::Stopping { TargetPhase::Gone } else { TargetPhase::Ready };
            let reached = async || server.target(&self.target).await.filter(|target| target.info.phase == phase);
            until(&format!("{} to be {phase:?} after {place}", self.target), reached).await;
            let after = state().await;
            assert_eq!(sent(200).await, SourceResult::Repeated, "{place}");
            assert_eq!(state().await, after, "{place}, repeated");
        }
    }

    async fn send(&self, server: &ApiClient, secret: &str, delivery: &str, body: &Value) -> ApiReply {
        let body = body.to_string().into_bytes();
        let id = MessageId::parse(delivery).unwrap();
        let proof = sign(&scheme(&self.verify()), secret, &id, &body, now()).unwrap();
        let query = proof.url_secret.map(|secret| format!("?secret={}", secret.as_str())).unwrap_or_default();
        let mut request = server.http.post(format!("{}/v1/sources/{}{query}", server.url, self.preset));
        for (name, value) in proof.headers {
            // Svix sends the events of Daytona.
            let name = if self.preset == "daytona" { name.replace("webhook-", "svix-") } else { name };
            request = request.header(name, value);
        }
        // Coder has the ID of the delivery in a header of its own.
        request = request.header("x-message-id", delivery).header("content-type", "application/json");
        ApiReply::to(request.body(body)).await
    }
}
