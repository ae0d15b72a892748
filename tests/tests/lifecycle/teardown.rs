//! Teardowns: their records. The table has the others.

use crate::harness::*;

pub(crate) async fn the_usual_evidence_costs_no_record() {
    let harness = Harness::new().await;
    harness.receiver.always("DELETE /thing", 204);
    harness.run("a", "strange", include_str!("documents/strange.yaml"), TargetPhase::Ready).await;
    harness.tear_down("a").await;
    assert_eq!(harness.state("a", Hook::PostStop).await.records, []);
}
