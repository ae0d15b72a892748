//! What holds of every plan and every schedule, over the simulation.
//!
//! `EBB_SIM_CASES` sets how many random cases each property sees. A case that fails is printed whole, seed included.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_engine::TargetPhase;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_tests::sim::{
    AttemptFate, CallbackFaults, FinishEntry, QueueFaults, Scenario, ScenarioAction, ScenarioEffect, ScenarioEnd,
    ScenarioFaults, ScenarioSimulation, SetupHook, SetupUnit, StartEntry, WriteSide, scenarios,
};
use proptest::prelude::*;

const CASES: u32 = 64;

fn config() -> ProptestConfig {
    let cases = std::env::var("EBB_SIM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn name(unit: usize) -> String {
    format!("u{unit}")
}

/// Returns true if `unit` can start: everything that it waits for, and all that its hook waits for, succeeds.
fn runs(scenario: &Scenario, unit: usize) -> bool {
    let own = &scenario.units[unit];
    let before = |other: &usize| comes_good(scenario, *other);
    let pre_is_good = own.stage == SetupHook::Pre
        || (0..scenario.units.len())
            .filter(|&other| scenario.units[other].stage == SetupHook::Pre)
            .all(|other| comes_good(scenario, other));
    pre_is_good && scenario.waits_for(unit).iter().all(before)
}

/// Returns true if `unit` is done in the end.
fn comes_good(scenario: &Scenario, unit: usize) -> bool {
    runs(scenario, unit) && (scenario.is_skipped(unit) || scenario.succeeds(unit))
}

/// Where the setup has to come to rest.
fn expected_setup(scenario: &Scenario) -> TargetPhase {
    match (0..scenario.units.len()).all(|unit| comes_good(scenario, unit)) {
        true => TargetPhase::Ready,
        false => TargetPhase::Failed,
    }
}

/// What was sent and how it ended, copied: a story needs the ledger too.
fn facts(simulation: &ScenarioSimulation) -> (Vec<StartEntry>, Vec<FinishEntry>) {
    let state = simulation.ledger.state();
    (state.sent.clone(), state.finished.clone())
}

/// What every simulation has to end with, whatever went wrong on the way.
fn check_end(simulation: &ScenarioSimulation, end: &ScenarioEnd) -> Result<(), TestCaseError> {
    let scenario = &simulation.scenario;
    prop_assert_eq!(&end.violations, &Vec::<String>::new(), "{}", simulation.trace());
    prop_assert_eq!(end.phase, Some(TargetPhase::Gone), "{}", simulation.trace());
    prop_assert_eq!(&end.remaining, &BTreeSet::new(), "left over\n{}", simulation.trace());
    // Every start had what it waits for.
    for sent in &facts(simulation).0 {
        let Some(unit) = sent.unit.strip_prefix('u').and_then(|unit| unit.parse::<usize>().ok()) else {
            continue;
        };
        prop_assert!(runs(scenario, unit), "u{} started\n{}", unit, simulation.trace());
    }
    Ok(())
}

/// Every unit that can run did, and ended as it had to.
fn check_setup(simulation: &ScenarioSimulation, end: &ScenarioEnd) -> Result<(), TestCaseError> {
    let scenario = &simulation.scenario;
    prop_assert_eq!(end.setup, Some(expected_setup(scenario)), "{}", simulation.trace());
    let position = |unit: usize| {
        let stage = scenario.units[unit].stage;
        let before = scenario.units[..unit].iter().filter(|other| other.stage == stage).count();
        let hook = if stage == SetupHook::Pre { "preStart" } else { "postStart" };
        (hook.to_owned(), u32::try_from(before).expect("few units"))
    };
    for unit in 0..scenario.units.len() {
        let at = position(unit);
        prop_assert_eq!(end.done.contains(&at), comes_good(scenario, unit), "u{}\n{}", unit, simulation.trace());
        let fails = runs(scenario, unit) && !comes_good(scenario, unit);
        prop_assert_eq!(end.failed.contains(&at), fails, "u{}\n{}", unit, simulation.trace());
    }
    Ok(())
}

/// What each unit read is what its producer's counting attempt made.
fn check_inputs(simulation: &ScenarioSimulation) -> Result<(), TestCaseError> {
    let scenario = &simulation.scenario;
    let (all_sent, finished) = facts(simulation);
    let made = |unit: usize| match scenario.units[unit].makes {
        ScenarioEffect::Once => Some(name(unit)),
        ScenarioEffect::PerAttempt => {
            let name = name(unit);
            let success = finished.iter().find(|end| end.unit == name && end.well);
            success.map(|end| format!("{name}.{}", end.attempt))
        }
    };
    for sent in &all_sent {
        let (letter, position) = sent.unit.split_at(1);
        let position: usize = position.parse().expect("a position");
        let reads: Vec<usize> = match letter {
            "u" => scenario.units[position].reads.clone(),
            _ if comes_good(scenario, position) => vec![position],
            // Without a success there is nothing to read, and the undo runs all the same.
            _ => vec![],
        };
        let expected: BTreeMap<String, String> =
            reads.iter().filter_map(|&read| Some((name(read), made(read)?))).collect();
        prop_assert_eq!(&sent.inputs, &expected, "{:?}\n{}", sent, simulation.trace());
    }
    Ok(())
}

/// Every unit starts when the last thing that it waits for has ended, to the millisecond.
fn check_starts(simulation: &ScenarioSimulation) -> Result<(), TestCaseError> {
    let scenario = &simulation.scenario;
    let (starts, ends) = (simulation.ledger.starts(), simulation.ledger.successes());
    let mut over: BTreeMap<usize, u64> = BTreeMap::new();
    let all_good = (0..scenario.units.len()).filter(|&unit| scenario.units[unit].stage == SetupHook::Pre);
    let pre: Vec<usize> = all_good.collect();
    for unit in 0..scenario.units.len() {
        if !runs(scenario, unit) {
            continue;
        }
        let earliest = match scenario.units[unit].stage {
            SetupHook::Pre => 0,
            SetupHook::Post => pre.iter().map(|unit| over[unit]).max().unwrap_or(0),
        };
        let ready = scenario.waits_for(unit).iter().map(|other| over[other]).max().unwrap_or(earliest).max(earliest);
        if scenario.is_skipped(unit) {
            over.insert(unit, ready);
            continue;
        }
        let start = starts.get(&name(unit)).map(|sent| sent.at);
        prop_assert_eq!(start, Some(ready), "u{} starts late\n{}", unit, simulation.trace());
        if let Some(&end) = ends.get(&name(unit)) {
            over.insert(unit, end);
        }
    }
    Ok(())
}

/// Every attempt was sent once, and one success counts.
fn check_sends(simulation: &ScenarioSimulation) -> Result<(), TestCaseError> {
    let (all_sent, finished) = facts(simulation);
    let mut sent: BTreeMap<(String, u32), usize> = BTreeMap::new();
    // Asking a relay again is asking where the work stands; a webhook would be another request.
    let is_pod = |unit: &str| simulation.scenario.kind_of(unit) == Some(ScenarioAction::Pod);
    for one in all_sent.iter().filter(|one| one.fresh || !is_pod(&one.unit)) {
        *sent.entry((one.unit.clone(), one.attempt)).or_default() += 1;
    }
    for (of, times) in sent {
        prop_assert_eq!(times, 1, "{:?} was sent again\n{}", of, simulation.trace());
    }
    let mut successes: BTreeMap<String, usize> = BTreeMap::new();
    for end in finished.iter().filter(|end| end.well) {
        *successes.entry(end.unit.clone()).or_default() += 1;
    }
    for (unit, times) in successes {
        prop_assert_eq!(times, 1, "{} succeeded twice\n{}", unit, simulation.trace());
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn without_faults_everything_starts_at_its_earliest_and_once(scenario in scenarios(7, 15)) {
        let simulation = Arc::new(ScenarioSimulation::new(&scenario, ScenarioFaults::default()));
        let end = simulation.run();
        check_end(&simulation, &end)?;
        check_setup(&simulation, &end)?;
        check_inputs(&simulation)?;
        check_sends(&simulation)?;
        check_starts(&simulation)?;
    }

    #[test]
    fn lost_and_doubled_messages_change_nothing(
        scenario in scenarios(6, 15),
        lost in 0..=100_u8,
        silent in prop::bool::ANY,
        latency_ms in 0..40_u64,
    ) {
        let faults = ScenarioFaults {
            unreachable_cluster: silent,
            queue: QueueFaults { lost, doubled: 50, late_ms: 600_000 },
            callbacks: CallbackFaults { doubled: 50, late_ms: 600_000 },
            latency_ms,
            ..ScenarioFaults::default()
        };
        let simulation = Arc::new(ScenarioSimulation::new(&scenario, faults));
        let end = simulation.run();
        check_end(&simulation, &end)?;
        check_setup(&simulation, &end)?;
        check_inputs(&simulation)?;
    }

    #[test]
    fn a_relay_and_servers_that_do_not_always_answer_are_asked_again(
        scenario in scenarios(5, 10),
        relay in 0..60_u8,
        silent in prop::bool::ANY,
        lost in 0..=100_u8,
    ) {
        let faults = ScenarioFaults {
            queue: QueueFaults { lost, doubled: 20, late_ms: 60_000 },
            relay,
            unreachable_cluster: silent,
            ..ScenarioFaults::default()
        };
        let simulation = Arc::new(ScenarioSimulation::new(&scenario, faults));
        let end = simulation.run();
        check_end(&simulation, &end)?;
        check_setup(&simulation, &end)?;
        check_inputs(&simulation)?;
    }

    #[test]
    fn crashes_losses_and_a_stop_at_any_time_leave_nothing(
        scenario in scenarios(5, 12),
        stop in prop::option::of((1..60_u64, prop::bool::ANY)),
        deaths in prop::collection::btree_set(1..120_u64, 0..12),
        lost in 0..=100_u8,
        silent in prop::bool::ANY,
        latency_ms in 0..40_u64,
        landing_ms in prop_oneof![Just(500_u64), Just(30_000)],
    ) {
        let faults = ScenarioFaults {
            unreachable_cluster: silent,
            queue: QueueFaults { lost, doubled: 30, late_ms: 600_000 },
            callbacks: CallbackFaults { doubled: 30, late_ms: 600_000 },
            latency_ms,
            max_in_flight_ms: landing_ms,
            ..ScenarioFaults::default()
        };
        let simulation = Arc::new(ScenarioSimulation::new(&scenario, faults));
        let stop = stop.map(|(number, before)| (number, if before { WriteSide::Before } else { WriteSide::After }));
        crate::crash_points::disturb(&simulation, stop, deaths);
        let end = simulation.run();
        let never_was = end.phase.is_none() && facts(&simulation).0.is_empty();
        if !never_was {
            check_end(&simulation, &end)?;
        }
    }
}

/// Failing units, as the random ones rarely have them.
#[test]
fn an_undo_that_fails_for_good_leaves_the_target_stuck() {
    for kind in [ScenarioAction::Pod, ScenarioAction::AtOnce, ScenarioAction::Later] {
        let mut units = vec![SetupUnit::plain(kind, 100, &[]), SetupUnit::plain(kind, 100, &[0])];
        units[1].undo.fate = AttemptFate::Never;
        let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(units), ScenarioFaults::default()));
        let end = simulation.run();
        assert_eq!(end.violations, Vec::<String>::new(), "{}", simulation.trace());
        assert_eq!(end.setup, Some(TargetPhase::Ready));
        assert_eq!(end.phase, Some(TargetPhase::Stuck), "{}", simulation.trace());
        let left: Vec<&str> = end.remaining.iter().map(|(unit, _)| unit.as_str()).collect();
        assert_eq!(left, ["u0", "u1"], "what waits for a failed undo stays");
    }
}

