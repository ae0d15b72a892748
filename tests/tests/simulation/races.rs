//! Two invocations about one target, in every order of their operations on the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_engine::TargetPhase;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_tests::sim::{
    AttemptFate, Scenario, ScenarioAction, ScenarioFaults, ScenarioSimulation, SetupUnit, SimTask, TableTurns,
    WriteFate, WriteSide,
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

/// Runs `race` in every order, lets the simulation come to rest, and passes it to `check`.
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
        let simulation = Arc::new(ScenarioSimulation::new(scenario, ScenarioFaults::default()));
        simulation.sweep();
        before(&simulation);
        let plan = Arc::new(TableTurns::new(
            simulation.runtime.clone(),
            2,
            (0..turns).map(|turn| (order >> turn & 1) as usize),
        ));
        simulation.table.set_gate(plan.clone());
        let tasks = race(&simulation);
        simulation.runtime.run(async move {
            for task in tasks {
                task.await;
            }
        });
        let rests = simulation.run_until_idle();
        most = most.max(plan.taken());
        let broken = simulation.functions.broken();
        let checked = check(&simulation);
        if !rests || !broken.is_empty() || checked.is_err() {
            let order = format!("{order:0turns$b}");
            wrong.push(format!("{order} {rests} {broken:?} {checked:?}\n{}", simulation.trace()));
        }
    }
    assert!(most > turns / 2, "no order was followed for long");
    wrong.sort_by_key(String::len);
    assert!(wrong.is_empty(), "{} orders end wrong, the shortest:\n{}", wrong.len(), wrong[0]);
}

fn ask(simulation: &ScenarioSimulation, asked: LifecycleType, uid: &str) -> SimTask<()> {
    let asked = simulation.send_lifecycle_of(asked, uid);
    simulation.runtime.spawn(async move {
        asked.await;
    })
}

fn phase(simulation: &ScenarioSimulation) -> Option<(String, TargetPhase)> {
    simulation.target().map(|target| (target.uid, target.phase))
}

/// Nothing exists outside, every run is closed, and the target is gone, as an instance of `uid`, or was never there.
fn gone(simulation: &ScenarioSimulation, uid: &str) -> Result<(), String> {
    let end = simulation.end(None, Vec::new());
    let phase = phase(simulation);
    let expected = (uid.to_owned(), TargetPhase::Gone);
    if phase.as_ref().is_none_or(|phase| *phase == expected) && end.remaining.is_empty() && end.violations.is_empty() {
        return Ok(());
    }
    Err(format!("{phase:?} {end:?}"))
}

#[test]
fn a_deletion_beside_its_creation_leaves_nothing() {
    let race = |simulation: &Arc<ScenarioSimulation>| {
        [ask(simulation, LifecycleType::Created, "uid-1"), ask(simulation, LifecycleType::Deleted, "uid-1")]
    };
    in_every_order(&scenario(), turns(), |_| {}, race, |simulation| gone(simulation, "uid-1"));
}

#[test]
fn a_creation_that_dies_beside_a_deletion_leaves_nothing() {
    for number in 1..=4 {
        for side in [WriteSide::Before, WriteSide::After] {
            let died = Arc::new(AtomicBool::new(false));
            let mark = Arc::clone(&died);
            let before = move |simulation: &Arc<ScenarioSimulation>| {
                let mark = Arc::clone(&mark);
                simulation.table.on_write(Arc::new(move |at, on| {
                    let hit = (at, on) == (number, side);
                    mark.fetch_or(hit, Ordering::Relaxed);
                    Box::pin(async move { if hit { WriteFate::Die } else { WriteFate::Proceed } })
                }));
            };
            let race = |simulation: &Arc<ScenarioSimulation>| {
                // The platform repeats the deletion, and not the creation.
                let (functions, event) =
                    (Arc::clone(&simulation.functions), simulation.event(LifecycleType::Created, "uid-1"));
                let creation = simulation.runtime.spawn(async move {
                    functions.lifecycle(LifecycleType::Created, event).await.ok();
                });
                [creation, ask(simulation, LifecycleType::Deleted, "uid-1")]
            };
            in_every_order(&scenario(), 9, before, race, |simulation| gone(simulation, "uid-1"));
            assert!(died.load(Ordering::Relaxed), "nobody died {side:?} write {number}");
        }
    }
}

#[test]
fn what_waits_for_a_name_begins_or_was_deleted() {
    let before = |simulation: &Arc<ScenarioSimulation>| {
        simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created));
        assert!(simulation.run_until_idle());
        simulation.runtime.run(simulation.send_lifecycle_of(LifecycleType::Created, "uid-2"));
    };
    let race = |simulation: &Arc<ScenarioSimulation>| {
        [ask(simulation, LifecycleType::Deleted, "uid-1"), ask(simulation, LifecycleType::Deleted, "uid-2")]
    };
    let check = |simulation: &Arc<ScenarioSimulation>| gone(simulation, "uid-1").or_else(|_| gone(simulation, "uid-2"));
    in_every_order(&scenario(), turns(), before, race, check);
}

#[test]
fn a_new_life_beside_the_end_of_the_former_one_begins() {
    let before = |simulation: &Arc<ScenarioSimulation>| {
        simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created));
        assert!(simulation.run_until_idle());
    };
    let race = |simulation: &Arc<ScenarioSimulation>| {
        [ask(simulation, LifecycleType::Deleted, "uid-1"), ask(simulation, LifecycleType::Created, "uid-2")]
    };
    let check = |simulation: &Arc<ScenarioSimulation>| {
        let end = simulation.end(None, Vec::new());
        let ready = phase(simulation) == Some(("uid-2".to_owned(), TargetPhase::Ready));
        if ready && end.violations.is_empty() && end.remaining.len() == 2 { Ok(()) } else { Err(format!("{end:?}")) }
    };
    in_every_order(&scenario(), turns(), before, race, check);
}

#[test]
fn a_retry_beside_a_deletion_leaves_nothing() {
    let mut scenario = scenario();
    scenario.units[1].fate = AttemptFate::Never;
    let before = |simulation: &Arc<ScenarioSimulation>| {
        simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created));
        assert!(simulation.run_until_idle());
        assert_eq!(phase(simulation), Some(("uid-1".to_owned(), TargetPhase::Failed)));
    };
    let race = |simulation: &Arc<ScenarioSimulation>| {
        let functions = Arc::clone(&simulation.functions);
        let retry = simulation.runtime.spawn(async move {
            functions.retry("sandbox", "s").await.ok();
        });
        [retry, ask(simulation, LifecycleType::Deleted, "uid-1")]
    };
    in_every_order(&scenario, turns(), before, race, |simulation| gone(simulation, "uid-1"));
}
