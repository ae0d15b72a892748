//! Only the relay stores sensitive values of scripts. The table, the bucket, logs, responses, events and requests have
//! none.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
pub(crate) use ebb_tests::stored_bytes::{contains, files};

use crate::harness::*;

/// Values of a param, of an output and of a callback. The scripts compose them, so that their stored text does not contain
/// them.
pub(crate) const GIVEN: &str = "canary-4711-given";
pub(crate) const MADE: &str = "canary-4711-made";
pub(crate) const CALLED: &str = "canary-4711-called";

fn document(name: &str) -> LifecycleData {
    let rest = "resources: {r: {plugin: keeps, params: {admin: {secret: admin, key: dsn}}}}\nenv: {DSN: \"${resources.r.outputs.dsn}\"}\n";
    ebb_tests::platform::sandbox(name, &format!("{name}-uid"), rest)
}

/// Returns true if a canary is in `bytes` as text or in base64, also as the password of `ebb`.
pub(crate) fn contains_canary(bytes: &[u8]) -> bool {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD_NO_PAD.encode(text);
    let has = |text: &&str| contains(bytes, text.as_bytes()) || contains(bytes, encoded(text).as_bytes());
    [GIVEN, MADE, CALLED, "ebb:canary-4711-given"].iter().any(has)
}

/// Returns all stored files except the secrets of the relay and those that sources and connections name.
pub(crate) fn stored(state: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let kept = ["secrets", "secrets.json"].map(|name| state.join(name));
    let others = files(state).into_iter().filter(|file| !kept.iter().any(|kept| file.starts_with(kept)));
    others.filter_map(|file| fs::read(&file).ok().map(|bytes| (file, bytes))).collect()
}

impl Harness {
    /// Returns true if a stored file has a text, except the secrets of the relay and those of sources and connections.
    pub(crate) fn stores(&self, text: &str) -> bool {
        stored(&self.folder().join("state")).values().any(|bytes| contains(bytes, text.as_bytes()))
    }
}

/// Returns the responses of all routes about a sandbox.
pub(crate) async fn api_responses(harness: &Harness, name: &str) -> Vec<(String, String)> {
    let target = harness.target(name).await.unwrap();
    let mut paths = vec![
        "/v1/targets".to_owned(),
        format!("/v1/targets/sandbox/{name}"),
        format!("/v1/targets/sandbox/{name}/why"),
        "/v1/plugins".to_owned(),
        "/v1/plugins/keeps".to_owned(),
        "/v1/plugins/keeps/versions/1.0.0".to_owned(),
    ];
    for run in &target.runs {
        paths.push(format!("/v1/runs/{}", run.id));
        for part in ["logs", "rendered"] {
            paths.extend(run.units.iter().map(|unit| format!("/v1/runs/{}/{part}?unit={}", run.id, unit.key)));
        }
    }
    let mut responses = Vec::new();
    for path in paths {
        responses.push((path.clone(), harness.get(&path).await.body));
    }
    let preview = json!({ "document": document("preview").document });
    responses.push(("preview".to_owned(), harness.post("/v1/plans", preview).await.body));
    responses
}

/// Checks that no secret is in the state outside the secrets, in a response or in the log, and no canary in a notification.
/// `marker` is a stored text.
pub(crate) async fn assert_has_none(harness: &Harness, name: &str, marker: &str, has_secret: impl Fn(&[u8]) -> bool) {
    let state = harness.folder().join("state");
    let stored = stored(&state);
    assert!(stored.keys().any(|file| file.starts_with(state.join("table"))), "{:?}", stored.keys());
    assert!(stored.values().any(|bytes| contains(bytes, marker.as_bytes())), "the search does not find {marker}");
    let leaks: Vec<_> = stored.iter().filter(|(_, bytes)| has_secret(bytes)).map(|(file, _)| file).collect();
    assert!(leaks.is_empty(), "a sensitive value is in {leaks:?}");
    for (path, body) in api_responses(harness, name).await {
        assert!(!has_secret(body.as_bytes()), "{path}: {body}");
    }
    assert_no_event_contains_it(harness);
    let log = fs::read(crate::log_file()).unwrap();
    let run = run_id(name, Hook::PreStart).to_string();
    assert!(contains(&log, run.as_bytes()), "the log has no lines about {name}");
    assert!(!has_secret(&log), "a sensitive value is in the log");
}

pub(crate) fn assert_no_event_contains_it(harness: &Harness) {
    for event in harness.notifications() {
        assert!(!contains_canary(event.to_string().as_bytes()), "{event}");
    }
}
