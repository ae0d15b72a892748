//! Things of a provider that creates and deletes them asynchronously, and instances of a plugin of InfraKit, with each of
//! their faults.

use std::collections::BTreeSet;

use clap::ValueEnum as _;
use ebb_engine::TargetPhase;
use ebb_tests::simulation::{
    FaultAttribute, FaultInjector, FaultKind, ListedUnits, ProviderUnit, SimOperator, SimOptions, Simulation,
    TargetEnd, TargetScenario, ThingCreation, ThingRemoval, TraceMode, simulate_target,
};
use serde::Deserialize;

use crate::every_injection_point::check_faults;
use crate::regressions::{self, assert_end, tear_down, update};

/// Returns a thing that is deleted by its id.
fn thing(creation: ThingCreation) -> ProviderUnit {
    ProviderUnit { creation, ..ProviderUnit::default() }
}

fn removed_by(removal: ThingRemoval) -> ProviderUnit {
    ProviderUnit { removal, ..ProviderUnit::default() }
}

fn pairs() -> impl Iterator<Item = (ThingRemoval, ThingCreation)> {
    let with_each =
        |&removal: &ThingRemoval| ThingCreation::value_variants().iter().map(move |&creation| (removal, creation));
    ThingRemoval::value_variants().iter().flat_map(with_each)
}

/// Runs a target from its creation to its end with faults at injection points, and checks that nothing is left and that each
/// fault happened.
fn run(operator: SimOperator, target: &TargetScenario, injected: &[(FaultKind, u64)]) -> (Simulation, TargetEnd) {
    let with = |all: FaultInjector, &(kind, number): &(FaultKind, u64)| all.and_at(kind, [number]);
    let faults = injected.iter().fold(FaultInjector::none(), with);
    let options = SimOptions { faults, operator, ..SimOptions::default() };
    let simulation = Simulation::of(target, options);
    let end = simulation.run_to_end();
    for (kind, number) in injected {
        assert_eq!(simulation.injected(*kind), 1, "{kind} {number}\n{}", simulation.trace());
    }
    assert_eq!(end.violations, Vec::<String>::new(), "{}", simulation.trace());
    assert_eq!((end.phase, &end.remaining), (Some(TargetPhase::Gone), &BTreeSet::new()), "{}", simulation.trace());
    (simulation, end)
}

/// Returns the attempts of the unit that creates the thing.
fn posts(simulation: &Simulation) -> usize {
    simulation.ledger.state().attempts.iter().filter(|one| one.unit.unit_key == "r/thing").count()
}

/// These faults delay a target, and change nothing else.
#[test]
fn a_thing_is_created_and_deleted_with_each_delay() {
    let kinds = FaultKind::that_are(FaultAttribute::Delaying);
    check_faults("a thing", &thing(ThingCreation::Keyed).target(""), "t", &kinds);
    check_faults("a thing of a list", &thing(ThingCreation::Described).target(""), "t", &kinds);
    check_faults("a thing with a name", &thing(ThingCreation::Named).target(""), "t", &kinds);
    check_faults("a thing with parts", &removed_by(ThingRemoval::Emptied).target(""), "t", &kinds);
}

/// A row of `providers.yaml`, which describes the fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThingRow {
    unit: ProviderUnit,
    #[serde(default)]
    head: String,
    #[serde(default)]
    faults: Vec<(FaultKind, u64)>,
    setup: TargetPhase,
    posts: Option<usize>,
    unconfirmed: Option<u32>,
    #[serde(default)]
    waits: bool,
}

/// Nothing is left by what a provider answers instead of the truth, and the setup ends as it can.
#[test]
fn each_thing_ends_as_its_row_says() {
    let rows: Vec<ThingRow> = serde_saphyr::from_str(include_str!("providers.yaml")).unwrap();
    for row in rows {
        let (simulation, end) = run(SimOperator::Absent, &row.unit.target(&row.head), &row.faults);
        let of = format!("{row:?}\n{}", simulation.trace());
        assert_eq!(end.setup, Some(row.setup), "{of}");
        let expected = row.posts.or((row.setup == TargetPhase::Failed).then_some(1));
        assert!(expected.is_none_or(|expected| posts(&simulation) == expected), "{of}");
        let has = |kind| row.faults.iter().any(|(of, _)| *of == kind);
        let authenticated = simulation.ledger.state().authenticated.map(|number| number > 0);
        assert_eq!(authenticated, [has(FaultKind::DigestChallenged), has(FaultKind::RequestsSigned)], "{of}");
        let unconfirmed = simulation.target().unwrap().unconfirmed;
        assert!(row.unconfirmed.is_none_or(|expected| unconfirmed == expected), "{unconfirmed}: {of}");
        assert!(!row.waits || simulation.table.state().slot_waits > 0, "{of}");
    }
}

