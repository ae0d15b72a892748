//! The schedule of sweeps, and for how long anything is due.

use super::*;

const SWEEP_MS: u64 = 60_000;
/// Number of consecutive sweeps that must not miss an indexed due item. One or two may, because operations fail and a
/// sweep has a time limit.
const MAX_SWEEPS: u32 = 3;

impl Simulation {
    /// Returns a simulation of one target, `s`, with these faults, in which the schedule runs.
    pub fn scheduled(target: &TargetScenario, faults: FaultInjector) -> Self {
        let simulation = Self::of(target, SimOptions { faults, ..SimOptions::default() });
        simulation.start_sweeps();
        simulation
    }

    /// Returns such a simulation after the setup of its target.
    pub fn after_setup(target: &TargetScenario, faults: FaultInjector) -> Self {
        let simulation = Self::scheduled(target, faults);
        simulation.set_up();
        simulation
    }

    /// Starts the schedule: a sweep and a removal of expired data every minute.
    pub fn start_sweeps(&self) {
        let (runtime, functions) = (self.runtime.clone(), Arc::clone(&self.functions));
        let (table, ledger, faults) = (Arc::clone(&self.table), Arc::clone(&self.ledger), Arc::clone(&self.faults));
        let (lost, has_retention) = (Arc::clone(&self.lost_sweeps), self.retention.is_some());
        self.runtime.spawn(async move {
            let mut passed_over: BTreeMap<(Timestamp, DueItem), u32> = BTreeMap::new();
            for number in 1.. {
                runtime.sleep((number * SWEEP_MS).saturating_sub(runtime.elapsed())).await;
                let (begun, is_missed) = (runtime.now(), faults.should_inject(FaultKind::SweepMissed));
                let slow = faults.injected()[FaultKind::SlowOperation as usize];
                if has_retention && !is_missed {
                    let functions = Arc::clone(&functions);
                    runtime.spawn(async move { functions.remove_expired().await });
                }
                if is_missed || functions.sweep().await.is_err() {
                    lock(&lost).push(begun);
                    continue;
                }
                // A sweep begins nothing after its start window, which one slow read can fill.
                let is_slow = faults.injected()[FaultKind::SlowOperation as usize] > slow;
                let due = table.due_since(begun).into_iter().map(|(item, is_indexed)| {
                    let sweeps = passed_over.get(&item).copied().unwrap_or(0) + u32::from(is_indexed && !is_slow);
                    (item, sweeps)
                });
                passed_over = due.collect();
                for ((since, due), _) in passed_over.iter().filter(|(_, sweeps)| **sweeps == MAX_SWEEPS) {
                    ledger
                        .report_violation(format!("{MAX_SWEEPS} sweeps have passed over {due:?}, due since {since:?}"));
                }
            }
        });
    }

    /// Returns for how many milliseconds the most urgent item is due, without the time of sweeps that were lost since.
    pub(super) fn overdue(&self) -> u64 {
        let first = self.table.state().due().map(|(at, _)| at).min();
        let overdue = first.map_or(0, |at| self.runtime.now().since(at).0);
        let lost = lock(&self.lost_sweeps);
        let since = lost.iter().rev().take_while(|at| self.runtime.now().since(**at).0 <= overdue);
        overdue.saturating_sub(since.count() as u64 * SWEEP_MS)
    }
}
