//! Stuck teardowns that a fixed version of their plugin repairs.

use crate::harness::*;
use crate::request_table;

pub(crate) async fn a_fixed_version_repairs_a_stuck_teardown() {
    let harness = Harness::new().await;
    request_table::play(&harness, "lifecycle/repair.yaml", "a_fixed_version_repairs_a_stuck_teardown", &[]).await;
    assert_eq!(harness.receiver.call("POST /drop", 1).await.body, json!({"id": "m1"}));
}
