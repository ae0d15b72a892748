//! API responses for targets that wait, have failed or are damaged.

use ebb_protocol::api::TargetPage;

use crate::harness::*;

/// A gone target stays in the list of active targets until the platform has accepted its notification.
pub(crate) async fn a_rejected_notification_is_shown() {
    let harness = Harness::with_platform().await;
    harness.run("a", "simple", SIMPLE, TargetPhase::Ready).await;
    harness.notification_accepted("a").await;
    harness.receiver.always("POST /platform", 503);
    harness.delete("a").await;
    let delivery = until("an attempt to fail", async || harness.target("a").await?.delivery).await;
    assert!(delivery.notification == "gone" && delivery.next.is_some(), "{delivery:?}");
    assert!(delivery.reason.as_ref().is_some_and(|reason| reason.contains("503")), "{delivery:?}");
    let response = harness.lifecycle(LifecycleType::Created, &sandbox("a", "next", "simple")).await;
    assert_eq!(response.is(202).json::<Value>()["result"], "waiting");
    assert_eq!(harness.listed("gone=true").await, [""; 0]);
    let page: TargetPage = harness.get("/v1/targets").await.is(200).json();
    let (why, listed) = (harness.why("a").await, page.targets[0].waits_for.clone().unwrap());
    for text in ["the platform, for the notification gone", "503", "instance next waits for instance"] {
        assert!(why.summary.contains(text) && listed.contains(text), "{text}: {why:?} {listed}");
    }
    assert!(why.next_steps.iter().any(|step| step.contains("platform")), "{why:?}");
    harness.receiver.always("POST /platform", 204);
    harness.instance_is_ready("a", "next").await;
}

const RETRIED: &str = r##"
runners: {shell: {image: "busybox:1.36"}}
preStart:
  make:
    pod: {script: "#!/bin/sh\necho try $EBB_ATTEMPT; exit 7"}
    retry: {attempts: 2, backoff: 5m, maxBackoff: 5m}
"##;

pub(crate) async fn a_unit_between_two_attempts() {
    let harness = Harness::new().await;
    harness.begin("a", "retried", RETRIED).await;
    let unit = harness.unit("a", "preStart", "make", UnitState::Retrying).await;
    assert_eq!(unit.attempt, 2);
    assert_eq!(harness.log("a", Hook::PreStart, "make", "").await.is(200).body, "try 1\n");
    let cause = harness.why("a").await.cause.unwrap();
    assert_eq!((cause.unit.as_str(), cause.attempt, cause.log.join("")), ("r/make", 1, "try 1".to_owned()));
}

/// Returns a plugin whose plan is an object of the bucket, because its text is hard to compress.
fn large() -> String {
    let units = (0..80_u64).map(|number| {
        let text = (1..4).map(|factor| format!("{:016x}", (3 * number + factor).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let text: String = text.collect();
        format!("  make-{number}: {{webhook: {{url: \"RECEIVER/make\", body: {{t: \"{text}\"}}}}}}\n")
    });
    format!("preStart:\n{}", units.collect::<String>())
}

pub(crate) async fn a_lost_plan_is_restored() {
    let mut harness = Harness::new().await;
    harness.run("a", "large", &large(), TargetPhase::Ready).await;
    harness.notification_accepted("a").await;
    // The restart clears the cache.
    let bucket = &harness.stack().store().bucket;
    assert!(!bucket.list("plans/").await.unwrap().is_empty(), "no plan was found");
    bucket.remove_all("plans/").await.unwrap();
    harness.restart().await;
    let waits = harness.target("a").await.unwrap().info.waits_for.unwrap_or_default();
    let why = harness.why("a").await;
    assert!(waits.contains("the stored plan") && why.next_steps[0].contains("ebb apply -f FILE"), "{why:?}");
    // The plan is restored from the version of the target, even if it is withdrawn.
    harness.request(Method::DELETE, "/v1/plugins/large/versions/1.0.0", None).await.is(204);
    let own = sandbox("a", "a-uid", "large");
    let deletion = LifecycleData { document: None, ..own.clone() };
    for (event_type, data) in [
        (LifecycleType::Deleted, deletion),
        (LifecycleType::Updated, sandbox("a", "a-uid", "large}, s: {plugin: large")),
    ] {
        harness.lifecycle(event_type, &data).await.is_problem(500, "damaged");
    }
    let response = harness.lifecycle(LifecycleType::Updated, &own).await;
    assert_eq!(response.is(202).json::<Value>()["result"], "unchanged");
    assert_eq!(harness.target("a").await.unwrap().info.waits_for, None);
    harness.tear_down("a").await;
}
