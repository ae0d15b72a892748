//! Small graphs, with two deaths in a row or a stop at every numbered write.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_engine::TargetPhase;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_tests::sim::{
    Scenario, ScenarioAction, ScenarioEnd, ScenarioFaults, ScenarioSimulation, SetupUnit, WriteFate, WriteSide,
};

/// Milliseconds by which units differ, so that nothing ends at the same time.
const STEP: u64 = 700;

fn graph(kind: ScenarioAction, edges: &[&[usize]]) -> Scenario {
    let unit = |(position, reads): (usize, &&[usize])| {
        SetupUnit::plain(kind, STEP * (u64::try_from(position).expect("few units") + 1), reads)
    };
    Scenario::of(edges.iter().enumerate().map(unit).collect())
}

/// Chain, fan-in and diamond, of every kind of unit.
fn graphs() -> Vec<(String, Scenario)> {
    let shapes: [(&str, &[&[usize]]); 3] =
        [("chain", &[&[], &[0]]), ("fan-in", &[&[], &[], &[0, 1]]), ("diamond", &[&[], &[0], &[0], &[1, 2]])];
    let mut all = Vec::new();
    for kind in [ScenarioAction::Pod, ScenarioAction::AtOnce, ScenarioAction::Later] {
        for (name, edges) in shapes {
            all.push((format!("{name} of {kind:?}"), graph(kind, edges)));
        }
    }
    all
}

fn undisturbed(scenario: &Scenario) -> (ScenarioEnd, u64) {
    let simulation = Arc::new(ScenarioSimulation::new(scenario, ScenarioFaults::default()));
    let end = simulation.run();
    assert_eq!(end.violations, Vec::<String>::new(), "{}", simulation.trace());
    assert_eq!((end.setup, end.phase), (Some(TargetPhase::Ready), Some(TargetPhase::Gone)));
    assert!(end.remaining.is_empty());
    let told: Vec<&str> = end.notifications.iter().map(String::as_str).collect();
    assert_eq!(told, ["dev.ebb.target.gone.v1", "dev.ebb.target.ready.v1"]);
    (end, simulation.table.writes())
}

#[test]
fn two_crashes_in_a_row_change_nothing() {
    let mut wrong = Vec::new();
    for (name, scenario) in graphs().into_iter().filter(|(name, _)| name.starts_with("chain")) {
        let (expected, writes) = undisturbed(&scenario);
        for first in 1..=writes {
            for second in first + 1..=first + 4 {
                let simulation = Arc::new(ScenarioSimulation::new(&scenario, ScenarioFaults::default()));
                simulation.table.on_write(Arc::new(move |at, on| {
                    let hit = on == WriteSide::After && (at == first || at == second);
                    Box::pin(async move { if hit { WriteFate::Die } else { WriteFate::Proceed } })
                }));
                let end = simulation.run();
                if end != expected {
                    let what =
                        format!("{name}: dies after writes {first} and {second}: {end:?}\n{}", simulation.trace());
                    wrong.push(what);
                }
            }
        }
    }
    wrong.sort_by_key(String::len);
    assert!(wrong.is_empty(), "{} schedules end otherwise, the shortest:\n{}", wrong.len(), wrong[0]);
}

/// What a stop in the middle has to leave: nothing, and no start that was decided after it.
fn check_cancelled(
    simulation: &ScenarioSimulation,
    end: &ScenarioEnd,
    asked_at: Option<(u64, u64)>,
    landing: u64,
) -> Option<String> {
    if !end.violations.is_empty() || !end.remaining.is_empty() {
        return Some(format!("{end:?}"));
    }
    if !matches!(end.phase, None | Some(TargetPhase::Gone)) {
        return Some(format!("the target is {:?}", end.phase));
    }
    let began = !simulation.table.state().heads.is_empty();
    if began && !end.notifications.contains("dev.ebb.target.gone.v1") {
        return Some(format!("the platform does not know that it is gone: {:?}", end.notifications));
    }
    let (at, newest) = asked_at?;
    let state = simulation.ledger.state();
    let late = state
        .sent
        .iter()
        .find(|sent| sent.fresh && sent.unit.starts_with('u') && (sent.at > at + landing || sent.by.0 > newest));
    late.map(|sent| format!("{sent:?} after the stop at {at}"))
}

#[test]
fn a_stop_at_any_write_leaves_nothing() {
    let mut wrong = Vec::new();
    for landing_ms in [500, 30_000] {
        for (name, scenario) in graphs() {
            let (_, writes) = undisturbed(&scenario);
            for number in 1..=writes {
                for side in [WriteSide::Before, WriteSide::After] {
                    let faults = ScenarioFaults { max_in_flight_ms: landing_ms, ..ScenarioFaults::default() };
                    let simulation = Arc::new(ScenarioSimulation::new(&scenario, faults));
                    let asked = stop_at(&simulation, number, side);
                    let end = simulation.run();
                    let asked = *asked.lock().expect("no panic while it is held");
                    if let Some(why) = check_cancelled(&simulation, &end, asked, landing_ms) {
                        let story = simulation.trace();
                        wrong.push(format!("{name}, L = {landing_ms}: stop {side:?} write {number}: {why}\n{story}"));
                    }
                }
            }
        }
    }
    wrong.sort_by_key(String::len);
    let names: Vec<&str> = wrong.iter().filter_map(|text| text.lines().next()).collect();
    assert!(wrong.is_empty(), "{}\n{} in all, the shortest:\n{}", names.join("\n"), wrong.len(), wrong[0]);
}

/// When a stop was answered, and the newest task by then.
pub(crate) type AnsweredStop = Arc<std::sync::Mutex<Option<(u64, u64)>>>;

/// Deletes the target at one side of one write. The writer goes on when the deletion is answered, or a millisecond
/// later if it takes longer. Gives when it was answered, and the newest invocation by then.
fn stop_at(simulation: &Arc<ScenarioSimulation>, number: u64, side: WriteSide) -> AnsweredStop {
    disturb(simulation, Some((number, side)), BTreeSet::new())
}

/// Stops the target at one side of one write, and has the writers die after those of `deaths`.
pub(crate) fn disturb(
    simulation: &Arc<ScenarioSimulation>,
    stop: Option<(u64, WriteSide)>,
    deaths: BTreeSet<u64>,
) -> AnsweredStop {
    let asked = AnsweredStop::default();
    let (mark, of) = (Arc::clone(&asked), Arc::downgrade(simulation));
    simulation.table.on_write(Arc::new(move |at, on| {
        let simulation = of.upgrade().filter(|_| stop == Some((at, on)));
        let mark = Arc::clone(&mark);
        let blow = if on == WriteSide::After && deaths.contains(&at) { WriteFate::Die } else { WriteFate::Proceed };
        Box::pin(async move {
            if let Some(simulation) = simulation {
                let runtime = simulation.runtime.clone();
                let (deletion, clock) = (simulation.send_lifecycle(LifecycleType::Deleted), runtime.clone());
                drop(simulation);
                let task = runtime.spawn(async move {
                    deletion.await;
                    *mark.lock().expect("no panic while it is held") = Some((clock.elapsed(), clock.newest().0));
                });
                let patience = runtime.sleep(1);
                runtime.first(task, patience).await;
            }
            blow
        })
    }));
    asked
}
