//! Targets of a source that lists what exists at its sender. The sender closes a thing without an event.

use ebb_engine::TargetPhase;
use ebb_store::{DesiredKey, DesiredTarget};
use ebb_tests::simulation::{FaultInjector, FaultKind, KIND, Scenario, SetupUnit, Simulation, UnitAction};

use crate::crash_points::assert_none;
use crate::regressions::assert_end;

const MINUTE: u64 = 60_000;

/// Returns a simulation of a target whose thing is open, after six minutes and two lists.
fn opened(faults: FaultInjector) -> Simulation {
    let target = Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 900, &[])]).target();
    let simulation = Simulation::scheduled(&target, faults);
    simulation.observe_sources(&["src"]);
    simulation.set_thing("src", "s", true);
    let key = DesiredKey { source: "src".to_owned(), kind: KIND.to_owned(), name: "s".to_owned(), uid: None };
    let document = target.document.replace("NAME", "s").replacen("resources:", "labels: {by: src}\nresources:", 1);
    let event = DesiredTarget { delivery: "1".to_owned(), key, document: Some(document), ..DesiredTarget::default() };
    simulation.invoke(|functions| async move { functions.source_event(event).await }).unwrap().unwrap();
    simulation.advance(6 * MINUTE + 1_000);
    assert_end(&simulation, TargetPhase::Ready);
    simulation
}

/// `every`, `grace` and two sweeps after the closing, its target has ended. One list is not enough.
#[test]
fn a_target_without_its_closing_event_ends_after_two_lists() {
    let simulation = opened(FaultInjector::none());
    simulation.set_thing("src", "s", false);
    simulation.advance(9 * MINUTE);
    assert_end(&simulation, TargetPhase::Ready);
    simulation.advance(3 * MINUTE);
    assert_end(&simulation, TargetPhase::Gone);
}

/// The thing is open, so its target stays, and ends when it is closed.
#[test]
fn two_wrong_lists_end_no_target() {
    for kind in [FaultKind::ListAway, FaultKind::ListCut, FaultKind::ListForeign, FaultKind::ListLimited] {
        let simulation = opened(FaultInjector::none().and_at(kind, [2, 3]));
        simulation.set_thing("other", "x", true);
        simulation.advance(60 * MINUTE);
        assert_end(&simulation, TargetPhase::Ready);
        simulation.set_thing("src", "s", false);
        simulation.advance(180 * MINUTE);
        assert_end(&simulation, TargetPhase::Gone);
        assert_eq!(simulation.injected(kind), 2, "{kind}\n{}", simulation.trace());
    }
}

/// An invocation dies before or after a write of the observations and of the removal.
#[test]
fn a_crash_of_an_observation_changes_nothing() {
    let run = |faults| {
        let simulation = opened(faults);
        let first = simulation.table.writes() + 1;
        simulation.set_thing("src", "s", false);
        simulation.advance(30 * MINUTE);
        (first..=simulation.table.writes(), simulation)
    };
    let (writes, without_faults) = run(FaultInjector::none());
    let (expected, mut wrong) = (assert_end(&without_faults, TargetPhase::Gone), Vec::new());
    for number in writes {
        for kind in [FaultKind::DeathBeforeWrite, FaultKind::DeathAfterWrite] {
            let (_, simulation) = run(FaultInjector::none().and_at(kind, [number]));
            let end = simulation.end(None);
            if end != expected || simulation.injected(kind) != 1 {
                wrong.push(format!("{kind} {number}: {end:?}\n{}", simulation.trace()));
            }
        }
    }
    assert_none(wrong);
}
