//! Regression tests of errors that random simulations found.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_engine::{EventName, Hook, Millis, TargetPhase, Timestamp};
use ebb_protocol::lifecycle::STUCK;
use ebb_protocol::{EventRef, LifecycleData, LifecycleType};
use ebb_tests::platform::sandbox;
use ebb_tests::simulation::{
    FaultInjector, FaultKind, ProviderUnit, SimOptions, SimTask, Simulation, TableAccess, TargetEnd, TargetScenario,
    TraceMode, UnitBehavior, WriteFate, simulate_target,
};

use crate::every_injection_point::check_every_fault;
use crate::outbox::subscribed;

/// The time for which each of two clusters has a name.
const REPLACED_MS: u64 = 15 * 60_000;

/// Returns a target with one resource, whose plugin has these lines after the first ones.
pub(crate) fn target(rest: &str) -> TargetScenario {
    let plugin = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p@1.0.0\nparams: {{off: {{type: boolean, default: false}}}}\n{rest}"
    );
    let document = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources: {r: {plugin: p@1.0.0}}\n";
    let plugins = vec![("p".to_owned(), "1.0.0".to_owned(), plugin)];
    TargetScenario::new(plugins, document.to_owned(), UnitBehavior::Steady)
}

/// Checks the phase of the target, and that nothing was violated.
pub(crate) fn assert_end(simulation: &Simulation, phase: TargetPhase) -> TargetEnd {
    let end = simulation.end(None);
    assert_eq!((end.phase, &end.violations), (Some(phase), &Vec::new()), "{}", simulation.trace());
    end
}

pub(crate) fn create(simulation: &Simulation, number: usize) -> SimTask<()> {
    let instance = &simulation.instances[number];
    simulation.send(instance, |platform, instance| async move { drop(platform.create(&instance).await) })
}

pub(crate) fn delete(simulation: &Simulation, number: usize) -> SimTask<()> {
    let instance = &simulation.instances[number];
    simulation.send(instance, |platform, instance| async move { platform.delete(&instance).await })
}

/// Deletes the target, which is then gone.
pub(crate) fn tear_down(simulation: &Simulation) -> TargetEnd {
    simulation.tear_down();
    assert_end(simulation, TargetPhase::Gone)
}

pub(crate) fn retry(simulation: &Simulation) {
    let retried = simulation.invoke(|functions| async move { functions.retry("s", None).await });
    assert!(matches!(retried, Some(Ok(Ok(_)))), "{retried:?}");
}

/// Delays the next write of the table by this time, and then decides its fate.
pub(crate) fn gate_first_write(simulation: &Simulation, millis: u64, fate: WriteFate) {
    let (has_written, runtime) = (AtomicBool::new(false), simulation.runtime.clone());
    simulation.table.set_gate(Arc::new(move |access: TableAccess| {
        let is_first = access == TableAccess::Write && !has_written.swap(true, Ordering::Relaxed);
        let wait = is_first.then(|| runtime.sleep(millis));
        async move {
            let Some(wait) = wait else { return WriteFate::Proceed };
            wait.await;
            fate
        }
    }));
}

/// Returns a target with a unit before ready, and with these units of its events.
fn with_event(units: &str) -> TargetScenario {
    let setup = include_str!("documents/event-setup.yaml");
    target(&format!("{setup}{units}"))
}

/// Returns a target whose event has two units, which read each other.
pub(crate) fn with_events() -> TargetScenario {
    with_event(include_str!("documents/two-units-of-an-event.yaml"))
}

/// The duration of the first unit of a hook.
pub(crate) const EVENT_MS: u64 = 700;

/// Returns a target whose event has one unit, which ends after [`EVENT_MS`].
pub(crate) fn with_an_event() -> TargetScenario {
    with_event("    nap: {webhook: {url: \"https://outside.test/once/nap\", body: {of: \"${units.u0.outputs.id}\"}}}\n")
}

/// Sends the second document of an instance, which is accepted.
pub(crate) fn update(simulation: &Simulation, name: &str, uid: &str, document: &str) {
    let document = Some(document.replace("NAME", name));
    let data = LifecycleData { generation: 2, document, ..sandbox(name, uid, "") };
    let event = (LifecycleType::Updated, "1".to_owned());
    let updated = simulation.invoke(|functions| async move { functions.lifecycle(event, data).await });
    assert!(matches!(updated, Some(Ok(Ok(_)))), "{updated:?}");
}

