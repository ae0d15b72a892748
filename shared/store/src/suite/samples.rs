//! Items with every attribute, for the tests of the table and for the snapshot of stored items. Rows of these tests.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{ClusterItem, SessionItem, SourceRejections, TargetHead, TokenItem};
use ebb_protocol::{AttemptResult, OutputStorage, RejectedEvent, Timestamp, digest};

/// The time of each sample.
pub const AT: Timestamp = Timestamp(1_800_000_000_000);

pub(super) fn sample<T: DeserializeOwned>(name: &str) -> T {
    let mut samples: Value = serde_json::from_str(include_str!("samples.json")).unwrap();
    serde_json::from_value(samples[name].take()).unwrap()
}

/// Returns a target with every attribute.
pub fn full_target() -> TargetHead {
    let target = TargetHead { due: Some(AT), version: 1, ..sample("target") };
    let attributes = json!(target);
    assert!(attributes.as_object().unwrap().values().all(|value| !value.is_null()), "a sample of it: {attributes}");
    target
}

/// Returns a failure with every attribute.
pub fn full_result() -> AttemptResult {
    AttemptResult {
        outputs: OutputStorage::Inline(sample("outputs")),
        evidence: Some(sample("evidence")),
        log: true,
        digest: "first".into(),
        ..sample("result")
    }
}

/// Returns a registered cluster with every attribute.
pub fn full_cluster() -> ClusterItem {
    ClusterItem { version: 1, ..sample("cluster") }
}

pub fn token() -> TokenItem {
    TokenItem { info: sample("tokenInfo"), digest: digest(b"token"), revoked: None }
}

/// Returns the session of a named token.
pub fn session() -> SessionItem {
    sample("session")
}

/// Returns the rejected events of a source with these deliveries.
pub fn rejections(source: &str, deliveries: &[&str], version: u64) -> SourceRejections {
    let event = |delivery: &&str| RejectedEvent { delivery: (*delivery).to_owned(), ..sample("rejectedEvent") };
    SourceRejections { source: source.to_owned(), events: deliveries.iter().map(event).collect(), version }
}