/// Each entry of a list has its thing, and a reader gets the list of all. Another list replaces them.
#[test]
fn each_entry_of_a_list_has_a_thing() {
    // The other removals of an update are not over at its end.
    for (removal, creation) in pairs().filter(|(removal, _)| *removal != ThingRemoval::Unawaited) {
        let target = ProviderUnit { creation, removal, by_name: true, each: true, ..Default::default() }.target("");
        let simulation = Simulation::after_setup(&target, FaultInjector::none());
        let remaining = |list: &[&str]| {
            let end = assert_end(&simulation, TargetPhase::Ready);
            assert_eq!(end.remaining, list.iter().map(|entry| format!("r/thing[{entry}]")).collect());
        };
        remaining(&["a", "b", "c", "d"]);
        update(&simulation, "s", "uid-1", &target.document.replace("p@1.0.0}", "p@1.0.0, params: {items: [d, e]}}"));
        simulation.run_until_idle();
        remaining(&["d", "e"]);
        let attempts = simulation.ledger.state().attempts.clone();
        let read = attempts.iter().filter(|one| one.unit.unit_key == "r/reader").map(|one| one.reads.len());
        assert_eq!(read.collect::<Vec<_>>(), [4, 2], "{}", simulation.trace());
        assert_eq!(tear_down(&simulation).remaining, BTreeSet::new(), "{}", simulation.trace());
    }
}

/// Two attempts share a slot, also after a crash at any write.
#[test]
fn attempts_without_a_slot_wait() {
    let two = ProviderUnit { each: true, ..ProviderUnit::default() }.target("maxConcurrent: 1\n");
    let document = two.document.replace("p@1.0.0}", "p@1.0.0, params: {items: [a, b]}}");
    let two = TargetScenario { document, ..two };
    check_faults("slots", &two, "t", &[FaultKind::DeathAfterWrite, FaultKind::WriteAnswerLost]);
}

/// The parts of a thing are deleted one after another before it.
#[test]
fn a_thing_is_emptied_before_its_deletion() {
    let target = removed_by(ThingRemoval::Emptied).target("");
    let (simulation, _) = run(SimOperator::Absent, &target, &[(FaultKind::ThingHasParts, 1)]);
    let trace = simulation.trace();
    let deletions: Vec<&str> = trace.lines().filter(|line| line.contains(" for DELETE ")).collect();
    let parts = [2, 1, 0].map(|part| format!("/parts/{part} of"));
    let are_deleted = parts.iter().zip(&deletions).all(|(part, line)| line.contains(part) && line.contains(" 204 "));
    assert!(are_deleted && deletions.len() == 4, "{trace}");
}

/// Returns the number of injection points of a fault from the creation of a target to its end.
fn injection_points(target: &TargetScenario, kind: FaultKind) -> u64 {
    let report = simulate_target(target, "s", FaultInjector::none(), TraceMode::Kept);
    assert_eq!(report.violations, Vec::<String>::new(), "{}", report.trace);
    report.injection_points[kind as usize]
}

/// Returns the injection point of the first request for the deletion of a thing, which is not hidden after its answer.
fn deletion(unit: ProviderUnit) -> u64 {
    injection_points(&unit.target(""), FaultKind::ThingHidden)
}

