use std::collections::BTreeSet;

use crate::{PatchRun as _, ReadRun as _};
use ebb_protocol::engine::{
    Attempt, Epoch, LateMark, Patch, PatchChange, PatchCondition, RunEvent, RunPhase, SHARD, Shard, Timestamp, Unit,
};

use super::fixture::{StoreFixture, new_run, refused, written};

const E1: Epoch = Epoch(1);
const A1: Attempt = Attempt(1);

fn success(unit: u32, attempt: Attempt, epoch: Epoch) -> RunEvent {
    RunEvent::Succeeded { unit: Unit(unit), attempt, epoch }
}

pub(super) async fn a_new_run_has_its_facts_and_can_be_read(world: StoreFixture) {
    let run = world.run("a").await;
    let root = world.store.read_root(&run).await.unwrap().unwrap();
    assert_eq!(root.facts, Some(new_run("a").facts));
    assert_eq!((root.head.epoch, root.head.version, root.head.phase), (E1, 0, RunPhase::Running));
    assert_eq!(root.head.due, Some(new_run("a").due));
    assert_eq!(world.store.read_run(&run).await.unwrap(), vec![root]);
    let other = new_run("b").id;
    assert_eq!(world.store.read_root(&other).await.unwrap(), None);
    assert_eq!(world.store.read_run(&other).await.unwrap(), vec![]);
}

pub(super) async fn a_completion_returns_the_item_after_it_and_its_repetition_the_item_as_it_is(world: StoreFixture) {
    let run = world.run("a").await;
    let first = written(world.accept(&run, success(3, A1, E1)).await);
    assert_eq!(first.head.done, [3].into());
    assert!(first.facts.is_some());
    let second = written(world.accept(&run, success(200, A1, E1)).await);
    assert_eq!(second.head.done, [3, 200].into());
    assert_eq!(refused(world.accept(&run, success(3, A1, E1)).await), Some(second.clone()));
    let failed = RunEvent::Failed { unit: Unit(3), attempt: A1, epoch: E1 };
    assert_eq!(refused(world.accept(&run, failed).await), Some(second));
}

pub(super) async fn a_missing_root_is_not_made(world: StoreFixture) {
    let run = new_run("a").id;
    assert_eq!(refused(world.accept(&run, success(1, A1, E1)).await), None);
    assert_eq!(
        refused(world.accept(&run, RunEvent::SucceededLate { unit: Unit(1), attempt: A1, mark: 7 }).await),
        None
    );
    assert_eq!(world.store.read_run(&run).await.unwrap(), vec![]);
}

pub(super) async fn later_tries_are_counted_and_other_tries_refused(world: StoreFixture) {
    let run = world.run("a").await;
    let retried = |attempt| RunEvent::Retried { unit: Unit(17), attempt, epoch: E1, to: attempt.next() };
    assert_eq!(written(world.accept(&run, retried(A1)).await).head.attempt(17), Attempt(2));
    assert!(refused(world.accept(&run, retried(A1)).await).is_some());
    assert!(refused(world.accept(&run, success(17, A1, E1)).await).is_some());
    assert_eq!(written(world.accept(&run, retried(Attempt(2))).await).head.attempt(17), Attempt(3));
    let head = written(world.accept(&run, success(17, Attempt(3), E1)).await).head;
    assert!(head.done.contains(&17));
    let reopened = RunEvent::Reopened { unit: Unit(17), attempt: Attempt(3), epoch: E1, to: Attempt(4) };
    let head = written(world.accept(&run, reopened).await).head;
    assert!(!head.done.contains(&17) && head.attempt(17) == Attempt(4));
    assert!(refused(world.accept(&run, reopened).await).is_some());
}

pub(super) async fn a_cancel_ends_the_epoch(world: StoreFixture) {
    let run = world.run("a").await;
    let now = Timestamp(1_800_000_002_000);
    let cancel = RunEvent::Cancelled { shard: Shard::ROOT, epoch: E1, now };
    let head = written(world.accept(&run, cancel).await).head;
    assert_eq!((head.epoch, head.phase, head.due, head.version), (Epoch(2), RunPhase::Cancelling, Some(now), 1));
    assert!(refused(world.accept(&run, cancel).await).is_some());
    assert!(refused(world.accept(&run, success(1, A1, E1)).await).is_some());
    // Earlier entries stay.
    let mut marks = BTreeSet::new();
    for (attempt, mark) in [(A1, 7), (A1, 8), (Attempt(2), 7), (A1, 7)] {
        let late = written(world.accept(&run, RunEvent::SucceededLate { unit: Unit(1), attempt, mark }).await).head;
        marks.insert(LateMark { slot: 1, attempt, mark });
        assert_eq!(late.late, marks);
    }
    for (unit, sealed) in [(1, [1].into()), (0, BTreeSet::from([0, 1]))] {
        assert_eq!(written(world.accept(&run, RunEvent::Sealed { unit: Unit(unit) }).await).head.sealed, sealed);
    }
    let stopped = written(world.accept(&run, RunEvent::Stopped { now, epoch: Epoch(2) }).await).head;
    assert_eq!(stopped.stopped, Some(now));
}

