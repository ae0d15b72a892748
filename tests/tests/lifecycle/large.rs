//! Runs whose state takes more than one item of the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebb_engine::Hook;
use ebb_protocol::api::TargetState;
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{CannedReply, LifecycleHarness, eventually, plugin};

/// `first`, then `width` units that read it, then `last`, which reads two of them and waits for all.
fn document(width: usize) -> String {
    let mut text = String::from(
        "preStart:\n  first:\n    webhook: {url: \"RECEIVER/first\"}\n    outputs: {id: {value: \"${response.body.id}\"}}\n",
    );
    for n in 0..width {
        writeln!(
            text,
            "  u{n}:\n    webhook: {{url: \"RECEIVER/u\", body: {{n: {n}, id: \"${{units.first.outputs.id}}\"}}}}\n    outputs: {{n: {{value: \"${{response.body.n}}\"}}}}"
        )
        .unwrap();
    }
    let all: Vec<String> = (0..width).map(|n| format!("u{n}")).collect();
    writeln!(
        text,
        "  last:\n    after: [{}]\n    webhook: {{url: \"RECEIVER/last\", body: {{low: \"${{units.u0.outputs.n}}\", high: \"${{units.u{}.outputs.n}}\"}}}}",
        all.join(", "),
        width - 1
    )
    .unwrap();
    text.push_str("postStop:\n");
    for n in 0..width {
        writeln!(
            text,
            "  drop-u{n}: {{undoes: u{n}, webhook: {{url: \"RECEIVER/drop\", body: {{n: \"${{units.u{n}.outputs.n}}\"}}}}}}"
        )
        .unwrap();
    }
    plugin("wide@1.0.0", &text)
}

/// How often each number came.
fn numbers(harness: &LifecycleHarness, what: &str) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for call in harness.receiver.calls(what) {
        *found.entry(call.body["n"].as_u64().unwrap()).or_default() += 1;
    }
    found
}

/// All answer later, and all at the same time.
pub(crate) async fn out_and_in_over_three_hundred() {
    const WIDTH: usize = 300;
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /first", |_, _| CannedReply::ok(json!({"id": "f"})));
    harness.receiver.on("POST /u", |_, _| CannedReply::status(202));
    harness.publish(&document(WIDTH)).await;
    harness.create("a", "wide").await;
    eventually("all are asked", async || (numbers(&harness, "POST /u").len() == WIDTH).then_some(())).await;
    assert!(harness.receiver.calls("POST /last").is_empty());
    let mut sends = JoinSet::new();
    for call in harness.receiver.calls("POST /u") {
        let request = harness.http.post(harness.url("/v1/callbacks")).bearer_auth(call.token());
        let body = json!({"status": "succeeded", "outputs": {"n": call.body["n"]}});
        let request = request.header("content-type", "application/json").body(body.to_string());
        sends.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    while let Some(status) = sends.join_next().await {
        assert_eq!(status.unwrap(), 204);
    }
    ends_well(&harness, WIDTH).await;
}

/// All answer at once.
pub(crate) async fn out_and_in_over_six_hundred() {
    const WIDTH: usize = 600;
    let harness = LifecycleHarness::new().await;
    harness.receiver.on("POST /first", |_, _| CannedReply::ok(json!({"id": "f"})));
    harness.receiver.on("POST /u", |call, _| CannedReply::ok(json!({"n": call.body["n"]})));
    harness.publish(&document(WIDTH)).await;
    harness.create("a", "wide").await;
    ends_well(&harness, WIDTH).await;
}

async fn ends_well(harness: &LifecycleHarness, width: usize) {
    harness.phase("a", TargetState::Ready).await;
    let last = harness.receiver.calls("POST /last");
    assert_eq!(last[0].body, json!({"low": 0, "high": width - 1}));
    let stored = harness.state("a", Hook::PreStart).await;
    assert!(stored.heads.len() > 1, "several items");
    let done: usize = stored.heads.iter().map(|head| head.head.done.len()).sum();
    assert_eq!(done, width + 2);
    let asked = numbers(harness, "POST /u");
    assert_eq!(asked.len(), width);
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(numbers(harness, "POST /drop").len(), width);
    harness.told("a", &["ready", "gone"]).await;
}