/// A provider hides a thing from the credential, or accepts a deletion that never ends. A verification by the list, which has
/// the hidden thing, or by others finds it. Without such a verification, the target is gone, and lists it.
#[test]
fn what_a_provider_may_have_left_is_found_or_listed() {
    let rows: Vec<(ThingRemoval, FaultKind, TargetPhase)> =
        serde_saphyr::from_str(include_str!("unproven_removals.yaml")).unwrap();
    for (removal, kind, phase) in rows {
        let unit = removed_by(removal);
        let number = if kind == FaultKind::ThingHidden { deletion(unit) } else { 1 };
        let faults = FaultInjector::none().and_at(kind, [number]);
        let simulation = Simulation::after_setup(&unit.target(""), faults);
        simulation.tear_down();
        assert_eq!(simulation.injected(kind), 1, "{}", simulation.trace());
        let end = assert_end(&simulation, phase);
        if phase == TargetPhase::Stuck {
            assert!(end.failed.contains("r/remove-verify"), "{:?}", end.failed);
            continue;
        }
        assert_eq!(end.remaining, BTreeSet::from(["r/thing".to_owned()]), "{}", simulation.trace());
        let target = simulation.target().unwrap();
        assert_eq!(target.unconfirmed, 1, "{}", simulation.trace());
        let unconfirmed = ListedUnits::Unconfirmed;
        let listed = simulation.invoke(|functions| async move { functions.listed(target, unconfirmed).await });
        assert_eq!(listed, Some(Ok(vec!["r/thing".to_owned()])));
    }
}

/// A plugin that requires evidence is retried until the provider shows the thing again.
#[test]
fn a_target_that_requires_evidence_is_not_gone_without_it() {
    let unit = removed_by(ThingRemoval::Awaited);
    let faults = FaultInjector::none().and_at(FaultKind::ThingHidden, [deletion(unit)]);
    let report = simulate_target(&unit.target("evidence: confirmed\n"), "s", faults, TraceMode::Kept);
    assert_eq!(report.injected[FaultKind::ThingHidden as usize], 1);
    assert_eq!(report.violations, Vec::<String>::new(), "{}", report.trace);
    assert!(report.trace.contains("is gone"), "{}", report.trace);
}

/// At one of the requests, the token becomes that of another project for some time, which shows and deletes nothing.
#[test]
fn the_token_of_another_project_is_no_evidence() {
    for (removal, creation) in pairs() {
        // A thing whose ID got lost is deleted by its name.
        let unit = ProviderUnit { removal, by_name: true, ..thing(creation) };
        let points = injection_points(&unit.target(""), FaultKind::ForeignToken);
        assert!(points > 2, "{removal:?} {creation:?}");
        for number in 1..=points {
            for others in [&[][..], &[FaultKind::ResponseLost], &[FaultKind::ProviderLocked]] {
                let faults = FaultInjector::none().and_at(FaultKind::ForeignToken, [number]);
                let faults = others.iter().fold(faults, |all, &kind| all.and_at(kind, [1]));
                let options = SimOptions { faults, operator: SimOperator::Retries, ..SimOptions::default() };
                let simulation = Simulation::of(&unit.target(""), options);
                let end = simulation.run_to_end();
                let of = format!("{removal:?} {creation:?} {number} {others:?}\n{}", simulation.trace());
                // A setup that fails sends fewer requests.
                assert!(simulation.injected(FaultKind::ForeignToken) == 1 || !others.is_empty(), "{of}");
                assert_eq!((end.phase, end.violations), (Some(TargetPhase::Gone), Vec::new()), "{of}");
                let is_listed = simulation.target().unwrap().unconfirmed > 0;
                assert!(end.remaining.is_empty() || is_listed, "{:?} {of}", end.remaining);
            }
        }
    }
}

/// Returns a target with an instance of a plugin of InfraKit.
fn instance() -> TargetScenario {
    regressions::target(include_str!("documents/instance.yaml"))
}

/// The target is deleted while the plugin does not list its instance yet.
#[test]
fn an_instance_that_is_not_listed_is_destroyed() {
    check_faults("an instance", &instance(), "t", &[FaultKind::InstanceListedLate]);
    let (simulation, end) = run(SimOperator::Absent, &instance(), &[(FaultKind::InstanceListedLate, 1)]);
    assert_eq!(end.setup, Some(TargetPhase::Ready), "{}", simulation.trace());
    assert_eq!(simulation.target().unwrap().unconfirmed, 0, "{}", simulation.trace());
}

/// The plugin loses the access to its instances at one of its requests. Nothing is left that the target does not list.
#[test]
fn an_instance_without_access_is_not_gone() {
    for number in 1..=injection_points(&instance(), FaultKind::PluginEmpty) {
        run(SimOperator::Retries, &instance(), &[(FaultKind::PluginEmpty, number)]);
    }
}
