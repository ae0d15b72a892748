//! A write is applied, its response is lost, and the SDK repeats it. The result is the same as without the repetition.

use std::collections::BTreeMap;

use ebb_protocol::engine::{
    Attempt, Epoch, HeadState, Patch, PatchRefusal, RunEvent, Timestamp, Unit, accept, accept::accept_with_wakeup,
    accept::refusal,
};
use ebb_protocol::id::{RunId, TargetKey};
use ebb_protocol::record::{AttemptOutcome, AttemptResult, OutputStorage};
use ebb_protocol::value::UnitValue;

use super::document::{begin, plugin};
use super::fixture::{self, StoreFixture, new_run, refused, result, tombstone, written};
use super::proxy::ProxyFault;
use super::record_model::{listed, wait};
use crate::{AttemptUpdate, PatchResult, PluginItem, PutOutcome, TargetTransition};

const A1: Attempt = Attempt(1);
const E1: Epoch = Epoch(1);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResendEffect {
    Refused,
    Same,
    /// The repetition increments the version again.
    Version,
}

/// Returns all events on a new run, with the effect of their repetition.
fn patches(due: Timestamp) -> Vec<(Patch, ResendEffect)> {
    use ResendEffect::{Refused, Same, Version};
    let (earlier, later) = (Timestamp(due.0 - 1), Timestamp(due.0 + 1));
    let unit = Unit(3);
    let events = [
        (RunEvent::Succeeded { unit, attempt: A1, epoch: E1 }, Refused),
        (RunEvent::Failed { unit, attempt: A1, epoch: E1 }, Refused),
        (RunEvent::Retried { unit, attempt: A1, epoch: E1, to: Attempt(2) }, Refused),
        (RunEvent::Reopened { unit, attempt: A1, epoch: E1, to: Attempt(1000) }, Refused),
        (RunEvent::SucceededLate { unit, attempt: A1, mark: 7 }, Same),
        (RunEvent::Sealed { unit }, Same),
        (RunEvent::Cancelled { epoch: E1, now: earlier }, Refused),
        (RunEvent::Stopped { now: earlier, epoch: E1 }, Same),
        (RunEvent::WakeupAdvanced { due: earlier }, Refused),
        (RunEvent::VersionBumped, Version),
        (RunEvent::EpochFenced { epoch: E1 }, Refused),
        (RunEvent::RunReopened { due: later, version: 0, epoch: E1 }, Refused),
        (RunEvent::Rescheduled { seen: due, version: 0, next: later }, Refused),
        (RunEvent::Closed { version: 0, notified: Some(earlier) }, Same),
        (RunEvent::RemovalAnnounced { at: earlier }, Same),
        (RunEvent::RemovalWithdrawn, Same),
    ];
    let waking = [
        RunEvent::Retried { unit, attempt: A1, epoch: E1, to: Attempt(2) },
        RunEvent::Failed { unit, attempt: A1, epoch: E1 },
    ];
    let waking = waking.map(|event| (accept_with_wakeup(event, earlier), Refused));
    events.into_iter().map(|(event, again)| (accept(event), again)).chain(waking).collect()
}

impl StoreFixture {
    async fn head(&self, run: &RunId) -> HeadState {
        self.store.read_run(run).await.unwrap().unwrap().head
    }
}

pub(super) async fn an_event_with_a_lost_response_is_applied_once(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy().await;
    for (n, (patch, again)) in patches(new_run("x").due).into_iter().enumerate() {
        let (once, lost) = (fixture.run(&format!("once-{n}")).await, fixture.run(&format!("lost-{n}")).await);
        let before = fixture.head(&once).await;
        let expected = written(fixture.store.patch_run(&once, &patch).await.unwrap()).head;
        assert_eq!(patch.apply(&before).as_ref(), Some(&expected), "{patch:?}");
        proxy.plan("UpdateItem", [ProxyFault::LoseReply]);
        let patched = store.patch_run(&lost, &patch).await.unwrap();
        assert_eq!(proxy.hits(), 1, "{patch:?}");
        let image = match again {
            ResendEffect::Refused => refused(patched).unwrap().head,
            ResendEffect::Same | ResendEffect::Version => written(patched).head,
        };
        let raised = u64::from(again == ResendEffect::Version);
        assert_eq!(image, HeadState { version: expected.version + raised, ..expected }, "{patch:?}");
        let mut head = fixture.head(&once).await;
        head.version += raised;
        assert_eq!(fixture.head(&lost).await, head, "{patch:?}");
    }
    // The image of a refused completion shows that this completion was written.
    let run = fixture.run("a").await;
    proxy.plan("UpdateItem", [ProxyFault::LoseReply]);
    let success = accept(RunEvent::Succeeded { unit: Unit(3), attempt: A1, epoch: E1 });
    let PatchResult::ConditionFailed(Some(image)) = store.patch_run(&run, &success).await.unwrap() else { panic!() };
    assert_eq!(proxy.hits(), 1);
    assert_eq!(refusal(Unit(3), A1, E1, &image.head), PatchRefusal::AlreadyDone);
}

