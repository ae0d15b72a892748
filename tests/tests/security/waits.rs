//! API responses for targets that wait, have failed or are damaged.

use ebb_protocol::api::TargetPage;
use ebb_protocol::lifecycle::{LifecycleResponse, LifecycleResult};

use crate::harness::*;

/// Returns the `waitsFor` that the list shows for the sandbox `a`.
async fn listed(harness: &Harness) -> Option<String> {
    let page: TargetPage = harness.get("/v1/targets").await.is(200).json();
    page.targets.into_iter().find(|target| target.name == "a")?.waits_for
}

pub(crate) async fn a_rejected_notification_is_shown() {
    let harness = Harness::with_platform().await;
    harness.run("a", "simple", SIMPLE, TargetState::Ready).await;
    harness.notification_accepted("a").await;
    harness.receiver.always("POST /platform", 503);
    harness.delete("a").await;
    let delivery = until("an attempt to fail", async || harness.target("a").await?.delivery).await;
    assert_eq!(delivery.notification, "gone");
    assert!(delivery.reason.is_some_and(|reason| reason.contains("503")), "{:?}", delivery.attempts);
    assert!(delivery.next.is_some());
    // A gone target stays in the list of active targets until the platform has accepted its notification.
    assert!(listed(&harness).await.is_some_and(|waits| waits.contains("`gone`")));
    assert_eq!(harness.listed("gone=true").await, [""; 0]);
    let response = harness.lifecycle(LifecycleType::Created, &sandbox("a", "next", "simple")).await;
    assert_eq!(response.is(202).json::<LifecycleResponse>().result, LifecycleResult::Waiting);
    let why = harness.why("a").await;
    let waits = listed(&harness).await.unwrap();
    for text in [&why.summary, &waits] {
        assert!(text.contains("the platform to accept the notification `gone`"), "{text}");
        assert!(text.contains("503") && text.contains("uid next waits for the name"), "{text}");
    }
    assert!(why.next_steps.iter().any(|step| step.contains("platform")), "{why:?}");
    harness.receiver.always("POST /platform", 204);
    harness.instance_is_ready("a", "next").await;
    assert_eq!(listed(&harness).await, None);
    harness.lifecycle(LifecycleType::Deleted, &sandbox("a", "next", "simple")).await.is(202);
    until("a to be listed as gone", async || (harness.listed("gone=true").await == ["a"]).then_some(())).await;
}

const TWO: &str = r#"
preStart:
  one: {webhook: {url: "RECEIVER/one"}, retry: {attempts: 1}}
  two: {webhook: {url: "RECEIVER/two"}, retry: {attempts: 1}}
"#;

pub(crate) async fn every_failed_unit_is_shown() {
    let harness = Harness::new().await;
    harness.receiver.always("POST /*", 400);
    harness.run("a", "two", TWO, TargetState::Failed).await;
    let why = harness.why("a").await;
    let mut failed: Vec<&str> = why.failed.iter().map(|failed| failed.unit.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["r/one", "r/two"]);
    assert_eq!(why.cause.as_ref().unwrap().unit, why.failed[0].unit);
    assert!(why.summary.contains(&format!("{} also failed", why.failed[1].unit)), "{}", why.summary);
    // A retry continues the numbers of attempts and restarts their count.
    harness.request(Method::POST, "/v1/targets/sandbox/a/retry", None).await.is(202);
    let both = until("both units to fail again", async || {
        let target = harness.target("a").await?;
        let both = ["one", "two"].map(|name| find(&target, "preStart", name).unwrap());
        let again = both.iter().all(|unit| unit.state == UnitState::Failed && unit.attempt == 2);
        (again && target.info.phase == TargetState::Failed).then_some(both)
    });
    for unit in both.await {
        assert_eq!((unit.attempt_in_series, unit.max_attempts), (1, 1), "{unit:?}");
    }
    assert!(harness.why("a").await.failed.iter().all(|failed| failed.attempt == 2));
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
    let log = harness.log("a", Hook::PreStart, "make", "").await;
    assert_eq!((log.status, log.body.as_str()), (200, "try 1\n"));
    let cause = harness.why("a").await.cause.unwrap();
    assert_eq!((cause.unit.as_str(), cause.attempt), ("r/make", 1));
    assert_eq!(cause.log, ["try 1"]);
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
    harness.run("a", "large", &large(), TargetState::Ready).await;
    harness.notification_accepted("a").await;
    // The restart clears the cache.
    let bucket = &harness.stack().store().bucket;
    assert!(!bucket.list("plans/").await.unwrap().is_empty(), "no plan was found");
    bucket.remove_all("plans/").await.unwrap();
    harness.restart().await;
    let target = harness.target("a").await.unwrap();
    let waits = target.info.waits_for.unwrap_or_default();
    assert!(waits.contains("the stored plan"), "{waits:?}");
    let why = harness.why("a").await;
    assert!(why.next_steps[0].contains("ebb sandbox apply -f FILE"), "{why:?}");
    let version = "/v1/plugins/large/versions/1.0.0";
    // The plan is restored from the version of the target, even if it is withdrawn.
    harness.request(Method::DELETE, version, None).await.is(204);
    let deletion = LifecycleData { document: None, ..sandbox("a", "a-uid", "large") };
    let response = harness.lifecycle(LifecycleType::Deleted, &deletion).await;
    assert!(response.is_problem(500, "damaged").detail.contains("ebb sandbox apply"), "{response:?}");
    let other = sandbox("a", "a-uid", "large}, s: {plugin: large");
    harness.lifecycle(LifecycleType::Updated, &other).await.is_problem(500, "damaged");
    let response = harness.lifecycle(LifecycleType::Updated, &sandbox("a", "a-uid", "large")).await;
    assert_eq!(response.is(202).json::<Value>()["result"], "unchanged");
    assert_eq!(harness.target("a").await.unwrap().info.waits_for, None);
    harness.tear_down("a").await;
}
