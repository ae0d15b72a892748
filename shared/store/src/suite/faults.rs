use super::document::plugin;
use super::fixture::*;

const PERSISTENT: usize = 50;

fn retryable<T: std::fmt::Debug>(response: StoreResult<T>) {
    assert!(matches!(response, Err(StoreError::Retryable { .. })), "{response:?}");
}

pub(super) async fn transient_errors_are_retried(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy();
    for (unit, (status, code)) in (0..).zip(sample::<Vec<(u16, String)>>("transientErrors")) {
        for operation in ["UpdateItem", "GetItem", "Query", "TransactWriteItems", "PutItem"] {
            proxy.plan(operation, [ProxyFault::error(status, &code)]);
        }
        let head = written(store.patch_run(&run, &accept(success(unit))).await.unwrap());
        assert_eq!(head.head.done.len(), unit as usize + 1, "{code}");
        assert_eq!(store.read_run(&run).await.unwrap(), Some(head), "{code}");
        assert_eq!(store.query_due(Timestamp(1), 1).await.unwrap(), [], "{code}");
        assert!(store.move_target(&begin(&code)).await.unwrap(), "{code}");
        assert!(store.move_target(&begin(&code).target.update(|_| {})).await.unwrap(), "{code}");
        assert_eq!(proxy.hits(), 5, "{code}");
    }
}

pub(super) async fn persistent_throttling_is_retryable(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (one, other) = (result(AttemptOutcome::Failed, "1"), result(AttemptOutcome::Failed, "2"));
    let (first, started) = (Attempt(1), AttemptUpdate::Started(Timestamp(1)));
    fixture.store.put_result(&run, Unit(1), first, &one).await.unwrap();
    for (status, code) in sample::<Vec<(u16, String)>>("transientErrors") {
        let (proxy, store) = fixture.proxy();
        for operation in ["UpdateItem", "GetItem", "Query", "BatchGetItem", "TransactWriteItems", "PutItem"] {
            proxy.plan(operation, vec![ProxyFault::error(status, &code); PERSISTENT]);
        }
        retryable(store.patch_run(&run, &accept(success(0))).await);
        retryable(store.read_run(&run).await);
        retryable(store.query_due(Timestamp(1), 1).await);
        retryable(store.list_page(TargetList::Active, None, None, 1).await);
        retryable(store.move_target(&begin("b")).await);
        retryable(store.move_target(&TargetTransition { run: None, ..begin("b") }).await);
        retryable(store.put_tombstone(&tombstone("u1")).await);
        retryable(store.put_plugin(&plugin("acme/db", "1.0.0", 0)).await);
        retryable(store.update_attempt(&run, Unit(0), first, &started).await);
        retryable(store.put_result(&run, Unit(0), first, &one).await);
        assert!(proxy.hits() >= 2 * 10, "{code}");
        // The record is written, and the further result is not.
        let (proxy, store) = fixture.proxy();
        proxy.plan("PutItem", vec![ProxyFault::error(status, &code); PERSISTENT]);
        retryable(store.put_result(&run, Unit(1), first, &other).await);
        assert!(proxy.hits() >= 2, "{code}");
    }
    let records = fixture.store.read_all_records(&run).await.unwrap();
    assert_eq!((records.len(), records[0].2.further_results.len()), (1, 0));
    assert_eq!(fixture.store.list_plugins().await.unwrap(), []);
    let head = fixture.store.read_run(&run).await.unwrap().unwrap().head;
    assert!(head.done.is_empty());
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "b")).await.unwrap(), None);
    assert_eq!(fixture.store.read_tombstone("u1").await.unwrap(), None);
}

pub(super) async fn invalid_requests_are_broken(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy();
    for code in ["ValidationException", "AccessDeniedException", "ResourceNotFoundException"] {
        proxy.plan("UpdateItem", vec![ProxyFault::error(400, code); PERSISTENT]);
        let error = store.patch_run(&run, &accept(success(0))).await.unwrap_err();
        assert!(matches!(&error, StoreError::Broken { reason, .. } if reason.contains(code)), "{error:?}");
        // This error is not retried.
        assert_eq!(proxy.hits(), 1, "{code}");
    }
    proxy.plan("TransactWriteItems", [ProxyFault::cancelled(&["None", "ValidationError"])]);
    let error = store.move_target(&begin("b")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken { reason, .. } if reason.contains("ValidationError")), "{error:?}");
    assert_eq!(proxy.hits(), 1);
}

