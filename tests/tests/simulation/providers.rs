//! Things of a provider that creates and deletes them asynchronously, and instances of a plugin of InfraKit, with each of
//! their faults.

use std::collections::BTreeSet;

use ebb_engine::TargetPhase;
use ebb_tests::simulation::{
    FaultInjector, FaultKind, ListedUnits, ProviderUnit, SimOperator, SimOptions, Simulation, TargetEnd,
    TargetScenario, ThingCreation, ThingRemoval, TraceMode, simulate_target,
};

use crate::every_injection_point::{check_every_fault, check_faults};
use crate::regressions::{self, assert_end, retry, tear_down};

/// Returns a thing that is deleted by its id.
fn thing(creation: ThingCreation) -> ProviderUnit {
    ProviderUnit { creation, removal: ThingRemoval::Awaited, by_name: false, connected: true }
}

fn removed_by(removal: ThingRemoval) -> ProviderUnit {
    ProviderUnit { removal, ..thing(ThingCreation::Keyed) }
}

const REMOVALS: [ThingRemoval; 7] = [
    ThingRemoval::Awaited,
    ThingRemoval::Unawaited,
    ThingRemoval::VerifiedByGet,
    ThingRemoval::VerifiedByList,
    ThingRemoval::VerifiedByScript,
    ThingRemoval::VerifiedByObject,
    ThingRemoval::Guarded,
];
const CREATIONS: [ThingCreation; 3] = [ThingCreation::Keyed, ThingCreation::Once, ThingCreation::Described];

/// Runs a target from its creation to its end, and checks that nothing is left and that the first fault of each kind
/// happened.
fn run(target: &TargetScenario, faults: &[FaultKind]) -> (Simulation, TargetEnd) {
    let with = |all: FaultInjector, &kind: &FaultKind| all.and_at(kind, [1]);
    let options = SimOptions { faults: faults.iter().fold(FaultInjector::none(), with), ..SimOptions::default() };
    let simulation = Simulation::of(target, options);
    let end = simulation.run_to_end();
    for &kind in faults {
        assert_eq!(simulation.injected(kind), 1, "{kind}\n{}", simulation.trace());
    }
    assert_eq!(end.violations, Vec::<String>::new(), "{}", simulation.trace());
    assert_eq!((end.phase, &end.remaining), (Some(TargetPhase::Gone), &BTreeSet::new()), "{}", simulation.trace());
    (simulation, end)
}

/// Returns the attempts of the unit that creates the thing.
fn posts(simulation: &Simulation) -> usize {
    simulation.ledger.state().attempts.iter().filter(|one| one.unit.unit_key == "r/thing").count()
}

#[test]
fn a_thing_is_used_with_every_fault() {
    check_every_fault("a thing", &thing(ThingCreation::Keyed).target(""), "t");
}

/// The removal of a thing without `until` is unconfirmed. The others have evidence.
#[test]
fn each_removal_has_its_evidence() {
    for removal in REMOVALS {
        let (simulation, _) = run(&removed_by(removal).target(""), &[]);
        let expected = u32::from(removal == ThingRemoval::Unawaited);
        let unconfirmed = simulation.target().unwrap().unconfirmed;
        assert_eq!(unconfirmed, expected, "{removal:?}\n{}", simulation.trace());
    }
}

/// These faults delay a target, and change nothing else.
#[test]
fn a_thing_is_created_and_deleted_with_each_delay() {
    let kinds = [
        FaultKind::RequestLost,
        FaultKind::ResponseLost,
        FaultKind::GatewayGivesUp,
        FaultKind::ServerBusy,
        FaultKind::ProviderConflicts,
        FaultKind::ProviderLocked,
        FaultKind::DeletionLate,
    ];
    check_faults("a thing", &thing(ThingCreation::Keyed).target(""), "t", &kinds);
    check_faults("a thing of a list", &thing(ThingCreation::Described).target(""), "t", &kinds);
}

