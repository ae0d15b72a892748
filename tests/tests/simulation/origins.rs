//! A target of a source that lists what exists at its sender, which closes a thing without an event. `steps.yaml` has the
//! faults of lists.

use ebb_engine::TargetPhase;
use ebb_tests::simulation::{FaultInjector, FaultKind, Simulation};

use crate::crash_points::assert_none;
use crate::regressions::assert_end;
use crate::source_states::{applied, send, target};

const MINUTE: u64 = 60_000;

/// An invocation dies before or after a write of the observations and of the removal.
#[test]
fn a_crash_of_an_observation_changes_nothing() {
    let run = |faults| {
        let simulation = Simulation::scheduled(&target(), faults);
        simulation.observe_sources(&["src"]);
        simulation.set_thing("src", "s", true);
        send(&simulation, applied("1", None));
        simulation.advance(6 * MINUTE + 1_000);
        assert_end(&simulation, TargetPhase::Ready);
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