pub(super) async fn a_write_is_retried_after_a_transaction_conflict(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy();
    let conflict = ProxyFault::error(400, "TransactionConflictException");
    proxy.plan("UpdateItem", vec![conflict.clone(); 3]);
    let head = written(store.patch_run(&run, &accept(success(0))).await.unwrap());
    assert_eq!((head.head.done.len(), proxy.hits()), (1, 3));
    proxy.plan("UpdateItem", vec![conflict.clone(); PERSISTENT]);
    retryable(store.patch_run(&run, &accept(success(9))).await);
    assert_eq!(proxy.hits(), 6);
    proxy.plan("PutItem", vec![conflict; 3]);
    let alone = TargetTransition { run: None, ..begin("b") };
    assert!(store.move_target(&alone).await.unwrap());
    assert_eq!(proxy.hits(), 3);
}

pub(super) async fn a_transaction_is_retried_after_a_conflict(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy();
    let faults = [
        ProxyFault::cancelled(&["TransactionConflict", "None"]),
        ProxyFault::cancelled(&["None", "TransactionConflict"]),
        ProxyFault::cancelled(&["ThrottlingError", "ProvisionedThroughputExceeded"]),
    ];
    proxy.plan("TransactWriteItems", faults.clone());
    assert!(store.move_target(&begin("a")).await.unwrap());
    assert_eq!(proxy.hits(), 3);
    for (name, fault) in ["b", "c", "d"].into_iter().zip(faults) {
        proxy.plan("TransactWriteItems", vec![fault; PERSISTENT]);
        retryable(store.move_target(&begin(name)).await);
        assert_eq!(proxy.hits(), 6, "{name}");
        assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", name)).await.unwrap(), None);
    }
    // The first request with this token is still in progress. The SDK repeats it.
    let busy = ProxyFault::error(400, "TransactionInProgressException");
    proxy.plan("TransactWriteItems", [busy.clone()]);
    assert!(store.move_target(&begin("e")).await.unwrap());
    assert_eq!(proxy.hits(), 1);
    proxy.plan("TransactWriteItems", vec![busy; PERSISTENT]);
    retryable(store.move_target(&begin("g")).await);
    assert_eq!(proxy.hits(), 3);
    // A conflict on one item and a refusal of the other is a refusal.
    proxy.plan("TransactWriteItems", [ProxyFault::cancelled(&["ConditionalCheckFailed", "TransactionConflict"])]);
    assert!(!store.move_target(&begin("f")).await.unwrap());
    assert_eq!(proxy.hits(), 1);
}

pub(super) async fn unprocessed_keys_are_read_again(fixture: StoreFixture) {
    for name in ["a", "b"] {
        fixture.put(target("sandbox", name)).await;
    }
    let (proxy, store) = fixture.proxy();
    let table = &fixture.sdk().name;
    let key = |name: &str| json!({"pk": {"S": format!("t#sandbox#{name}")}, "sk": {"S": "h"}});
    let unprocessed = json!({table: {"Keys": [key("a"), key("b")], "ConsistentRead": true}});
    let reply = |found: &[serde_json::Value]| {
        let response = json!({"Responses": {table: found}, "UnprocessedKeys": unprocessed});
        ProxyFault::Respond(200, response)
    };
    let idle = reply(&[]);
    // Only an empty response means that the table is busy. After any other response the caller continues without a
    // limit.
    for (response, times) in [(idle.clone(), 3), (reply(&[key("a")]), 20)] {
        proxy.plan("BatchGetItem", vec![response; times]);
        let targets = store.list_page(TargetList::Active, None, None, 10).await.unwrap().targets;
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!((names, proxy.hits()), (vec!["a", "b"], times));
    }
    proxy.plan("BatchGetItem", vec![idle; PERSISTENT]);
    retryable(store.list_page(TargetList::Active, None, None, 10).await);
    assert_eq!(proxy.hits(), 6);
}

pub(super) async fn a_lost_request_is_sent_again(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy();
    for operation in ["UpdateItem", "GetItem", "TransactWriteItems"] {
        proxy.plan(operation, [ProxyFault::LoseRequest]);
    }
    let head = written(store.patch_run(&run, &accept(success(0))).await.unwrap());
    assert_eq!(store.read_run(&run).await.unwrap(), Some(head));
    assert!(store.move_target(&begin("b")).await.unwrap());
    assert_eq!(proxy.hits(), 3);
    proxy.plan("UpdateItem", vec![ProxyFault::LoseRequest; PERSISTENT]);
    retryable(store.patch_run(&run, &accept(success(1))).await);
    assert!(proxy.hits() >= 2);
    // If no response arrived, the repetition returns the result of a first request.
    assert!(matches!(store.patch_run(&run, &accept(success(1))).await.unwrap(), PatchResult::Written(_)));
}
