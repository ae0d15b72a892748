//! Compares the table with `Patch::apply`.

use std::collections::BTreeMap;

use crate::PatchResult;
use ebb_protocol::engine::{
    Attempt, Epoch, HeadState, LateMark, Patch, PatchChange, PatchCondition, RunPhase, Shard, Timestamp,
};
use proptest::prelude::*;

use super::fixture::{StoreFixture, new_run};

/// Returns slots whose numbers have digits in common.
fn slots() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..4_u32, 1 => prop::sample::select(vec![10, 100, 255])]
}

fn attempts() -> impl Strategy<Value = Attempt> {
    (1..4_u32).prop_map(Attempt)
}

fn epochs() -> impl Strategy<Value = Epoch> {
    (1..3_u32).prop_map(Epoch)
}

fn times() -> impl Strategy<Value = Timestamp> {
    (0..5_u64).prop_map(|step| Timestamp(new_run("model").due.0 + step - 2))
}

fn condition() -> impl Strategy<Value = PatchCondition> {
    prop_oneof![
        4 => epochs().prop_map(PatchCondition::EpochIs),
        2 => (slots(), attempts()).prop_map(|(slot, attempt)| PatchCondition::AttemptIs(slot, attempt)),
        2 => slots().prop_map(PatchCondition::NotDone),
        2 => slots().prop_map(PatchCondition::NotFailed),
        1 => times().prop_map(PatchCondition::DueIs),
        1 => times().prop_map(PatchCondition::DueAfter),
        1 => (0..3_u64).prop_map(PatchCondition::VersionIs),
    ]
}

fn change() -> impl Strategy<Value = PatchChange> {
    prop_oneof![
        3 => slots().prop_map(PatchChange::AddDone),
        1 => slots().prop_map(PatchChange::Reopen),
        2 => slots().prop_map(PatchChange::AddFailed),
        1 => (slots(), attempts(), 0..3_u32).prop_map(|(slot, attempt, mark)| PatchChange::AddLate(LateMark { slot, attempt, mark })),
        1 => slots().prop_map(PatchChange::AddSealed),
        2 => (slots(), attempts()).prop_map(|(slot, attempt)| PatchChange::SetAttempt(slot, attempt)),
        1 => epochs().prop_map(PatchChange::SetEpoch),
        1 => prop_oneof![Just(RunPhase::Running), Just(RunPhase::Cancelling), Just(RunPhase::Closed)]
            .prop_map(PatchChange::SetPhase),
        1 => times().prop_map(PatchChange::SetStopped),
        1 => times().prop_map(PatchChange::SetDue),
        1 => Just(PatchChange::ClearDue),
        1 => prop_oneof![times().prop_map(PatchChange::AnnounceRemoval), Just(PatchChange::WithdrawRemoval)],
        1 => prop::option::of(times()).prop_map(PatchChange::SetNotified),
        1 => Just(PatchChange::BumpVersion),
    ]
}

/// Returns true if one write can express the changes: a set has either additions or deletions.
fn expressible(changes: &[PatchChange]) -> bool {
    let reopens = changes.iter().any(|change| matches!(change, PatchChange::Reopen(_)));
    let adds = changes.iter().any(|change| matches!(change, PatchChange::AddDone(_) | PatchChange::AddFailed(_)));
    !(reopens && adds)
}

fn patch() -> impl Strategy<Value = Patch> {
    let changes = prop::collection::vec(change(), 0..4).prop_filter("expressible", |it| expressible(it));
    let conditions = prop::collection::vec(condition(), 0..4);
    (0..3_u32, conditions, changes).prop_map(|(shard, conditions, changes)| Patch {
        shard: Shard(shard),
        conditions,
        changes,
    })
}

/// Returns the epoch of an item that a patch creates.
pub fn epoch_of(patch: &Patch) -> Epoch {
    let mut epochs = patch.conditions.iter().filter_map(|condition| match condition {
        PatchCondition::EpochIs(epoch) => Some(*epoch),
        _ => None,
    });
    epochs.next_back().unwrap_or(Epoch::FIRST)
}

async fn check(fixture: &StoreFixture, name: &str, patches: &[Patch]) {
    let run = fixture.run(name).await;
    let mut model: BTreeMap<Shard, HeadState> = BTreeMap::new();
    let begun = HeadState { due: Some(new_run(name).due), ..HeadState::new(Epoch::FIRST) };
    model.insert(Shard::ROOT, begun);
    for patch in patches {
        let before = model.get(&patch.shard).cloned();
        let expected = patch.apply(before.as_ref(), epoch_of(patch));
        match (fixture.store.patch_run(&run, patch).await.unwrap(), expected) {
            (PatchResult::Written(head), Some(after)) => {
                assert_eq!((head.shard, &head.head), (patch.shard, &after), "{patch:?}");
                model.insert(patch.shard, after);
            }
            (PatchResult::ConditionFailed(image), None) => {
                assert_eq!(image.map(|image| image.head), before, "{patch:?}");
            }
            (patched, expected) => panic!("{patch:?} on {before:?}: {patched:?}, expected {expected:?}"),
        }
    }
    let heads = fixture.store.read_run(&run).await.unwrap();
    let heads: BTreeMap<Shard, HeadState> = heads.into_iter().map(|head| (head.shard, head.head)).collect();
    assert_eq!(heads, model);
}

pub(super) async fn the_table_applies_patches_like_the_engine(fixture: StoreFixture) {
    let runtime = tokio::runtime::Handle::current();
    let names = std::sync::atomic::AtomicU32::new(0);
    // The runner of the cases is not async.
    tokio::task::block_in_place(|| {
        proptest!(ProptestConfig::with_cases(96), |(patches in prop::collection::vec(patch(), 1..12))| {
            let name = names.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            runtime.block_on(check(&fixture, &format!("run-{name}"), &patches));
        });
    });
}