/// Shortest cases that were found, kept.
#[test]
fn a_unit_that_is_tried_again_sends_no_other_one_again() {
    let mut units =
        vec![SetupUnit::plain(ScenarioAction::AtOnce, 10, &[]), SetupUnit::plain(ScenarioAction::AtOnce, 15_000, &[])];
    units[0].fate = AttemptFate::Fails(1);
    let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(units), ScenarioFaults::default()));
    simulation.run();
    check_sends(&simulation).expect("each try is sent once");
}

#[test]
fn what_becomes_ready_late_in_an_invocation_waits_for_nothing_else_of_it() {
    let millis = [(15_000, [].as_slice()), (5_000, &[]), (10, &[1])];
    let units = millis.map(|(millis, reads)| SetupUnit::plain(ScenarioAction::AtOnce, millis, reads));
    let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(units.to_vec()), ScenarioFaults::default()));
    simulation.run();
    check_starts(&simulation).expect("the third unit starts when the second one has ended");
}

/// The sender of a webhook dies, and the callback that it worked for comes again. The request is repeated before its
/// deadline, so that what the first one has made becomes known.
#[test]
fn a_webhook_whose_sender_died_is_posted_again_before_its_deadline() {
    let mut units = vec![
        SetupUnit::plain(ScenarioAction::Pod, 1_000, &[]),
        SetupUnit::plain(ScenarioAction::AtOnce, 1_000, &[0]),
        SetupUnit::plain(ScenarioAction::AtOnce, 1_000, &[0]),
    ];
    units[0].fate = AttemptFate::Fails(1);
    units[2].makes = ScenarioEffect::PerAttempt;
    let mut deadly = 0;
    for write in 1..40 {
        let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(units.clone()), ScenarioFaults::default()));
        crate::crash_points::disturb(&simulation, None, [write].into());
        let end = simulation.run();
        assert_eq!(end.remaining, BTreeSet::new(), "the sender died at write {write}\n{}", simulation.trace());
        deadly += usize::from(facts(&simulation).0.iter().any(|sent| sent.unit == "u2" && !sent.fresh));
    }
    assert!(deadly > 0, "no sender of the webhook died");
}

