use ebb_protocol::engine::{Attempt, Epoch, RunEvent, Timestamp, Unit};
use ebb_protocol::id::TargetKey;
use ebb_protocol::record::AttemptOutcome;

use super::document::plugin;
use super::fixture::{StoreFixture, begin, result, tombstone, written};
use crate::{
    ListTargets as _, MoveTarget as _, PlanStore as _, PutAttemptResult as _, QueryDue as _, ReadPlugins as _,
    ReadRecords as _, ReadRun as _, ReadTarget as _, TargetList, WritePlugins as _,
};

/// Every read of the table is strongly consistent. Indexes have no strong reads and are queried for keys only.
pub(super) async fn reads_of_the_table_are_consistent(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    fixture.store.restore_plan("k1", b"{}").await.unwrap();
    fixture.store.put_plugin(&plugin("p", "1.0.0", 0)).await.unwrap();
    let (proxy, store) = fixture.proxy().await;
    store.read_run(&run).await.unwrap();
    store.read_root(&run).await.unwrap();
    store.read_records(&run, &[Unit(0), Unit(90)]).await.unwrap();
    store.read_all_records(&run).await.unwrap();
    store.read_target(TargetKey::new("sandbox", "a")).await.unwrap();
    store.read_tombstone("u1").await.unwrap();
    store.get_plan("k1").await.unwrap();
    store.get_plugin("p", "1.0.0").await.unwrap();
    store.list_versions("p").await.unwrap();
    let table_requests = proxy.requests();
    assert_eq!(table_requests.len(), 10);
    for (operation, request) in table_requests {
        assert_eq!(request["ConsistentRead"], true, "{operation} {request}");
    }
    store.list_plugins().await.unwrap();
    store.list_targets(TargetList::Active, None, None, 10).await.unwrap();
    store.query_due(Timestamp(u64::MAX / 4), 10).await.unwrap();
    let (mut indexed, mut batches) = (0, 0);
    for (operation, request) in proxy.requests() {
        if operation == "BatchGetItem" {
            batches += 1;
            assert_eq!(request["RequestItems"][&fixture.sdk().name]["ConsistentRead"], true, "{request}");
        } else {
            indexed += 1;
            assert!(operation == "Query" && request["IndexName"].is_string(), "{operation} {request}");
        }
    }
    assert_eq!((indexed, batches), (18, 2));
}

pub(super) async fn a_write_is_read_at_once_by_other_clients(fixture: StoreFixture) {
    let (_, other) = fixture.proxy().await;
    let run = fixture.run("a").await;
    for unit in 0..30 {
        let success = RunEvent::Succeeded { unit: Unit(unit), attempt: Attempt(1), epoch: Epoch(1) };
        let done = result(AttemptOutcome::Succeeded, &unit.to_string());
        fixture.store.put_result(&run, Unit(unit), Attempt(1), &done).await.unwrap();
        let head = written(fixture.accept(&run, success).await);
        assert_eq!(other.read_root(&run).await.unwrap(), Some(head));
        let records = other.read_records(&run, &[Unit(unit)]).await.unwrap();
        assert_eq!(records.len(), 1);
    }
    let ended = crate::TargetTransition { tombstone: Some(tombstone("u1")), ..begin("b") };
    assert!(fixture.store.move_target(&ended).await.unwrap());
    assert!(other.read_tombstone("u1").await.unwrap().is_some());
    assert_eq!(other.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), Some(ended.target));
}
