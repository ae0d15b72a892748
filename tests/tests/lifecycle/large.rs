//! Runs whose state takes more than one item of the table.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use crate::harness::*;

/// `first`, then `width` units that read it, then `last`, which reads two of them and waits for all.
fn document(width: usize) -> String {
    const FIRST: &str = r#"preStart:
  first: {webhook: {url: "RECEIVER/first"}, outputs: {id: {value: "${response.body.id}"}}}
"#;
    const UNIT: &str = r#"  uN:
    webhook: {url: "RECEIVER/u", body: {n: N, id: "${units.first.outputs.id}"}}
    outputs: {n: {value: "${response.body.n}"}}
"#;
    const LAST: &str = r#"  last:
    after: [ALL]
    webhook: {url: "RECEIVER/last", body: {low: "${units.u0.outputs.n}", high: "${units.uN.outputs.n}"}}
postStop:
"#;
    const DROP: &str = r#"  drop-uN: {undoes: uN, webhook: {url: "RECEIVER/drop", body: {n: "${units.uN.outputs.n}"}}}
"#;
    let each = |text: &str| {
        (0..width).map(|n| text.replace("uN", &format!("u{n}")).replace("n: N", &format!("n: {n}"))).collect::<String>()
    };
    let all: Vec<String> = (0..width).map(|n| format!("u{n}")).collect();
    let last = LAST.replace("ALL", &all.join(", ")).replace("uN", &format!("u{}", width - 1));
    [FIRST.to_owned(), each(UNIT), last, each(DROP)].concat()
}

/// How often each number came.
fn numbers(harness: &Harness, what: &str) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for call in harness.receiver.calls(what) {
        *found.entry(call.body["n"].as_u64().unwrap()).or_default() += 1;
    }
    found
}

/// All answer later, and all at the same time.
pub(crate) async fn out_and_in_over_three_hundred() {
    const WIDTH: usize = 300;
    let harness = Harness::new().await;
    harness.receiver.always("POST /first", json!({"id": "f"}));
    harness.receiver.always("POST /u", 202);
    harness.begin("a", "wide", &document(WIDTH)).await;
    until("all are asked", async || (numbers(&harness, "POST /u").len() == WIDTH).then_some(())).await;
    assert_eq!(harness.receiver.count("POST /last"), 0);
    let mut sends = JoinSet::new();
    for call in harness.receiver.calls("POST /u") {
        let body = json!({"status": "succeeded", "outputs": {"n": call.body["n"]}});
        let request = harness.http.post(harness.url("/v1/callbacks")).bearer_auth(call.token()).json(&body);
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
    let harness = Harness::new().await;
    harness.receiver.always("POST /first", json!({"id": "f"}));
    harness.receiver.on("POST /u", |call, _| CannedReply::ok(json!({"n": call.body["n"]})));
    harness.begin("a", "wide", &document(WIDTH)).await;
    ends_well(&harness, WIDTH).await;
}

async fn ends_well(harness: &Harness, width: usize) {
    harness.phase("a", TargetState::Ready).await;
    let last = harness.receiver.calls("POST /last");
    assert_eq!(last[0].body, json!({"low": 0, "high": width - 1}));
    let stored = harness.state("a", Hook::PreStart).await;
    assert!(stored.heads.len() > 1, "several items");
    let done: usize = stored.heads.iter().map(|head| head.head.done.len()).sum();
    assert_eq!(done, width + 2);
    let asked = numbers(harness, "POST /u");
    assert_eq!(asked.len(), width);
    harness.tear_down("a").await;
    assert_eq!(numbers(harness, "POST /drop").len(), width);
    harness.told("a", &["ready", "gone"]).await;
}
