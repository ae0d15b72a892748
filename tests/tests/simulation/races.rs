//! Two invocations about one target, in every order of their operations on the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_engine::TargetPhase;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_tests::sim::{
    AttemptFate, Scenario, ScenarioAction, ScenarioFaults, ScenarioSimulation, SetupUnit, SimTask,
    TableTurns, WriteFate, WriteSide,
};

/// Operations whose order is tried: 2 to the power of this many orders, unless `EBB_RACE_TURNS` has another number.
const TURNS: usize = 7;

fn turns() -> usize {
    std::env::var("EBB_RACE_TURNS").ok().map_or(TURNS, |text| text.parse().expect("a number of turns"))
}

fn scenario() -> Scenario {
    Scenario::of(vec![
        SetupUnit::plain(ScenarioAction::Pod, 700, &[]),
        SetupUnit::plain(ScenarioAction::AtOnce, 900, &[0]),
    ])
}

/// Lets `race` happen in every order, lets the world come to rest, and gives it to `check`.
fn in_every_order(
    scenario: &Scenario,
    turns: usize,
    before: impl Fn(&Arc<ScenarioSimulation>),
    race: impl Fn(&Arc<ScenarioSimulation>) -> [SimTask<()>; 2],
    check: impl Fn(&Arc<ScenarioSimulation>) -> Result<(), String>,
) {
    let mut wrong = Vec::new();
    let mut most = 0;
    for order in 0..1u32 << turns {
        let world = Arc::new(ScenarioSimulation::new(scenario, ScenarioFaults::default()));
        world.sweep();
        before(&world);
        let plan = Arc::new(TableTurns::new(
            world.runtime.clone(),
            2,
            (0..turns).map(|turn| (order >> turn & 1) as usize),
        ));
        world.table.set_gate(plan.clone());
        let tasks = race(&world);
        world.runtime.run(async move {
            for task in tasks {
                task.await;
            }
        });
        let rests = world.run_until_idle();
        most = most.max(plan.taken());
        let broken = world.functions.broken();
        let checked = check(&world);
        if !rests || !broken.is_empty() || checked.is_err() {
            let order = format!("{order:0turns$b}");
            wrong.push(format!("{order} {rests} {broken:?} {checked:?}\n{}", world.trace()));
        }
    }
    assert!(most > turns / 2, "no order was followed for long");
    wrong.sort_by_key(String::len);
    assert!(wrong.is_empty(), "{} orders end wrong, the shortest:\n{}", wrong.len(), wrong[0]);
}

fn ask(world: &ScenarioSimulation, asked: LifecycleType, uid: &str) -> SimTask<()> {
    let asked = world.send_lifecycle_of(asked, uid);
    world.runtime.spawn(async move {
        asked.await;
    })
}

fn phase(world: &ScenarioSimulation) -> Option<(String, TargetPhase)> {
    world.target().map(|target| (target.uid, target.phase))
}

/// Nothing exists outside, every run is closed, and the target is gone, as a life of `uid`, or was never there.
fn gone(world: &ScenarioSimulation, uid: &str) -> Result<(), String> {
    let end = world.end(None, Vec::new());
    let phase = phase(world);
    let expected = (uid.to_owned(), TargetPhase::Gone);
    if phase.as_ref().is_none_or(|phase| *phase == expected)
        && end.remaining.is_empty()
        && end.violations.is_empty()
    {
        return Ok(());
    }
    Err(format!("{phase:?} {end:?}"))
}

#[test]
fn a_deletion_beside_its_creation_leaves_nothing() {
    let race = |world: &Arc<ScenarioSimulation>| {
        [ask(world, LifecycleType::Created, "uid-1"), ask(world, LifecycleType::Deleted, "uid-1")]
    };
    in_every_order(&scenario(), turns(), |_| {}, race, |world| gone(world, "uid-1"));
}

#[test]
fn a_creation_that_dies_beside_a_deletion_leaves_nothing() {
    for number in 1..=4 {
        for side in [WriteSide::Before, WriteSide::After] {
            let died = Arc::new(AtomicBool::new(false));
            let mark = Arc::clone(&died);
            let before = move |world: &Arc<ScenarioSimulation>| {
                let mark = Arc::clone(&mark);
                world.table.on_write(Arc::new(move |at, on| {
                    let hit = (at, on) == (number, side);
                    mark.fetch_or(hit, Ordering::Relaxed);
                    Box::pin(async move { if hit { WriteFate::Die } else { WriteFate::Proceed } })
                }));
            };
            let race = |world: &Arc<ScenarioSimulation>| {
                // The platform repeats the deletion, and not the creation.
                let (functions, event) =
                    (Arc::clone(&world.functions), world.event(LifecycleType::Created, "uid-1"));
                let creation = world.runtime.spawn(async move {
                    functions.lifecycle(LifecycleType::Created, event).await.ok();
                });
                [creation, ask(world, LifecycleType::Deleted, "uid-1")]
            };
            in_every_order(&scenario(), 9, before, race, |world| gone(world, "uid-1"));
            assert!(died.load(Ordering::Relaxed), "nobody died {side:?} write {number}");
        }
    }
}

#[test]
fn what_waits_for_a_name_begins_or_was_deleted() {
    let before = |world: &Arc<ScenarioSimulation>| {
        world.runtime.run(world.send_lifecycle(LifecycleType::Created));
        assert!(world.run_until_idle());
        world.runtime.run(world.send_lifecycle_of(LifecycleType::Created, "uid-2"));
    };
    let race = |world: &Arc<ScenarioSimulation>| {
        [ask(world, LifecycleType::Deleted, "uid-1"), ask(world, LifecycleType::Deleted, "uid-2")]
    };
    let check = |world: &Arc<ScenarioSimulation>| gone(world, "uid-1").or_else(|_| gone(world, "uid-2"));
    in_every_order(&scenario(), turns(), before, race, check);
}

#[test]
fn a_new_life_beside_the_end_of_the_former_one_begins() {
    let before = |world: &Arc<ScenarioSimulation>| {
        world.runtime.run(world.send_lifecycle(LifecycleType::Created));
        assert!(world.run_until_idle());
    };
    let race = |world: &Arc<ScenarioSimulation>| {
        [ask(world, LifecycleType::Deleted, "uid-1"), ask(world, LifecycleType::Created, "uid-2")]
    };
    let check = |world: &Arc<ScenarioSimulation>| {
        let end = world.end(None, Vec::new());
        let ready = phase(world) == Some(("uid-2".to_owned(), TargetPhase::Ready));
        if ready && end.violations.is_empty() && end.remaining.len() == 2 {
            Ok(())
        } else {
            Err(format!("{end:?}"))
        }
    };
    in_every_order(&scenario(), turns(), before, race, check);
}

#[test]
fn a_retry_beside_a_deletion_leaves_nothing() {
    let mut scenario = scenario();
    scenario.units[1].fate = AttemptFate::Never;
    let before = |world: &Arc<ScenarioSimulation>| {
        world.runtime.run(world.send_lifecycle(LifecycleType::Created));
        assert!(world.run_until_idle());
        assert_eq!(phase(world), Some(("uid-1".to_owned(), TargetPhase::Failed)));
    };
    let race = |world: &Arc<ScenarioSimulation>| {
        let functions = Arc::clone(&world.functions);
        let retry = world.runtime.spawn(async move {
            functions.retry("sandbox", "s").await.ok();
        });
        [retry, ask(world, LifecycleType::Deleted, "uid-1")]
    };
    in_every_order(&scenario, turns(), before, race, |world| gone(world, "uid-1"));
}