pub(super) async fn results_and_updates_with_a_lost_response_are_stored_once(fixture: StoreFixture) {
    let run = fixture.run("a").await;
    let (proxy, store) = fixture.proxy().await;
    let outputs = BTreeMap::from([("x".to_owned(), UnitValue::Json("y".into()))]);
    let first = AttemptResult { outputs: OutputStorage::Inline(outputs), ..result(AttemptOutcome::Succeeded, "1") };
    for note in [
        AttemptUpdate::Started(Timestamp(1)),
        AttemptUpdate::Accepted(Timestamp(2)),
        AttemptUpdate::DispatchAgain(Timestamp(3)),
        AttemptUpdate::Leased(Timestamp(3)),
        AttemptUpdate::Posted(Timestamp(3), None),
        AttemptUpdate::Postponed(Timestamp(3)),
        AttemptUpdate::Heartbeat(Timestamp(4), Some("5 %".into())),
        AttemptUpdate::Waiting {
            wait: Box::new(wait(Timestamp(5))),
            begun: Timestamp(4),
            next: Timestamp(6),
            seen_by: None,
        },
        AttemptUpdate::Seen("c-1".to_owned()),
        AttemptUpdate::Instances(listed("i-1")),
    ] {
        proxy.plan("UpdateItem", [ProxyFault::LoseReply]);
        // The repetition by the SDK sees its own write.
        let record = store.update_attempt(&run, Unit(0), A1, &note).await.unwrap();
        assert_eq!(proxy.hits(), 1);
        assert_eq!(fixture.store.read_all_records(&run).await.unwrap(), [(Unit(0), A1, record)]);
    }
    proxy.plan("UpdateItem", [ProxyFault::LoseReply]);
    assert_eq!(store.put_result(&run, Unit(0), A1, &first).await.unwrap(), PutOutcome::Duplicate(first.clone()));
    assert_eq!(proxy.hits(), 1);
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
    let (proxy, store) = fixture.proxy().await;
    let begin = fixture::begin("a");
    proxy.plan("TransactWriteItems", [ProxyFault::LoseReply]);
    assert!(store.move_target(&begin).await.unwrap());
    assert_eq!(proxy.hits(), 1);
    let on = begin.target.update(|_| {});
    proxy.plan("PutItem", [ProxyFault::LoseReply]);
    assert!(store.move_target(&on).await.unwrap());
    assert_eq!(proxy.hits(), 1);
    // Another writer with the same expected version is refused.
    let other = begin.target.update(|target| target.generation = 9);
    proxy.plan("PutItem", [ProxyFault::LoseReply]);
    assert!(!store.move_target(&other).await.unwrap());
    assert_eq!(proxy.hits(), 1);
    let end = TargetTransition { tombstone: Some(tombstone("u1")), ..on.target.update(|target| target.due = None) };
    proxy.plan("TransactWriteItems", [ProxyFault::LoseReply]);
    assert!(store.move_target(&end).await.unwrap());
    proxy.plan("PutItem", [ProxyFault::LoseReply]);
    store.put_tombstone(&tombstone("u2")).await.unwrap();
    assert_eq!(proxy.hits(), 2);
    assert_eq!(fixture.store.read_target(TargetKey::new("sandbox", "a")).await.unwrap(), Some(end.target));
    for instance in ["u1", "u2"] {
        assert_eq!(fixture.store.read_tombstone(instance).await.unwrap(), Some(tombstone(instance).ended));
    }
    let head = fixture.store.read_run(&new_run("a").id).await.unwrap().unwrap();
    assert_eq!((head.head.version, head.head.due), (0, Some(new_run("a").due)));
}

pub(super) async fn documents_with_a_lost_response_are_stored_once(fixture: StoreFixture) {
    let (proxy, store) = fixture.proxy().await;
    proxy.plan("TransactWriteItems", [ProxyFault::LoseReply]);
    assert!(begin(&store, "a", b"{}").await);
    assert_eq!(fixture.store.get_plan("a").await.unwrap(), Some(b"{}".to_vec()));
    assert_eq!(proxy.hits(), 1);
    let plugin = plugin("p", "1.0.0", 0);
    proxy.plan("PutItem", [ProxyFault::LoseReply]);
    assert!(store.put_plugin(&plugin).await.unwrap());
    let other = PluginItem { document: "q".into(), digest: ebb_protocol::id::digest(b"q"), ..plugin.clone() };
    proxy.plan("PutItem", [ProxyFault::LoseReply]);
    assert!(!store.put_plugin(&other).await.unwrap());
    assert_eq!(proxy.hits(), 2);
    assert_eq!(fixture.store.get_plugin("p", "1.0.0").await.unwrap(), Some(plugin));
    proxy.plan("UpdateItem", [ProxyFault::LoseReply]);
    assert!(store.withdraw_plugin("p", "1.0.0", Timestamp(2)).await.unwrap());
    assert_eq!(proxy.hits(), 1);
    assert_eq!(fixture.store.list_plugins().await.unwrap(), []);
}
