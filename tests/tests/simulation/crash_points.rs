//! Small graphs with two crashes, or with a deletion at each write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ebb_engine::TargetPhase;
use ebb_tests::simulation::{
    FaultInjector, FaultKind, PlatformSender, Scenario, SetupUnit, SimInstance, SimOptions, SimRuntime, SimTaskId,
    Simulation, TableAccess, TableGate, TargetScenario, UnitAction, WriteFate,
};

use crate::regressions::with_events;

/// The difference between the durations of units, so that no two of them end at the same time.
const STEP: u64 = 700;

/// Returns a graph of each kind of unit. `reads` has the lower units that each unit reads.
fn graphs(reads: &[&[usize]]) -> [(UnitAction, TargetScenario); 3] {
    [UnitAction::Pod, UnitAction::Once, UnitAction::Later].map(|action| {
        let units = (1..).zip(reads).map(|(number, reads)| SetupUnit::plain(action, STEP * number, reads));
        (action, Scenario::of(units.collect()).target())
    })
}

/// Panics if there is a text. The message has the first line of each text, and the whole shortest text.
pub(crate) fn assert_none(mut wrong: Vec<String>) {
    wrong.sort_by_key(String::len);
    let names: Vec<&str> = wrong.iter().filter_map(|text| text.lines().next()).collect();
    assert!(wrong.is_empty(), "{}\n{} in all, the shortest:\n{}", names.join("\n"), wrong.len(), wrong[0]);
}

#[test]
fn two_crashes_do_not_change_the_result() {
    let mut wrong = Vec::new();
    for (action, target) in graphs(&[&[], &[0]]) {
        let run = |faults| {
            let simulation = Simulation::of(&target, SimOptions { faults, ..SimOptions::default() });
            (simulation.run_to_end(), simulation)
        };
        let (expected, without_faults) = run(FaultInjector::none());
        assert_eq!(expected.violations, Vec::<String>::new(), "{}", without_faults.trace());
        assert_eq!((expected.setup, expected.phase), (Some(TargetPhase::Ready), Some(TargetPhase::Gone)));
        assert!(expected.remaining.is_empty());
        let notifications: Vec<&str> = expected.notifications.iter().map(String::as_str).collect();
        assert_eq!(notifications, ["dev.ebb.target.gone.v1", "dev.ebb.target.ready.v1"]);
        let writes = without_faults.table.writes();
        for (first, second) in (1..=writes).flat_map(|first| (first + 1..=first + 4).map(move |second| (first, second)))
        {
            let (end, simulation) = run(FaultInjector::none().and_at(FaultKind::DeathAfterWrite, [first, second]));
            if end != expected {
                let trace = simulation.trace();
                wrong.push(format!("{action:?}: crashes after writes {first} and {second}: {end:?}\n{trace}"));
            }
        }
    }
    assert_none(wrong);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteSide {
    Before,
    /// The table has the write, and the writer has no response yet.
    After,
}

/// Deletes the target before or after the write with this number. The writer continues after the response, or a millisecond
/// later if the response takes longer.
struct DeletionAtWrite {
    runtime: SimRuntime,
    platform: PlatformSender,
    instance: SimInstance,
    at: (u64, WriteSide),
    writes: AtomicU64,
    /// The newest task at the time of the response to the deletion.
    response: Arc<Mutex<Option<SimTaskId>>>,
}

impl DeletionAtWrite {
    async fn delete(&self) {
        let (runtime, platform, instance) = (self.runtime.clone(), self.platform.clone(), self.instance.clone());
        let response = Arc::clone(&self.response);
        let task = self.runtime.spawn(async move {
            platform.delete(&instance).await;
            *response.lock().unwrap() = Some(runtime.newest());
        });
        self.runtime.first(task, self.runtime.sleep(1)).await;
    }
}

#[async_trait]
impl TableGate for DeletionAtWrite {
    async fn pass(&self, access: TableAccess, _: &'static str) -> WriteFate {
        if access == TableAccess::Write {
            let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
            if self.at == (number, WriteSide::Before) {
                self.delete().await;
            }
        }
        WriteFate::Proceed
    }

    async fn wrote(&self) {
        // No other write has started since this one passed.
        if self.at == (self.writes.load(Ordering::Relaxed), WriteSide::After) {
            self.delete().await;
        }
    }
}

/// No invocation that begins after the response to the deletion starts a setup unit.
#[test]
fn no_object_remains_after_a_deletion_at_any_write() {
    let mut wrong = Vec::new();
    // A diamond has a chain and a fan-in.
    let targets = graphs(&[&[], &[0], &[0], &[1, 2]]).map(|(_, target)| target).into_iter().chain([with_events()]);
    for (target, max_in_flight_ms) in targets.flat_map(|target| [500, 30_000].map(|limit| (target.clone(), limit))) {
        let simulation = || Simulation::of(&target, SimOptions { max_in_flight_ms, ..SimOptions::default() });
        let without_deletion = simulation();
        without_deletion.run_to_end();
        let writes = 1..=without_deletion.table.writes();
        for (number, side) in writes.flat_map(|at| [(at, WriteSide::Before), (at, WriteSide::After)]) {
            let simulation = simulation();
            let gate = Arc::new(DeletionAtWrite {
                runtime: simulation.runtime.clone(),
                platform: simulation.platform.clone(),
                instance: simulation.instances[0].clone(),
                at: (number, side),
                writes: AtomicU64::new(0),
                response: Arc::default(),
            });
            simulation.table.set_gate(gate.clone());
            let end = simulation.run_to_end();
            let newest = *gate.response.lock().unwrap();
            let is_late = newest.is_some_and(|newest| {
                simulation.ledger.state().attempts.iter().any(|attempt| attempt.unit.sets_up() && attempt.by > newest)
            });
            let is_gone = matches!(end.phase, None | Some(TargetPhase::Gone));
            if is_late || !is_gone || !end.violations.is_empty() || !end.remaining.is_empty() {
                let case = format!("in-flight limit {max_in_flight_ms}, {side:?} write {number}, late: {is_late}");
                wrong.push(format!("{case}: {end:?}\n{}", simulation.trace()));
            }
        }
    }
    assert_none(wrong);
}