/// An update without a run begins an event that has waited. The target has been ready with its resources since the update, so
/// the notification of the update is not given up for its age.
#[test]
fn an_update_that_begins_an_event_has_its_own_time() {
    const DAY: u64 = 86_400_000;
    let simulation = Simulation::of(&with_an_event(), SimOptions::default());
    simulation.set_up();
    simulation.advance(4 * DAY);
    let waiting = EventRef::new(EventName::new("sleep").unwrap(), "uid-1-0");
    simulation.table.edit_target("s", |transition| transition.target.events.append(waiting, Timestamp(1)));
    update(&simulation, "s", "uid-1", &with_an_event().document.replace("resources:", "labels: {a: b}\nresources:"));
    let target = simulation.target().unwrap();
    assert!(matches!(target.hook, Some(Hook::Event(_))), "{target:?}");
    assert!(target.since.plus(Millis(DAY)) > simulation.runtime.now(), "{target:?}");
}

/// Two updates compute the same run at the same time. The entry of the run has the document that it applies.
#[test]
fn the_entry_of_a_run_has_the_document_that_it_applies() {
    let target = with_an_event();
    let document = |generation: u64| {
        let added = format!("}}, q{generation}: {{plugin: p@1.0.0}}}}");
        target.document.replace("NAME", "s").replace("}}", &added)
    };
    let mut races = 0;
    for seed in 0..40 {
        let simulation = Simulation::of(&target, SimOptions { seed, latency_ms: 2, ..SimOptions::default() });
        simulation.set_up();
        for generation in [2, 3] {
            let data = LifecycleData { generation, document: Some(document(generation)), ..sandbox("s", "uid-1", "") };
            let event = (LifecycleType::Updated, generation.to_string());
            simulation.start(|functions| async move { functions.lifecycle(event, data).await });
        }
        simulation.run_until_idle();
        let table = simulation.table.state();
        races +=
            table.writes.iter().filter(|(_, write)| write.contains("Updated") && write.contains("REFUSED")).count();
        // A document that has waited is in the entry of its acceptance.
        for entry in table.history.values().filter(|entry| entry.document.is_some()) {
            let facts = entry.run.as_ref().and_then(|run| Some(table.heads.get(run)?.facts.clone()));
            if let Some(facts) = facts.filter(|facts| facts.generation > 1 && facts.started == entry.at) {
                assert_eq!(entry.document, Some(document(facts.generation)), "{seed}");
            }
        }
    }
    assert!(races > 0, "no entry had the time of another one");
}

/// Two instances began with one plan, and one of them was updated. A shared read gives each its own plan.
#[test]
fn instances_of_one_plan_read_their_own() {
    let target = with_an_event();
    let mut simulation = Simulation::new([&target], SimOptions { latency_ms: 10, ..SimOptions::default() });
    simulation.start_sweeps();
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        simulation.add(&target, name, &format!("{name}-uid"), None);
        simulation.runtime.run(create(&simulation, number));
    }
    simulation.run_until_idle();
    let of = |name: &str| simulation.table.state().targets[name].clone();
    let first = of("a").plan;
    assert_eq!(of("b").plan, first);
    update(&simulation, "a", "a-uid", &target.document.replace("resources:", "ttl: 9h\nresources:"));
    let second = of("a").plan;
    assert_ne!(second, first);
    let wanted = ["a", "b"].map(|name| (of(name).instance_key(), first.clone()));
    let read = simulation.invoke(|functions| async move { functions.read_plans(&wanted).await });
    assert_eq!(read, Some(vec![Some(second), Some(first)]));
}

