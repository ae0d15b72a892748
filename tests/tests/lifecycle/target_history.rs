//! The history of a target: who changed it, when and why.

use ebb_protocol::api::{AwaitedParty, RetryResponse};
use ebb_protocol::history::HistoryPage;

use crate::harness::*;

async fn history(harness: &Harness) -> HistoryPage {
    harness.get("/v1/targets/sandbox/a/history").await.is(200).json()
}

/// A resource that an update with another size replaces.
const SIZED: &str = r#"
params: {size: {type: integer, default: 1}}
preStart:
  make: {webhook: {url: "RECEIVER/make", body: {size: "${params.size}"}}, retry: {attempts: 1}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}, retry: {attempts: 1}}
"#;

/// The history only grows, in the order of time. The state of the target is always the present one: its phase, that of its
/// resource, the first cause and the waits agree after each change.
pub(crate) async fn the_history_is_in_order_and_the_state_is_current() {
    let harness = Harness::new().await;
    harness.publish("sized@1.0.0", SIZED).await;
    let mut seen: Vec<String> = Vec::new();
    let mut last_since = String::new();
    for (request, make, drop, phase, change) in [
        ("size 1", 200_u16, 200_u16, TargetPhase::Ready, "created"),
        ("size 2", 200, 200, TargetPhase::Ready, "updated"),
        ("size 3", 400, 200, TargetPhase::Failed, "updated"),
        ("retry", 200, 200, TargetPhase::Ready, "retried"),
        ("delete", 200, 400, TargetPhase::Stuck, "deleted"),
        ("retry", 200, 200, TargetPhase::Gone, "retried"),
    ] {
        harness.receiver.always("POST /make", make);
        harness.receiver.always("POST /drop", drop);
        match request.split_once(' ') {
            Some((_, size)) => {
                let rest = format!("resources: {{r: {{plugin: sized, params: {{size: {size}}}}}}}\n");
                harness.post("/v1/targets", request_for("a", &rest)).await.is(202);
                harness.generation("a", size.parse().unwrap()).await;
            }
            None if request == "delete" => {
                harness.request(Method::DELETE, "/v1/targets/sandbox/a", None).await.is(202);
            }
            None => {
                let uid = harness.target("a").await.unwrap().info.uid;
                let retried: RetryResponse =
                    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202).json();
                assert_eq!(retried.uid, Some(uid));
            }
        }
        let target = harness.phase("a", phase).await;
        let has_cause = matches!(phase, TargetPhase::Failed | TargetPhase::Stuck);
        assert_eq!(target.resources["r"].phase, phase, "{request}: {target:#?}");
        assert_eq!(target.info.first_cause.is_some(), has_cause, "{request}: {target:#?}");
        // A notification can be on its way.
        let waits = target.info.waits.iter().filter(|wait| wait.awaits != AwaitedParty::Platform);
        let waits = waits.map(|wait| (wait.awaits, wait.since.as_ref()));
        let operator = (AwaitedParty::Operator, Some(&target.info.since));
        assert_eq!(waits.collect::<Vec<_>>(), Vec::from_iter((phase == TargetPhase::Stuck).then_some(operator)));
        let why = harness.why("a").await;
        assert_eq!((why.phase, why.cause.is_some()), (phase, has_cause), "{request}: {why:#?}");
        assert!(target.info.since > last_since, "{request}: {target:#?}");

        let entries = history(&harness).await.entries;
        let newest = &entries[0];
        assert_eq!((newest.change.words(), entries.len()), (change, seen.len() + 1), "{request}: {entries:#?}");
        assert!(newest.time >= last_since && newest.time <= target.info.since, "{request}: {entries:#?}");
        assert!(entries[1..].iter().map(|entry| &entry.id).eq(seen.iter().rev()), "{request}: {entries:#?}");
        seen.push(newest.id.clone());
        last_since = target.info.since;
    }
}
