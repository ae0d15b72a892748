//! A target whose plan is lost. The table has targets that wait or have failed.

use crate::harness::*;
use crate::request_table;

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
    request_table::play(&harness, "security/waits.yaml", "a_lost_plan_is_restored", &[]).await;
}
