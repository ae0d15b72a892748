//! Stuck teardowns that a fixed version of their plugin repairs.

use crate::harness::*;

/// `drop` is accepted, and `last` runs after its callback: in another invocation, which has read the plan before.
const BROKEN: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}, outputs: {id: {value: "${response.body.id}"}}}
postStop:
  drop: {undoes: make, retry: {attempts: 1}, webhook: {url: "RECEIVER/wrong"}}
  last: {after: [drop], webhook: {url: "RECEIVER/late"}}
"#;
const RETRY: &str = "/v1/targets/sandbox/a/retry";

fn fixed() -> String {
    let read = r#"{url: "RECEIVER/drop", body: {id: "${units.make.outputs.id}"}}"#;
    BROKEN.replace(r#"{url: "RECEIVER/wrong"}"#, read).replace("RECEIVER/late", "RECEIVER/last")
}

pub(crate) async fn a_fixed_version_repairs_a_stuck_teardown() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /make", json!({"id": "m1"}));
    harness.receiver.always("POST /wrong", 400);
    harness.run("a", "db", BROKEN, TargetPhase::Ready).await;
    harness.stuck("a").await;
    harness.publish("db@1.0.1", &fixed()).await;
    let next = "if db@1.0.1 fixes the undo: ebb retry a --plugin db@1.0.1";
    assert_eq!(harness.why("a").await.next_steps[0], next);
    // A dry run shows the changes and makes none.
    let dry: Value = harness.post(RETRY, json!({"plugin": "db@1.0.1", "dryRun": true})).await.is(200).json();
    assert_eq!(dry["units"], json!([]));
    let change = &dry["changes"][0];
    assert_eq!(["unit", "from", "to"].map(|key| &change[key]), ["r/drop", "db@1.0.0", "db@1.0.1"]);
    assert!(change["changes"].as_array().unwrap().iter().any(|change| change["path"] == "webhook.url"), "{dry}");
    assert_eq!(dry["changes"].as_array().unwrap().len(), 2, "{dry}");
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.phase, &target.resources["r"].repaired_by), (TargetPhase::Stuck, &None));
    // Versions that do not fit are refused.
    let reads_more =
        BROKEN.replace("/wrong\"", "/drop/${units.make.outputs.name}\"").replace("outputs: {id", "outputs: {name");
    harness.publish("db@3.0.0", &reads_more).await;
    harness.publish("free@1.0.0", BROKEN).await;
    let reads = "reads `units.make.outputs.name`, which the setup of the target did not have";
    for (plugin, status, code, text) in [
        ("db@3.0.0", 422, "not-repairable", reads),
        ("db@9.0.0", 404, "unknown-version", "plugin db@9.0.0 is not published"),
        ("db", 404, "unknown-version", "expected `NAME@VERSION`"),
        ("free@1.0.0", 422, "plugin-unused", "no resource of the target uses plugin \"free\""),
    ] {
        let problem = harness.post(RETRY, json!({ "plugin": plugin })).await.is_problem(status, code);
        assert!(problem.detail.contains(text), "{problem:?}");
    }
    harness.post(RETRY, json!({"dryRun": true})).await.is_problem(422, "missing-field");
    assert_eq!(harness.receiver.count("POST /wrong"), 1);
    harness.post(RETRY, json!({})).await.is(202);
    harness.phase("a", TargetPhase::Stuck).await;
    assert_eq!((harness.receiver.count("POST /wrong"), harness.receiver.count("POST /drop")), (2, 0));
    // The function instances have the former plan in memory, and `last` runs in the invocation of a callback.
    harness.receiver.always("POST /drop", 202);
    let retried: Value = harness.post(RETRY, json!({"plugin": "db@1.0.1"})).await.is(202).json();
    assert_eq!(retried["units"], json!(["r/drop"]));
    let call = harness.receiver.call("POST /drop", 1).await;
    assert_eq!(call.body, json!({"id": "m1"}));
    harness.callback(call.token(), &json!({"status": "succeeded"})).await.is(204);
    let target = harness.phase("a", TargetPhase::Gone).await;
    assert_eq!(target.resources["r"].plugin, "db@1.0.0");
    assert_eq!(target.resources["r"].repaired_by.as_deref(), Some("db@1.0.1"));
    assert_eq!((harness.receiver.count("POST /last"), harness.receiver.count("POST /late")), (1, 0));
    assert_eq!(harness.remaining("a").await, []);
    let notes = harness.why("a").await.notes;
    assert!(notes.contains(&"the teardown of r runs db@1.0.1, which an operator has chosen".to_owned()), "{notes:?}");
    harness.post(RETRY, json!({"plugin": "db@1.0.1"})).await.is_problem(409, "not-stuck");
}