pub(super) async fn shards_come_to_be_with_their_first_write(world: StoreFixture) {
    let run = world.run("a").await;
    let unit = SHARD + 4;
    let head = written(world.accept(&run, success(unit, A1, E1)).await);
    assert_eq!((head.shard, head.facts.clone()), (Shard(1), None));
    assert_eq!((head.head.done.clone(), head.head.epoch), ([4].into(), E1));
    let sealed = written(world.accept(&run, RunEvent::Sealed { unit: Unit(2 * SHARD) }).await);
    assert_eq!((sealed.shard, sealed.head.epoch), (Shard(2), E1));
    let shards: Vec<Shard> = world.store.read_run(&run).await.unwrap().iter().map(|head| head.shard).collect();
    assert_eq!(shards, [Shard(0), Shard(1), Shard(2)]);

    for shard in [Shard(1), Shard(2), Shard(3)] {
        let cancel = RunEvent::Cancelled { shard, epoch: E1, now: Timestamp(5) };
        assert_eq!(written(world.accept(&run, cancel).await).head.epoch, Epoch(2));
    }
    for shard in 1..=3 {
        assert!(refused(world.accept(&run, success(shard * SHARD, A1, E1)).await).is_some());
    }
}

pub(super) async fn wake_ups_are_moved_only_as_seen(world: StoreFixture) {
    let run = world.run("a").await;
    let seen = new_run("a").due;
    let earlier = Timestamp(seen.0 - 1000);
    let hastened = written(world.accept(&run, RunEvent::WakeupAdvanced { due: earlier }).await).head;
    assert_eq!((hastened.due, hastened.version), (Some(earlier), 1));
    assert!(refused(world.accept(&run, RunEvent::WakeupAdvanced { due: earlier }).await).is_some());
    let next = Timestamp(seen.0 + 1000);
    assert!(refused(world.accept(&run, RunEvent::Rescheduled { seen, version: 0, next }).await).is_some());
    assert!(refused(world.accept(&run, RunEvent::Rescheduled { seen: earlier, version: 0, next }).await).is_some());
    let rearmed = RunEvent::Rescheduled { seen: earlier, version: 1, next };
    assert_eq!(written(world.accept(&run, rearmed).await).head.due, Some(next));
    assert!(refused(world.accept(&run, RunEvent::Closed { version: 0 }).await).is_some());
    let closed = written(world.accept(&run, RunEvent::Closed { version: 1 }).await).head;
    assert_eq!((closed.due, closed.phase), (None, RunPhase::Closed));
    assert!(refused(world.accept(&run, RunEvent::WakeupAdvanced { due: Timestamp(1) }).await).is_some());
    let woken = written(world.accept(&run, RunEvent::RunReopened { due: next, version: 1, epoch: E1 }).await).head;
    assert_eq!((woken.due, woken.phase, woken.version), (Some(next), RunPhase::Running, 2));
}

pub(super) async fn a_batch_is_refused_whole(world: StoreFixture) {
    let run = world.run("a").await;
    written(world.accept(&run, success(8, A1, E1)).await);
    let conditions = vec![PatchCondition::EpochIs(E1), PatchCondition::NotDone(8), PatchCondition::NotDone(9)];
    let batch =
        Patch { shard: Shard::ROOT, conditions, changes: vec![PatchChange::AddDone(8), PatchChange::AddDone(9)] };
    let image = refused(world.store.patch_run(&run, &batch).await.unwrap()).unwrap();
    assert_eq!(image.head.done, [8].into());
}

pub(super) async fn many_writers_of_one_head_lose_nothing(world: StoreFixture) {
    let run = world.run("a").await;
    let writes = (0..100).map(|unit| world.accept(&run, success(unit, A1, E1)));
    let heads = futures::future::join_all(writes).await;
    let complete = heads.into_iter().map(written).filter(|head| head.head.done.len() == 100).count();
    assert_eq!(complete, 1);
}