/// The request of an attempt is not sent again after its answer.
#[test]
fn a_unit_fails_once_if_its_thing_does_not_become_ready() {
    for kind in [FaultKind::CreationFails, FaultKind::CreationHangs] {
        for creation in CREATIONS {
            let (simulation, end) = run(&thing(creation).target(""), &[kind]);
            assert_eq!(end.setup, Some(TargetPhase::Failed), "{}", simulation.trace());
            assert_eq!(posts(&simulation), 1, "{}", simulation.trace());
        }
    }
}

/// The list shows nothing at first, and the thing is found later.
#[test]
fn a_list_that_is_late_does_not_double_a_thing() {
    let faults = [FaultKind::ResponseLost, FaultKind::ListedLate];
    let (simulation, end) = run(&thing(ThingCreation::Described).target(""), &faults);
    assert_eq!(end.setup, Some(TargetPhase::Ready), "{}", simulation.trace());
    assert_eq!(posts(&simulation), 1, "{}", simulation.trace());
}

/// An operator retries a unit whose thing has failed, and the provider creates another one.
#[test]
fn each_thing_of_a_retried_unit_is_deleted() {
    let faults = [FaultKind::CreationFails, FaultKind::KeyIgnored];
    let faults = faults.into_iter().fold(FaultInjector::none(), |all, kind| all.and_at(kind, [1]));
    let target = thing(ThingCreation::Once).target("");
    let simulation = Simulation::scheduled(&target, faults);
    simulation.set_up();
    retry(&simulation);
    simulation.run_until_idle();
    let ready = simulation.end(None);
    assert_eq!((ready.phase, posts(&simulation)), (Some(TargetPhase::Ready), 2), "{}", simulation.trace());
    assert_eq!(simulation.injected(FaultKind::KeyIgnored), 1);
    assert_eq!(tear_down(&simulation).remaining, BTreeSet::new(), "{}", simulation.trace());
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
    use ThingRemoval::{Awaited, Unawaited, VerifiedByGet, VerifiedByList, VerifiedByObject, VerifiedByScript};
    for (removal, kind, phase) in [
        (Awaited, FaultKind::ThingHidden, TargetPhase::Gone),
        (Unawaited, FaultKind::ThingHidden, TargetPhase::Gone),
        (VerifiedByGet, FaultKind::ThingHidden, TargetPhase::Gone),
        (Unawaited, FaultKind::DeletionHangs, TargetPhase::Gone),
        (VerifiedByList, FaultKind::ThingHidden, TargetPhase::Stuck),
        (VerifiedByScript, FaultKind::ThingHidden, TargetPhase::Stuck),
        (VerifiedByObject, FaultKind::ThingHidden, TargetPhase::Stuck),
    ] {
        let unit = removed_by(removal);
        let number = if kind == FaultKind::ThingHidden { deletion(unit) } else { 1 };
        let faults = FaultInjector::none().and_at(kind, [number]);
        let simulation = Simulation::scheduled(&unit.target(""), faults);
        simulation.set_up();
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
    for (removal, creation) in REMOVALS.into_iter().flat_map(|removal| CREATIONS.map(|creation| (removal, creation))) {
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
    let (simulation, end) = run(&instance(), &[FaultKind::InstanceListedLate]);
    assert_eq!(end.setup, Some(TargetPhase::Ready), "{}", simulation.trace());
    assert_eq!(simulation.target().unwrap().unconfirmed, 0, "{}", simulation.trace());
}

/// The plugin loses the access to its instances at one of its requests. Nothing is left that the target does not list.
#[test]
fn an_instance_without_access_is_not_gone() {
    for number in 1..=injection_points(&instance(), FaultKind::PluginEmpty) {
        let faults = FaultInjector::none().and_at(FaultKind::PluginEmpty, [number]);
        let options = SimOptions { faults, operator: SimOperator::Retries, ..SimOptions::default() };
        let simulation = Simulation::of(&instance(), options);
        let end = simulation.run_to_end();
        assert_eq!(simulation.injected(FaultKind::PluginEmpty), 1, "{number}\n{}", simulation.trace());
        let phase = (end.phase, end.violations);
        assert_eq!(phase, (Some(TargetPhase::Gone), Vec::new()), "{number}\n{}", simulation.trace());
        assert_eq!(end.remaining, BTreeSet::new(), "{number}\n{}", simulation.trace());
    }
}
