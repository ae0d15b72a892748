//! Small graphs with two crashes. A deletion at a write, for random graphs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ebb_engine::TargetPhase;
use ebb_tests::simulation::{
    FaultInjector, FaultKind, PlatformSender, Scenario, SetupUnit, SimInstance, SimOptions, SimRuntime, Simulation,
    TableAccess, TableGate, UnitAction, WriteFate,
};

/// The difference between the durations of units, so that no two of them end at the same time.
const STEP: u64 = 700;

/// Panics if there is a text. The message has the first line of each text, and the whole shortest text.
pub(crate) fn assert_none(mut wrong: Vec<String>) {
    wrong.sort_by_key(String::len);
    let names: Vec<&str> = wrong.iter().filter_map(|text| text.lines().next()).collect();
    assert!(wrong.is_empty(), "{}\n{} in all, the shortest:\n{}", names.join("\n"), wrong.len(), wrong[0]);
}

#[test]
fn two_crashes_do_not_change_the_result() {
    let mut wrong = Vec::new();
    for action in [UnitAction::Pod, UnitAction::Once, UnitAction::Later] {
        let units = vec![SetupUnit::plain(action, STEP, &[]), SetupUnit::plain(action, 2 * STEP, &[0])];
        let target = Scenario::of(units).target();
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
pub(crate) enum WriteSide {
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
}

impl DeletionAtWrite {
    async fn delete(&self) {
        let (platform, instance) = (self.platform.clone(), self.instance.clone());
        let task = self.runtime.spawn(async move { platform.delete(&instance).await });
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

/// Deletes the target before or after a write.
pub(crate) fn delete_at(simulation: &Simulation, number: u64, side: WriteSide) {
    simulation.table.set_gate(Arc::new(DeletionAtWrite {
        runtime: simulation.runtime.clone(),
        platform: simulation.platform.clone(),
        instance: simulation.instances[0].clone(),
        at: (number, side),
        writes: AtomicU64::new(0),
    }));
}
