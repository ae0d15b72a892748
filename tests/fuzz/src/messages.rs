//! Messages from other systems: lifecycle webhooks, callbacks, responses of relays.

use ebb_engine::Timestamp;
use ebb_protocol::callback::Callback;
use ebb_protocol::cloudevents;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::relay::{EnsureTask, TaskState};
use ebb_protocol::sign::{self, MessageId, WebhookKeys, WebhookSecret};
use ebb_protocol::value::{Outputs, UnitValue};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::InputParts;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Runs a lifecycle webhook. The first part has one header per line, the second is the body.
pub(crate) fn events(parts: &InputParts<'_>) {
    let mut headers = HeaderMap::new();
    for line in parts.get(0).lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let (name, value) = (HeaderName::try_from(name.trim()), HeaderValue::try_from(value.trim()));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let body = parts.get(1).as_bytes();
    let secret = WebhookSecret::from_bytes(&[7; 32]).expect("32 bytes are a secret");
    let keys = WebhookKeys::from(secret.clone());
    // A forged signature must not verify.
    if let Ok(id) = sign::verify(&keys, &headers, body, NOW) {
        panic!("forged: {id}");
    }
    match cloudevents::parse(&headers, body) {
        Ok(event) => {
            event.data.validate().expect("it was checked");
            assert!(!event.id.is_empty());
        }
        Err(error) => assert!((400..500).contains(&error.status()) && !error.to_string().is_empty()),
    }
    if let Some(id) = headers.get(sign::WEBHOOK_ID).and_then(|id| MessageId::parse(id.to_str().ok()?).ok()) {
        for (name, value) in sign::sign(&secret, &id, NOW, body) {
            let value = HeaderValue::try_from(value).expect("a signature fits into a header");
            headers.insert(HeaderName::from_static(name), value);
        }
        assert_eq!(sign::verify(&keys, &headers, body, NOW), Ok(id));
        let other = [body, b" "].concat();
        assert!(sign::verify(&keys, &headers, &other, NOW).is_err());
    }
}

/// Runs a callback, or any other message in JSON; the first part is its body.
pub(crate) fn callbacks(parts: &InputParts<'_>) {
    let text = parts.get(0);
    if let Some(callback) = round_trip::<Callback>(text) {
        for value in callback.outputs.into_values().map(UnitValue::Json) {
            assert_eq!(value.to_bytes().map(|bytes| bytes.len()), Some(value.size()));
        }
    }
    round_trip::<Outputs>(text);
    round_trip::<EnsureTask>(text);
    round_trip::<TaskState>(text);
    if let Some(Err(invalid)) = round_trip::<LifecycleData>(text).map(|lifecycle| lifecycle.validate()) {
        assert!(!invalid.to_string().is_empty());
    }
    assert_eq!(UnitValue::from_bytes(text.as_bytes().to_vec()).to_bytes(), Some(text.as_bytes().to_vec()));
}

/// Checks that a message survives writing and reading.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(text: &str) -> Option<T> {
    let read: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&read).unwrap_or_else(|error| panic!("{read:?}: {error}"));
    let again: T = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(again, read);
    Some(read)
}
