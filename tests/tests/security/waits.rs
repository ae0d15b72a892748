//! API responses for targets that wait, have failed or are damaged.

use crate::harness::*;
use crate::request_table;

const TABLE: &str = "security/waits.yaml";

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
    request_table::play(&harness, TABLE, "a_lost_plan_is_restored", &[]).await;
}
