//! A write is applied, its response is lost, and the SDK repeats it. The result is the same as without the repetition.

use super::document::{begin, plugin};
use super::fixture;
use super::fixture::*;

pub(super) async fn results_with_a_lost_response_are_stored_once(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy();
    let first = outputs(1, "1");
    let stored = proxy.losing("UpdateItem", store.put_result(&run, Unit(0), A1, &first)).await.unwrap();
    assert_eq!(stored, PutOutcome::Duplicate(first.clone()));
    // A further result: both the write that finds the first result and the write that stores this one lose their
    // responses.
    proxy.plan("UpdateItem", [ProxyFault::LoseReply]);
    proxy.plan("PutItem", [ProxyFault::LoseReply]);
    let second = result(AttemptOutcome::Succeeded, "2");
    assert_eq!(store.put_result(&run, Unit(0), A1, &second).await.unwrap(), PutOutcome::Conflict(first.clone()));
    assert_eq!(proxy.hits(), 2);
    let records = fixture.store.read_all_records(&run).await.unwrap();
    assert_eq!((records.len(), records[0].2.result.as_ref()), (1, Some(&first)));
    assert_eq!(records[0].2.further_results, [second]);
}

pub(super) async fn transitions_with_a_lost_response_are_made_once(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy();
    let begin = fixture::begin("a");
    assert!(proxy.losing("TransactWriteItems", store.move_target(&begin)).await.unwrap());
    let on = begin.target.update(|_| {});
    assert!(proxy.losing("PutItem", store.move_target(&on)).await.unwrap());
    // Another writer with the same expected version is refused.
    let other = begin.target.update(|target| target.generation = 9);
    assert!(!proxy.losing("PutItem", store.move_target(&other)).await.unwrap());
    let end = TargetTransition { tombstone: Some(tombstone("u1")), ..on.target.update(|target| target.due = None) };
    assert!(proxy.losing("TransactWriteItems", store.move_target(&end)).await.unwrap());
    proxy.losing("PutItem", store.put_tombstone(&tombstone("u2"))).await.unwrap();
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), Some(end.target));
    for instance in ["u1", "u2"] {
        assert_eq!(fixture.store.read_tombstone(instance).await.unwrap(), Some(tombstone(instance).ended));
    }
    let head = fixture.store.read_run(&new_run("a").id).await.unwrap().unwrap();
    assert_eq!((head.head.version, head.head.due), (0, Some(new_run("a").due)));
}

pub(super) async fn documents_with_a_lost_response_are_stored_once(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy();
    assert!(proxy.losing("TransactWriteItems", begin(&store, "a", b"{}")).await);
    assert_eq!(fixture.store.get_plan("a").await.unwrap(), Some(b"{}".to_vec()));
    let plugin = plugin("p", "1.0.0", 0);
    assert!(proxy.losing("PutItem", store.put_plugin(&plugin)).await.unwrap());
    let other = PluginItem { document: "q".into(), digest: ebb_protocol::id::digest(b"q"), ..plugin.clone() };
    assert!(!proxy.losing("PutItem", store.put_plugin(&other)).await.unwrap());
    assert_eq!(fixture.store.get_plugin("p", "1.0.0").await.unwrap(), Some(plugin));
    assert!(proxy.losing("UpdateItem", store.withdraw_plugin("p", "1.0.0", Timestamp(2))).await.unwrap());
    assert_eq!(fixture.store.list_plugins().await.unwrap(), []);
}
