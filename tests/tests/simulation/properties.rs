//! Property tests with random scenarios and faults.
//!
//! `EBB_SIM_CASES` sets the number of random cases of each property. A failing case is printed with its seed.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Hook, TargetPhase};
use ebb_tests::simulation::{
    AttemptEntry, AttemptFate, ClusterOptions, FaultInjector, FaultKind, Scenario, SetupUnit, SimOptions, Simulation,
    TargetEnd, UNREACHABLE, UnitAction, UnitEffect, unreachable_target,
};
use proptest::prelude::*;

use crate::scenarios::{is_skipped, scenarios, setup_key, succeeds, waits_for};

const CASES: u32 = 64;

fn config() -> ProptestConfig {
    let cases = std::env::var("EBB_SIM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A simulation of a scenario, and the state of its target at the end.
struct Run {
    scenario: Scenario,
    simulation: Simulation,
    end: TargetEnd,
}

impl Run {
    fn new(scenario: Scenario, options: SimOptions) -> Self {
        Self::of(Simulation::of(&scenario.target(), options), scenario)
    }

    fn of(simulation: Simulation, scenario: Scenario) -> Self {
        let end = simulation.run_to_end();
        Self { scenario, simulation, end }
    }

    fn trace(&self) -> String {
        self.simulation.trace()
    }

    /// Returns the attempts of the units of the scenario.
    fn attempts(&self) -> Vec<AttemptEntry> {
        let attempts = self.simulation.ledger.state().attempts.clone();
        attempts.into_iter().filter(|one| one.unit.target == self.simulation.instances[0].name).collect()
    }

    /// Returns true if a unit can start: all units that it and its hook wait for are done.
    fn starts(&self, unit: usize) -> bool {
        let units = &self.scenario.units;
        let hook_starts = units[unit].hook == Hook::PreStart
            || (0..units.len()).all(|other| units[other].hook != Hook::PreStart || self.is_done(other));
        hook_starts && waits_for(&self.scenario, unit).iter().all(|&other| self.is_done(other))
    }

    fn is_done(&self, unit: usize) -> bool {
        self.starts(unit) && (is_skipped(&self.scenario, unit) || succeeds(&self.scenario, unit))
    }

    /// Checks the properties that hold with any faults.
    fn check_end(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(&self.end.violations, &Vec::<String>::new(), "{}", self.trace());
        prop_assert_eq!(self.end.phase, Some(TargetPhase::Gone), "{}", self.trace());
        prop_assert_eq!(&self.end.remaining, &BTreeSet::new(), "{}", self.trace());
        let unit_of = |one: &AttemptEntry| one.unit.unit_key.strip_prefix("r/u")?.parse::<usize>().ok();
        for unit in self.attempts().iter().filter_map(unit_of) {
            prop_assert!(self.starts(unit), "u{} started\n{}", unit, self.trace());
        }
        Ok(())
    }

    /// Checks that every unit that can start did, and ended as planned.
    fn check_setup(&self) -> Result<(), TestCaseError> {
        let units = 0..self.scenario.units.len();
        let is_ready = units.clone().all(|unit| self.is_done(unit));
        let expected = if is_ready { TargetPhase::Ready } else { TargetPhase::Failed };
        prop_assert_eq!(self.end.setup, Some(expected), "{}", self.trace());
        for unit in units {
            let (key, is_done) = (setup_key(unit), self.is_done(unit));
            prop_assert_eq!(self.end.done.contains(&key), is_done, "u{}\n{}", unit, self.trace());
            let fails = self.starts(unit) && !is_done;
            prop_assert_eq!(self.end.failed.contains(&key), fails, "u{}\n{}", unit, self.trace());
        }
        Ok(())
    }

    /// Checks that every unit starts in the millisecond in which the last unit that it waits for ends.
    fn check_starts(&self) -> Result<(), TestCaseError> {
        let (mut starts, mut ends) = (BTreeMap::new(), BTreeMap::new());
        for one in self.attempts() {
            starts.entry(one.unit.unit_key.clone()).or_insert(one.began);
            if let Some((at, true)) = one.result {
                ends.entry(one.unit.unit_key.clone()).or_insert(at);
            }
        }
        let units = &self.scenario.units;
        let mut over: BTreeMap<usize, u64> = BTreeMap::new();
        for unit in (0..units.len()).filter(|&unit| self.starts(unit)) {
            let of_pre_start = over.iter().filter(|(other, _)| units[**other].hook == Hook::PreStart);
            let hook_starts = match units[unit].hook {
                Hook::PreStart => 0,
                _ => of_pre_start.map(|(_, at)| *at).max().unwrap_or(0),
            };
            let ready = waits_for(&self.scenario, unit).iter().map(|other| over[other]).fold(hook_starts, u64::max);
            if is_skipped(&self.scenario, unit) {
                over.insert(unit, ready);
                continue;
            }
            let start = starts.get(&setup_key(unit)).copied();
            prop_assert_eq!(start, Some(ready), "u{} starts late\n{}", unit, self.trace());
            over.extend(ends.get(&setup_key(unit)).map(|at| (unit, *at)));
        }
        Ok(())
    }

    /// Checks that every attempt started and was requested once, and that every unit succeeded at most once.
    fn check_attempts(&self) -> Result<(), TestCaseError> {
        let (mut started, mut succeeded) = (BTreeSet::new(), BTreeSet::new());
        for one in self.attempts() {
            let key = one.unit.unit_key.clone();
            prop_assert!(started.insert((key.clone(), one.attempt)), "{:?} started twice\n{}", one, self.trace());
            // A repeated request to a relay only reads the state of a task.
            let is_requested_once = one.unit.action == UnitAction::Pod || one.requests == 1;
            prop_assert!(is_requested_once, "{:?} was requested again\n{}", one, self.trace());
            let is_repeated = matches!(one.result, Some((_, true))) && !succeeded.insert(key);
            prop_assert!(!is_repeated, "{:?} succeeded twice\n{}", one, self.trace());
        }
        Ok(())
    }
}

/// Returns a simulation of a scenario, optionally with another target in the unreachable cluster.
fn simulation(scenario: &Scenario, has_unreachable: bool, options: SimOptions) -> Simulation {
    let (target, unreachable) = (scenario.target(), unreachable_target());
    let mut simulation = Simulation::new([&target, &unreachable], SimOptions { seed: scenario.seed, ..options });
    simulation.add(&target, "s", "uid-1", None);
    if has_unreachable {
        simulation.add(&unreachable, UNREACHABLE, "uid-2", None);
    }
    simulation
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn without_faults_units_start_once_and_as_early_as_possible(scenario in scenarios(7, 15)) {
        let run = Run::new(scenario, SimOptions::default());
        run.check_end()?;
        run.check_setup()?;
        run.check_attempts()?;
        run.check_starts()?;
    }

    #[test]
    fn lost_and_duplicated_messages_do_not_change_the_result(
        scenario in scenarios(6, 15),
        lost in 0..=100_u64,
        relay_away in prop_oneof![Just(0_u64), 1..60_u64],
        has_unreachable in prop::bool::ANY,
        latency_ms in 0..40_u64,
    ) {
        let rates = [
            (FaultKind::MessageLost, lost),
            (FaultKind::MessageDuplicated, 50),
            (FaultKind::CallbackDuplicated, 50),
            (FaultKind::RelayAway, relay_away),
        ];
        let options = SimOptions { faults: FaultInjector::often(scenario.seed, &rates), latency_ms, ..SimOptions::default() };
        let run = Run::of(simulation(&scenario, has_unreachable, options), scenario);
        run.check_end()?;
        run.check_setup()?;
    }
}

#[test]
fn a_retry_of_a_unit_sends_no_request_of_another_unit() {
    let mut units = vec![SetupUnit::plain(UnitAction::Once, 10, &[]), SetupUnit::plain(UnitAction::Once, 15_000, &[])];
    units[0].fate = AttemptFate::Fails(1);
    let run = Run::new(Scenario::of(units), SimOptions::default());
    run.check_attempts().expect("each attempt is requested once");
}

/// The invocation that posts a webhook crashes, and its callback is delivered again. The request is repeated before its
/// deadline, so that the object of the first request becomes known.
#[test]
fn a_webhook_is_posted_again_before_its_deadline_after_a_crash() {
    let mut units = vec![
        SetupUnit::plain(UnitAction::Pod, 1_000, &[]),
        SetupUnit::plain(UnitAction::Once, 1_000, &[0]),
        SetupUnit::plain(UnitAction::Once, 1_000, &[0]),
    ];
    units[0].fate = AttemptFate::Fails(1);
    units[2].effect = UnitEffect::PerAttempt;
    let mut repeated = 0;
    for write in 1..40 {
        let faults = FaultInjector::none().and_at(FaultKind::DeathAfterWrite, [write]);
        let run = Run::new(Scenario::of(units.clone()), SimOptions { faults, ..SimOptions::default() });
        assert_eq!(run.end.remaining, BTreeSet::new(), "the sender crashed after write {write}\n{}", run.trace());
        let is_repeated = |one: &AttemptEntry| one.unit.unit_key == setup_key(2) && one.requests > 1;
        repeated += usize::from(run.attempts().iter().any(is_repeated));
    }
    assert!(repeated > 0, "no sender of the webhook crashed");
}

/// Of 1,000 scripts 20 run when the sandbox is deleted. No script of the run gets the slot of a killed one.
#[test]
fn after_a_deletion_no_queued_script_starts() {
    const SCRIPTS: usize = 1_000;
    const SLOTS: usize = 20;
    let mut unit = SetupUnit::plain(UnitAction::Pod, 290_000, &[]);
    unit.undo.as_mut().unwrap().millis = 1_000;
    let clusters = ClusterOptions { slots: SLOTS, ..ClusterOptions::default() };
    let options = SimOptions { clusters, ..SimOptions::default() };
    let simulation = Simulation::of(&Scenario::of(vec![unit; SCRIPTS]).target(), options);
    let starts = || simulation.ledger.state().attempts.iter().filter(|one| one.unit.sets_up()).count();
    simulation.start_sweeps();
    assert!(simulation.create().is_none());
    while simulation.relay.queued() < SCRIPTS - SLOTS {
        simulation.advance(100);
    }
    assert_eq!((starts(), simulation.relay.queued()), (SLOTS, SCRIPTS - SLOTS));
    simulation.tear_down();
    assert_eq!(starts(), SLOTS);
    let end = simulation.end(None);
    assert_eq!((end.violations, end.phase, end.remaining.len()), (vec![], Some(TargetPhase::Gone), 0));
}

/// A message is delivered again long after the units that it dispatched have ended.
#[test]
fn a_message_that_is_delivered_again_dispatches_nothing() {
    let units = vec![SetupUnit::plain(UnitAction::Later, 2_000, &[]); 60];
    let faults = FaultInjector::often(1, &[(FaultKind::MessageDuplicated, 100)]);
    let run = Run::new(Scenario::of(units), SimOptions { faults, ..SimOptions::default() });
    assert_eq!((run.end.phase, run.end.remaining.len()), (Some(TargetPhase::Gone), 0));
    run.check_attempts().expect("each attempt is requested once");
}