/// Returns a target whose resource has an output that stays in its cluster, where `bind` copies it.
fn with_bind() -> TargetScenario {
    let scenario = target(include_str!("documents/bound-output.yaml"));
    let data = "data: {ID: \"${resources.r.outputs.id}\"}";
    let document = format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nbind:\n- secret: {{namespace: web, name: \"${{target.key}}\"}}\n  \
         {data}\nresources: {{r: {{plugin: p@1.0.0}}}}\n"
    );
    TargetScenario { document, ..scenario }
}

/// No unit makes the bound value, which is that of a param. The object waits for the resource nevertheless.
#[test]
fn a_bound_object_names_no_resource_that_does_not_exist() {
    let bound_text = target(include_str!("documents/bound-text.yaml"));
    let scenario = TargetScenario { document: with_bind().document, ..bound_text };
    let simulation = Simulation::of(&scenario, SimOptions::default());
    simulation.set_up();
    update(&simulation, "s", "uid-1", &scenario.document.replace("p@1.0.0}", "p@1.0.0, params: {off: true}}"));
    simulation.run_until_idle();
    assert_eq!(simulation.bound(), [["at true"]], "{}", simulation.trace());
    tear_down(&simulation);
    let attempts = simulation.ledger.state().attempts.clone();
    // The begins and ends of the attempts of a unit.
    let of = |key: &str| -> Vec<(u64, u64)> {
        let own = attempts.iter().filter(|one| one.unit.unit_key == key);
        own.map(|one| (one.began, one.result.unwrap().0)).collect()
    };
    let (made, bound) = (of("r/u1"), of("bind/secret-1"));
    assert_eq!((made.len(), bound.len()), (2, 2), "{}", simulation.trace());
    let is_in_order = |(first, then): (&(u64, u64), &(u64, u64))| first.1 <= then.0;
    assert!(made.iter().zip(&bound).all(is_in_order), "{made:?} {bound:?}\n{}", simulation.trace());
    let (removed, undone) = (of("bind/secret-1.removal"), of("r/x1"));
    assert_eq!((removed.len(), undone.len()), (1, 1), "{}", simulation.trace());
    assert!(removed.iter().zip(&undone).all(is_in_order), "{removed:?} {undone:?}\n{}", simulation.trace());
}

/// The cluster does not know the object that a teardown removes. A relay that has lost its records, and must not list the
/// place of the object, ends the removal, and the target says that the object may remain. Another cluster that has got the
/// name of the first one has nothing of the target, so the teardown waits for the first one.
#[test]
fn a_teardown_in_a_cluster_without_records_is_unconfirmed_or_waits() {
    for (faults, waits) in [
        (FaultInjector::none().and_at(FaultKind::RelayForgets, [1]).and_at(FaultKind::PlaceUnlisted, [1]), false),
        (FaultInjector::none().and_at(FaultKind::ClusterReplaced, [1]), true),
    ] {
        let simulation = Simulation::after_setup(&with_bind(), faults);
        simulation.advance(REPLACED_MS);
        simulation.tear_down();
        if waits {
            let phase = simulation.target().map(|target| target.phase);
            assert_eq!((phase, simulation.bound().len()), (Some(TargetPhase::Stuck), 1), "{}", simulation.trace());
            simulation.advance(REPLACED_MS);
            retry(&simulation);
            simulation.advance(120_000);
        }
        assert_end(&simulation, TargetPhase::Gone);
        let found = (simulation.target().map(|target| target.unconfirmed), simulation.bound().len());
        assert_eq!(found, (Some(u32::from(!waits)), usize::from(!waits)), "{}", simulation.trace());
    }
}

/// A cluster refuses all attempts of a setup unit, of which the last is that of a retry. Nothing has begun, so nothing is
/// undone.
#[test]
fn a_unit_that_its_cluster_has_refused_leaves_nothing() {
    let faults = FaultInjector::often(1, &[(FaultKind::RelayRefuses, 100)]);
    let pod = "pod: {script: \"#!/bin/sh\"}";
    let units = format!("preStart:\n  u0: {{{pod}}}\npostStop:\n  x0: {{undoes: u0, {pod}}}\n");
    let target = target(&format!("runners: {{sh: {{image: busybox}}}}\n{units}"));
    let simulation = Simulation::after_setup(&target, faults);
    let before = simulation.injected(FaultKind::RelayRefuses);
    retry(&simulation);
    simulation.advance(120_000);
    assert!(simulation.injected(FaultKind::RelayRefuses) > before, "{}", simulation.trace());
    let end = tear_down(&simulation);
    assert!(!end.notifications.contains(STUCK), "{}", simulation.trace());
}

/// No fault loses or reorders a notification, runs an event twice, or takes a bound object from a ready target.
#[test]
fn each_small_target_ends_with_every_fault() {
    // The last run of the target was closed before the deletion, which ends the target at once.
    let probe = target("postStart:\n  probe: {webhook: {method: GET, url: \"https://outside.test/once/probe\"}}\n");
    for (name, target) in [
        ("subscribed", subscribed()),
        ("bind", with_bind()),
        ("events", with_events()),
        ("without a teardown", probe),
        ("a thing", ProviderUnit::default().target("")),
    ] {
        check_every_fault(name, &target, "t");
    }
}

/// Returns a target whose undo has one attempt.
pub(crate) fn with_one_undo() -> TargetScenario {
    target(include_str!("documents/one-undo.yaml"))
}

/// Returns the fault with which that undo fails.
pub(crate) fn stuck() -> FaultInjector {
    FaultInjector::none().and_at(FaultKind::UndoBroken, [1])
}

/// The first teardown unit has one attempt. In the version that repairs it, the next one reads what it undoes. A repair and
/// some invocations after it run in function instances without caches, the later ones in an instance with the former plan in
/// memory. All continue with the repaired plan.
#[test]
fn every_function_instance_continues_a_repaired_teardown() {
    let mut target = target(include_str!("documents/repaired.yaml"));
    let (name, _, text) = target.plugins[0].clone();
    let reads = "/once/x1\", body: {of: \"${units.u0.outputs.id}\"}";
    let repaired = text.replace("p@1.0.0", "p@1.0.1").replace("/once/x1\"", reads);
    target.plugins.push((name, "1.0.1".to_owned(), repaired));
    let stuck = |cold: Range<u64>| {
        let faults = FaultInjector::none().and_at(FaultKind::AttemptFails, [2]).and_at(FaultKind::ColdStart, cold);
        let simulation = Simulation::after_setup(&target, faults);
        simulation.tear_down();
        assert_eq!(simulation.target().unwrap().phase, TargetPhase::Stuck, "{}", simulation.trace());
        simulation
    };
    let repair = stuck(Range::default()).functions.invocations() + 1;
    for warm in repair + 1..=repair + 5 {
        let simulation = stuck(repair..warm);
        let repaired = simulation.invoke(|functions| async move { functions.repair("s", None, None).await });
        assert!(matches!(repaired, Some(Ok(_))));
        simulation.run_until_idle();
        assert_end(&simulation, TargetPhase::Gone);
        let undo = simulation.ledger.state().attempts.last().cloned().unwrap();
        assert_eq!((undo.unit.unit_key.as_str(), undo.reads.len()), ("r/x1", 1), "{}", simulation.trace());
    }
}

/// An undo fails until an operator repairs its service and retries. The retry crashes after each of its writes, and is
/// repeated.
#[test]
fn a_retry_can_be_repeated_after_a_crash() {
    let scenario = with_one_undo();
    let without_crash = simulate_target(&scenario, "t", stuck(), TraceMode::Kept);
    assert_eq!(without_crash.violations, Vec::<String>::new(), "{}", without_crash.trace);
    assert!(without_crash.notifications.contains("dev.ebb.target.stuck.v1"), "{}", without_crash.trace);
    for number in 1..=without_crash.injection_points[FaultKind::DeathAfterWrite as usize] {
        let faults = stuck().and_at(FaultKind::DeathAfterWrite, [number]);
        let report = simulate_target(&scenario, "t", faults, TraceMode::Kept);
        assert_eq!(report.injected[FaultKind::DeathAfterWrite as usize], 1);
        assert_eq!(report.violations, Vec::<String>::new(), "{}", report.trace);
    }
}

/// The first write of a removal hangs. The data of the other instance is removed in the same round, that of this one later.
#[test]
fn a_removal_that_hangs_delays_no_other() {
    let target = target("preStart: {make: {webhook: {url: \"https://outside.test/once/make\"}}}\n");
    let options = SimOptions { retention: Some(Millis(1)), ..SimOptions::default() };
    let mut simulation = Simulation::new([&target], options);
    for (number, name) in ["s", "t"].into_iter().enumerate() {
        simulation.add(&target, name, name, None);
        simulation.runtime.run(create(&simulation, number));
    }
    simulation.run_until_idle();
    for number in 0..2 {
        simulation.runtime.run(delete(&simulation, number));
    }
    simulation.run_until_idle();
    let round = || {
        simulation.invoke(|functions| async move { functions.remove_expired().await });
        simulation.table.state().expiries.len()
    };
    assert_eq!(round(), 2, "both removals are announced");
    simulation.advance(5 * 60_000);
    gate_first_write(&simulation, 3_600_000, WriteFate::Proceed);
    assert_eq!(round(), 1, "{}", simulation.trace());
    for left in [1, 0] {
        simulation.advance(2 * 3_600_000);
        assert_eq!(round(), left, "{}", simulation.trace());
    }
    assert_eq!(std::mem::take(&mut simulation.table.state().wrong), Vec::<String>::new());
}
