//! The control plane stores sensitive outputs of webhooks and literals of sensitive params encrypted. Only their recipients
//! and callers with `targets:reveal` get them.

use std::fs;

use super::secrets::{CALLED, GIVEN, MADE, assert_not_leaked, contains_canary, files};
use crate::harness::*;
use crate::request_table;

const PLUGIN: &str = include_str!("documents/encrypted.yaml");

/// Returns an event of a sandbox of [`PLUGIN`] that gives it the param `token`.
fn sandbox_with_token(name: &str) -> LifecycleData {
    let env = "env: {DSN: \"${resources.r.outputs.dsn}\"}";
    let rest = format!("resources: {{r: {{plugin: seals, params: {{token: {GIVEN}}}}}}}\n{env}\n");
    ebb_tests::platform::sandbox(name, &format!("{name}-uid"), &rest)
}

/// Begins a sandbox of [`PLUGIN`] and waits until it is ready.
async fn ready(harness: &Harness, name: &str) {
    harness.receiver.always("POST /make", json!({"dsn": MADE, "echo": format!("got {GIVEN}")}));
    harness.receiver.always("POST /later", 202);
    harness.publish("seals@1.0.0", PLUGIN).await;
    harness.lifecycle(LifecycleType::Created, &sandbox_with_token(name)).await.is(202);
    let call = harness.receiver.call("POST /later", 1).await;
    let result = json!({"status": "succeeded", "outputs": {"key": CALLED}});
    harness.callback(call.token(), &result).await.is(204);
    harness.phase(name, TargetPhase::Ready).await;
}

/// Recipients, and callers with `targets:reveal`.
pub(crate) async fn only_recipients_get_encrypted_values() {
    let harness = Harness::new().await;
    let name = "seals-a-canary";
    ready(&harness, name).await;
    assert_eq!(harness.receiver.calls("POST /make")[0].body["token"], GIVEN);
    assert_eq!(harness.log(name, Hook::PreStart, "use", "").await.body, "used\ndsn=***\n***");
    let (table, names) = ("security/encrypted_values.yaml", [("MADE", MADE), ("CALLED", CALLED)]);
    request_table::play(&harness, table, "only_recipients_get_encrypted_values", &names).await;
    let log = fs::read_to_string(crate::log_file()).unwrap();
    let parts = ["a caller reads sensitive values", "reveals-5812", name, "r.dsn", "env.DSN"];
    assert!(log.lines().any(|line| parts.iter().all(|part| line.contains(part))), "no line has all of {parts:?}");
    harness.tear_down(name).await;
    harness.notification_accepted(name).await;
    assert_eq!(harness.receiver.calls("POST /drop")[0].body, json!({ "dsn": MADE }));
    assert_not_leaked(&harness, name, "seals").await;
    for file in files(&harness.folder().join("state/secrets")) {
        assert!(!contains_canary(&fs::read(&file).unwrap_or_default()), "an input remains in {file:?}");
    }
}

/// Replaces the root secrets of units and restarts the stack.
async fn rotate(harness: &mut Harness, secrets: &str) {
    let file = harness.folder().join("state/keys.json");
    let mut keys: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    keys["unitSecret"] = secrets.into();
    fs::write(&file, keys.to_string()).unwrap();
    harness.restart().await;
}

/// A value stays readable while the root secret that encrypted it is in the list, and an undo waits for it.
pub(crate) async fn values_of_a_rotated_root_secret() {
    let mut harness = Harness::new().await;
    let name = "rotates-a-canary";
    ready(&harness, name).await;
    let first = harness.stack().env().settings.unit_keys.first().reveal();
    let second = WebhookSecret::from_bytes(&[7; 32]).unwrap().reveal();
    // The same document changes nothing.
    rotate(&mut harness, &format!("{} {}", second.as_str(), first.as_str())).await;
    let again = LifecycleData { generation: 2, ..sandbox_with_token(name) };
    let response: Value = harness.lifecycle(LifecycleType::Updated, &again).await.is(202).json();
    assert_eq!((&response["result"], harness.receiver.count("POST /make")), (&json!("unchanged"), 1));
    let revealed = format!("/v1/targets/sandbox/{name}?reveal=true");
    let shown: Value = harness.get(&revealed).await.is(200).json();
    assert_eq!(shown["env"]["DSN"], json!({ "value": MADE }), "{shown}");
    // Without the first secret, nothing can be read or undone.
    rotate(&mut harness, second.as_str()).await;
    let shown: Value = harness.get(&revealed).await.is(200).json();
    assert_eq!(shown["env"]["DSN"], json!({"sensitive": true}), "{shown}");
    assert!(shown["outputsError"].as_str().unwrap().contains("EBB_UNIT_SECRETS"), "{shown}");
    harness.stuck(name).await;
    let cause = harness.why(name).await.cause.unwrap();
    assert_eq!(cause.unit, "r/drop");
    assert!(cause.reason.message.contains("the root secret that encrypted it is missing"), "{:?}", cause.reason);
    assert_eq!(harness.receiver.count("POST /drop"), 0);
    // The undo is retried when the secret is back.
    rotate(&mut harness, &format!("{} {}", second.as_str(), first.as_str())).await;
    harness.request(Method::POST, &format!("/v1/targets/sandbox/{name}/retry"), None).await.is(202);
    harness.phase(name, TargetPhase::Gone).await;
    assert_eq!(harness.receiver.calls("POST /drop")[0].body, json!({ "dsn": MADE }));
    assert_not_leaked(&harness, name, "seals").await;
}
