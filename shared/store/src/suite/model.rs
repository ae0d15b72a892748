//! Compares the table with `Patch::apply`.

use ebb_protocol::engine::{HeadState, PatchCondition, RunPhase};
use proptest::prelude::*;

use super::fixture::*;

/// Returns units whose stored numbers have digits in common.
fn units() -> impl Strategy<Value = Unit> {
    prop_oneof![4 => 0..4_u32, 1 => prop::sample::select(vec![36, 360, 999])].prop_map(Unit)
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
        2 => (units(), attempts()).prop_map(|(unit, attempt)| PatchCondition::AttemptIs(unit, attempt)),
        2 => units().prop_map(PatchCondition::NotDone),
        2 => units().prop_map(PatchCondition::NotFailed),
        1 => times().prop_map(PatchCondition::DueIs),
        1 => times().prop_map(PatchCondition::DueAfter),
        1 => (0..3_u64).prop_map(PatchCondition::VersionIs),
    ]
}

fn change() -> impl Strategy<Value = PatchChange> {
    prop_oneof![
        3 => units().prop_map(PatchChange::AddDone),
        1 => units().prop_map(PatchChange::Reopen),
        2 => units().prop_map(PatchChange::AddFailed),
        1 => (units(), attempts(), 0..3_u32).prop_map(|(unit, attempt, mark)| PatchChange::AddLate(LateMark { unit, attempt, mark })),
        1 => units().prop_map(PatchChange::AddSealed),
        2 => (units(), attempts()).prop_map(|(unit, attempt)| PatchChange::SetAttempt(unit, attempt)),
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

fn patch() -> impl Strategy<Value = Patch> {
    // One write can express the changes: a set has either additions or deletions.
    let changes = prop::collection::vec(change(), 0..4).prop_filter("expressible", |changes| {
        let reopens = changes.iter().any(|change| matches!(change, PatchChange::Reopen(_)));
        let adds = changes.iter().any(|change| matches!(change, PatchChange::AddDone(_) | PatchChange::AddFailed(_)));
        !(reopens && adds)
    });
    let conditions = prop::collection::vec(condition(), 0..4);
    (conditions, changes).prop_map(|(conditions, changes)| Patch { conditions, changes })
}

async fn check(fixture: &StoreFixture, name: &str, patches: &[Patch]) {
    let (missing, first) = (new_run(name).id, &patches[0]);
    let patched = fixture.store.patch_run(&missing, first).await.unwrap();
    assert_eq!(patched, PatchResult::ConditionFailed(None), "{first:?} without a run");
    assert_eq!(fixture.store.read_run(&missing).await.unwrap(), None);
    let run = fixture.run(name).await;
    let head = HeadState { due: Some(new_run(name).due), ..HeadState::new(Epoch::FIRST) };
    let mut model = RunHead { head, facts: new_run(name).facts };
    for patch in patches {
        match (fixture.store.patch_run(&run, patch).await.unwrap(), patch.apply(&model.head)) {
            (PatchResult::Written(image), Some(after)) => {
                model.head = after;
                assert_eq!(image, model, "{patch:?}");
            }
            (PatchResult::ConditionFailed(image), None) => assert_eq!(image.as_ref(), Some(&model), "{patch:?}"),
            (patched, expected) => panic!("{patch:?} on {model:?}: {patched:?}, expected {expected:?}"),
        }
    }
    assert_eq!(fixture.store.read_run(&run).await.unwrap(), Some(model));
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

pub(super) async fn a_run_gets_the_digest_of_another_plan(fixture: StoreFixture) {
    let (run, plan) = (fixture.run("a").await, ebb_protocol::id::digest(b"another plan"));
    let before = fixture.store.read_run(&run).await.unwrap().unwrap();
    assert!(fixture.store.set_run_plan(&run, &plan).await.unwrap());
    let facts = RunFacts { plan: plan.clone(), ..new_run("a").facts };
    assert_eq!(fixture.store.read_run(&run).await.unwrap(), Some(RunHead { facts, ..before }));
    let missing = new_run("b").id;
    assert!(!fixture.store.set_run_plan(&missing, &plan).await.unwrap());
    assert_eq!(fixture.store.read_run(&missing).await.unwrap(), None);
}