/// The deadline of a unit is five minutes.
#[test]
fn what_waits_for_its_turn_at_a_relay_has_all_of_its_time_then() {
    let units = vec![SetupUnit::plain(ScenarioAction::Pod, 250_000, &[])];
    let faults = ScenarioFaults { slot_wait_ms: 3_600_000, ..ScenarioFaults::default() };
    let simulation = Arc::new(ScenarioSimulation::new(&Scenario::of(units), faults));
    let end = simulation.run();
    assert_eq!(end.violations, Vec::<String>::new(), "{}", simulation.trace());
    assert_eq!((end.setup, end.phase), (Some(TargetPhase::Ready), Some(TargetPhase::Gone)));
    check_sends(&simulation).expect("no try was given up");
}

/// Of 1,000 scripts 20 run when the sandbox is deleted. A script that is killed leaves its slot to nothing of the run.
#[test]
fn after_a_stop_no_queued_script_starts() {
    const SCRIPTS: usize = 1_000;
    const SLOTS: usize = 20;
    let mut unit = SetupUnit::plain(ScenarioAction::Pod, 290_000, &[]);
    unit.undo.millis = 1_000;
    let units = vec![unit; SCRIPTS];
    let simulation = Arc::new(ScenarioSimulation::new(
        &Scenario::of(units),
        ScenarioFaults { slots: SLOTS, ..ScenarioFaults::default() },
    ));
    let starts = |simulation: &ScenarioSimulation| {
        let sent = facts(simulation).0;
        sent.iter().filter(|sent| sent.fresh && sent.unit.starts_with('u')).count()
    };
    simulation.sweep();
    assert_eq!(simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Created)), Some(None));
    let own = Arc::clone(&simulation);
    simulation.runtime.run(async move {
        while own.relay.queued() < SCRIPTS - SLOTS {
            own.runtime.sleep(100).await;
        }
    });
    assert_eq!((starts(&simulation), simulation.relay.queued()), (SLOTS, SCRIPTS - SLOTS));
    assert_eq!(simulation.runtime.run(simulation.send_lifecycle(LifecycleType::Deleted)), Some(None));
    assert!(simulation.run_until_idle(), "{}", simulation.trace());
    assert_eq!(starts(&simulation), SLOTS);
    let end = simulation.end(None, vec![]);
    assert_eq!((end.violations, end.phase, end.remaining.len()), (vec![], Some(TargetPhase::Gone), 0));
}

/// A message may come again long after it was dealt with: nothing of it is sent any more.
#[test]
fn a_slice_that_comes_again_after_the_end_starts_nothing() {
    let units: Vec<SetupUnit> = (0..60).map(|_| SetupUnit::plain(ScenarioAction::Later, 2_000, &[])).collect();
    let queue = QueueFaults { lost: 0, doubled: 100, late_ms: 600_000 };
    let simulation =
        Arc::new(ScenarioSimulation::new(&Scenario::of(units), ScenarioFaults { queue, ..ScenarioFaults::default() }));
    let end = simulation.run();
    assert_eq!((end.phase, end.remaining.len()), (Some(TargetPhase::Gone), 0));
    check_sends(&simulation).expect("each try is sent once");
}
