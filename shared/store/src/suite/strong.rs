use super::document::plugin;
use super::fixture::*;

/// Every read of the table is strongly consistent. Indexes have no strong reads and are queried for keys only.
pub(super) async fn reads_of_the_table_are_consistent(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    fixture.store.restore_plan("k1", b"{}").await.unwrap();
    fixture.store.put_plugin(&plugin("p", "1.0.0", 0)).await.unwrap();
    let (proxy, store) = fixture.proxy();
    store.read_run(&run).await.unwrap();
    store.read_records(&run, &[Unit(0), Unit(90)]).await.unwrap();
    store.read_all_records(&run).await.unwrap();
    store.read_target(TargetKey::new("sandbox", "a")).await.unwrap();
    store.read_tombstone("u1").await.unwrap();
    store.get_plan("k1").await.unwrap();
    store.get_plugin("p", "1.0.0").await.unwrap();
    store.list_versions("p").await.unwrap();
    let table_requests = proxy.requests();
    assert_eq!(table_requests.len(), 9);
    for (operation, request) in table_requests {
        assert_eq!(request["ConsistentRead"], true, "{operation} {request}");
    }
    store.list_plugins().await.unwrap();
    store.list_page(TargetList::Active, None, None, 10).await.unwrap();
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
