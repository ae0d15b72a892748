//! Two invocations about one target, in every order of their operations on the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_engine::TargetPhase;
use ebb_tests::sim::{Blow, Fate, Faults, Kind, Scenario, SetupUnit, Side, Task, Turns, World};
use ebb_wire::cloudevents::Asked;

/// Operations whose order is tried: 2 to the power of this many orders, unless `EBB_RACE_TURNS` has another number.
const TURNS: usize = 7;

fn turns() -> usize {
    std::env::var("EBB_RACE_TURNS").ok().map_or(TURNS, |text| text.parse().expect("a number of turns"))
}

fn scenario() -> Scenario {
    Scenario::of(vec![SetupUnit::plain(Kind::Pod, 700, &[]), SetupUnit::plain(Kind::AtOnce, 900, &[0])])
}

/// Lets `race` happen in every order, lets the world come to rest, and gives it to `check`.
fn in_every_order(
    scenario: &Scenario,
    turns: usize,
    before: impl Fn(&Arc<World>),
    race: impl Fn(&Arc<World>) -> [Task<()>; 2],
    check: impl Fn(&Arc<World>) -> Result<(), String>,
) {
    let mut wrong = Vec::new();
    let mut most = 0;
    for order in 0..1u32 << turns {
        let world = Arc::new(World::new(scenario, Faults::default()));
        world.sweep();
        before(&world);
        let plan = Arc::new(Turns::new(
            world.runtime.clone(),
            2,
            (0..turns).map(|turn| (order >> turn & 1) as usize),
        ));
        world.table.guard(plan.clone());
        let tasks = race(&world);
        world.runtime.run(async move {
            for task in tasks {
                task.await;
            }
        });
        let rests = world.rest();
        most = most.max(plan.taken());
        let broken = world.functions.broken();
        let checked = check(&world);
        if !rests || !broken.is_empty() || checked.is_err() {
            let order = format!("{order:0turns$b}");
            wrong.push(format!("{order} {rests} {broken:?} {checked:?}\n{}", world.story()));
        }
    }
    assert!(most > turns / 2, "no order was followed for long");
    wrong.sort_by_key(String::len);
    assert!(wrong.is_empty(), "{} orders end wrong, the shortest:\n{}", wrong.len(), wrong[0]);
}

fn ask(world: &World, asked: Asked, uid: &str) -> Task<()> {
    let asked = world.ask_for(asked, uid);
    world.runtime.spawn(async move {
        asked.await;
    })
}

fn phase(world: &World) -> Option<(String, TargetPhase)> {
    world.target().map(|target| (target.uid, target.phase))
}

/// Nothing exists outside, every run is closed, and the target is gone, as a life of `uid`, or was never there.
fn gone(world: &World, uid: &str) -> Result<(), String> {
    let end = world.end(None, Vec::new());
    let phase = phase(world);
    let expected = (uid.to_owned(), TargetPhase::Gone);
    if phase.as_ref().is_none_or(|phase| *phase == expected) && end.left.is_empty() && end.wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{phase:?} {end:?}"))
}

#[test]
fn a_deletion_beside_its_creation_leaves_nothing() {
    let race =
        |world: &Arc<World>| [ask(world, Asked::Created, "uid-1"), ask(world, Asked::Deleted, "uid-1")];
    in_every_order(&scenario(), turns(), |_| {}, race, |world| gone(world, "uid-1"));
}

#[test]
fn a_creation_that_dies_beside_a_deletion_leaves_nothing() {
    for number in 1..=4 {
        for side in [Side::Before, Side::After] {
            let died = Arc::new(AtomicBool::new(false));
            let mark = Arc::clone(&died);
            let before = move |world: &Arc<World>| {
                let mark = Arc::clone(&mark);
                world.table.on_write(Arc::new(move |at, on| {
                    let hit = (at, on) == (number, side);
                    mark.fetch_or(hit, Ordering::Relaxed);
                    Box::pin(async move { if hit { Blow::Die } else { Blow::Go } })
                }));
            };
            let race = |world: &Arc<World>| {
                // The platform repeats the deletion, and not the creation.
                let (functions, event) = (Arc::clone(&world.functions), world.event(Asked::Created, "uid-1"));
                let creation = world.runtime.spawn(async move {
                    functions.lifecycle(Asked::Created, event).await.ok();
                });
                [creation, ask(world, Asked::Deleted, "uid-1")]
            };
            in_every_order(&scenario(), 9, before, race, |world| gone(world, "uid-1"));
            assert!(died.load(Ordering::Relaxed), "nobody died {side:?} write {number}");
        }
    }
}

#[test]
fn what_waits_for_a_name_begins_or_was_deleted() {
    let before = |world: &Arc<World>| {
        world.runtime.run(world.ask(Asked::Created));
        assert!(world.rest());
        world.runtime.run(world.ask_for(Asked::Created, "uid-2"));
    };
    let race =
        |world: &Arc<World>| [ask(world, Asked::Deleted, "uid-1"), ask(world, Asked::Deleted, "uid-2")];
    let check = |world: &Arc<World>| gone(world, "uid-1").or_else(|_| gone(world, "uid-2"));
    in_every_order(&scenario(), turns(), before, race, check);
}

#[test]
fn a_new_life_beside_the_end_of_the_former_one_begins() {
    let before = |world: &Arc<World>| {
        world.runtime.run(world.ask(Asked::Created));
        assert!(world.rest());
    };
    let race =
        |world: &Arc<World>| [ask(world, Asked::Deleted, "uid-1"), ask(world, Asked::Created, "uid-2")];
    let check = |world: &Arc<World>| {
        let end = world.end(None, Vec::new());
        let ready = phase(world) == Some(("uid-2".to_owned(), TargetPhase::Ready));
        if ready && end.wrong.is_empty() && end.left.len() == 2 { Ok(()) } else { Err(format!("{end:?}")) }
    };
    in_every_order(&scenario(), turns(), before, race, check);
}

#[test]
fn a_retry_beside_a_deletion_leaves_nothing() {
    let mut scenario = scenario();
    scenario.units[1].fate = Fate::Never;
    let before = |world: &Arc<World>| {
        world.runtime.run(world.ask(Asked::Created));
        assert!(world.rest());
        assert_eq!(phase(world), Some(("uid-1".to_owned(), TargetPhase::Failed)));
    };
    let race = |world: &Arc<World>| {
        let functions = Arc::clone(&world.functions);
        let retry = world.runtime.spawn(async move {
            functions.retry("sandbox", "s").await.ok();
        });
        [retry, ask(world, Asked::Deleted, "uid-1")]
    };
    in_every_order(&scenario, turns(), before, race, |world| gone(world, "uid-1"));
}
