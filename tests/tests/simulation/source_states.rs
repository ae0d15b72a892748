//! States that a source wants: replaced while they are applied, changed by a person meanwhile, and for names that are taken.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_documents::plan::Plan;
use ebb_engine::{Millis, TargetChange, TargetPhase, Timestamp};
use ebb_protocol::SourceResult;
use ebb_store::{DesiredKey, DesiredTarget, PhaseNotice, RefusedUpdate, TargetOutbox};
use ebb_tests::simulation::{
    FaultInjector, FaultKind, KIND, Scenario, SetupUnit, SimOptions, SimTable, SimTask, Simulation, TableAccess,
    TargetScenario, UnitAction, WriteFate,
};
use serde::Deserialize;

use crate::regressions::gate_first_write;
use crate::schedules::races;

const MINUTE: u64 = 60_000;

fn target() -> TargetScenario {
    Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 900, &[])]).target()
}

fn slow_target() -> TargetScenario {
    Scenario::of(vec![SetupUnit::plain(UnitAction::Later, 5_000, &[])]).target()
}

fn key(uid: Option<&str>) -> DesiredKey {
    DesiredKey { source: "src".to_owned(), kind: KIND.to_owned(), name: "s".to_owned(), uid: uid.map(str::to_owned) }
}

/// Returns an event that applies a document with a label.
fn applied(delivery: &str, uid: Option<&str>) -> DesiredTarget {
    let labels = format!("labels: {{delivery: \"{delivery}\"}}\nresources:");
    let document = target().document.replace("NAME", "s").replacen("resources:", &labels, 1);
    DesiredTarget { document: Some(document), is_delete: false, ..deleted(delivery, uid) }
}

fn deleted(delivery: &str, uid: Option<&str>) -> DesiredTarget {
    DesiredTarget { delivery: delivery.to_owned(), key: key(uid), is_delete: true, ..DesiredTarget::default() }
}

fn simulation() -> Simulation {
    Simulation::scheduled(&target(), FaultInjector::none())
}

fn send(simulation: &Simulation, event: DesiredTarget) -> SourceResult {
    let response = simulation.invoke(|functions| async move { functions.source_event(event).await });
    response.unwrap().unwrap().unwrap().result
}

/// Sends the first event, and waits until nothing is in progress.
fn begin(simulation: &Simulation, event: DesiredTarget) {
    assert_eq!(send(simulation, event), SourceResult::Starting);
    simulation.run_until_idle();
}

fn events(simulation: &Simulation, events: [DesiredTarget; 2]) -> [SimTask<()>; 2] {
    events.map(|event| simulation.start(|functions| async move { functions.source_event(event).await }))
}

fn state(simulation: &Simulation, uid: Option<&str>) -> DesiredTarget {
    simulation.table.state().desired[&key(uid)].clone()
}

/// Makes a state due, as while an invocation applies it.
fn make_due(simulation: &Simulation, change: impl FnOnce(&mut DesiredTarget)) {
    let due = simulation.runtime.now().plus(Millis(20_000));
    let mut state = state(simulation, None);
    (state.due, state.version) = (Some(due), state.version + 1);
    change(&mut state);
    assert!(simulation.table.edit(|store| async move { store.put_desired(&state).await }));
}

/// A row of `source_steps.yaml`, whose head describes the steps. A step can have what it shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepRow {
    name: String,
    /// True if each attempt takes 5 s and calls back.
    #[serde(default)]
    calls_back: bool,
    steps: Vec<Vec<String>>,
}

#[test]
fn each_step_of_a_source_shows_what_it_should() {
    let rows: Vec<StepRow> = serde_saphyr::from_str(include_str!("source_steps.yaml")).unwrap();
    for StepRow { name, calls_back, steps } in rows {
        let target = if calls_back { slow_target() } else { target() };
        let simulation = Simulation::scheduled(&target, FaultInjector::none());
        for step in &steps {
            let words: Vec<&str> = step[0].split(' ').collect();
            let (argument, uid) = (words.get(1).copied().unwrap_or_default(), words.get(2).copied());
            let shown = take_step(&simulation, words[0], argument, uid);
            assert_eq!(shown.as_ref(), step.get(1), "{name}, {step:?}: {}", simulation.trace());
        }
    }
}

fn take_step(simulation: &Simulation, verb: &str, argument: &str, uid: Option<&str>) -> Option<String> {
    let (now, target, state) = (simulation.runtime.now(), || simulation.target().unwrap(), || state(simulation, uid));
    let sent = |event: DesiredTarget| format!("{:?}", send(simulation, event));
    Some(match verb {
        "apply" => sent(applied(argument, uid)),
        "push" => {
            let ttl = "ttl: {after: 10m, from: activity}\nresources:";
            let document = applied("1", None).document.map(|text| text.replacen("resources:", ttl, 1));
            sent(DesiredTarget { document, ..applied(argument, None) })
        }
        "delete" => sent(deleted(argument, uid)),
        "create" => format!("{:?}", simulation.create()),
        "uid" => target().uid,
        "phase" => format!("{:?}", target().phase),
        "cause" => format!("{:?}", target().stop_cause),
        "waits" => target().waiting.is_some().to_string(),
        "pending" => target().pending_update.is_some().to_string(),
        "refused" => target().refused_update.unwrap().reason.contains("`namespace`").to_string(),
        "listed" => {
            let events = simulation.table.state().rejections["src"].events.clone();
            let shown = events.iter().map(|one| format!("{} {}", one.delivery, one.detail.contains("`namespace`")));
            shown.collect::<Vec<_>>().join(", ")
        }
        "extended" => target().expires.is_some_and(|end| end >= now.plus(Millis(9 * MINUTE))).to_string(),
        "planned" => {
            let key = target().instance_key();
            let plan = simulation.table.state().plans[&key].clone();
            String::from_utf8(plan).unwrap().contains(&format!("\"delivery\":\"{argument}\"")).to_string()
        }
        "result" => format!("{:?}", state().result.unwrap().result),
        "due" => state().due.is_some().to_string(),
        "document" => state().document.is_some().to_string(),
        "seldom" => (90..=110).contains(&state().version).to_string(),
        _ => {
            match verb {
                "idle" => simulation.run_until_idle(),
                "seconds" => simulation.advance(1_000 * argument.parse::<u64>().unwrap()),
                "end" => simulation.tear_down(),
                "remove" => {
                    let removed = simulation.invoke(|it| async move { it.delete_target("a", "s", None).await });
                    removed.unwrap().unwrap();
                }
                "redo" if argument.is_empty() => make_due(simulation, |_| {}),
                "redo" => make_due(simulation, |state| (state.is_delete, state.result) = (argument == "delete", None)),
                "refuse" => refuse_waiting_update(simulation),
                "fill" => fill_outbox(simulation),
                "empty" => simulation.table.edit_target("s", |transition| transition.target.outbox.notices.clear()),
                verb => panic!("{verb} is no step"),
            }
            return None;
        }
    })
}

/// A row of `event_orders.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderRow {
    kinds: [String; 2],
    minutes: [Option<u64>; 2],
    uid: Option<String>,
    #[serde(default)]
    places: [u8; 2],
    decides: [String; 2],
}

/// Of two events with the same time, or without a time, the one that decides is known, in both orders of arrival. Neither
/// decides again when it is repeated.
#[test]
fn events_of_one_time_have_an_order() {
    let rows: Vec<OrderRow> = serde_saphyr::from_str(include_str!("event_orders.yaml")).unwrap();
    for OrderRow { kinds, minutes, uid, places, decides } in rows {
        let uid = uid.as_deref();
        let event = |number: usize| DesiredTarget {
            sent: minutes[number].map(|minute| Timestamp(1_700_000_000_000 + minute * MINUTE)),
            order: places[number],
            ..match kinds[number].as_str() {
                "apply" => applied(["a", "b"][number], uid),
                "delete" => deleted(["a", "b"][number], uid),
                kind => panic!("{kind} is no kind of event"),
            }
        };
        for (order, expected) in [[0, 1], [1, 0]].into_iter().zip(decides) {
            let simulation = simulation();
            for _ in 0..2 {
                for number in order {
                    send(&simulation, event(number));
                }
                simulation.run_until_idle();
            }
            let state = state(&simulation, uid);
            let lives = simulation.target().is_some_and(|target| target.phase == TargetPhase::Ready);
            let case = format!("{kinds:?} {minutes:?} {uid:?} {order:?}");
            assert_eq!((state.delivery.as_str(), state.is_delete), (expected.as_str(), !lives), "{case}");
        }
    }
}

/// The function instance that receives the first event has a fast clock.
#[test]
fn clocks_do_not_order_events_without_a_time() {
    let faults = FaultInjector::none().and_at(FaultKind::ColdStart, [1]).and_at(FaultKind::ClockOff, [2]);
    let simulation = Simulation::scheduled(&target(), faults);
    assert_eq!(send(&simulation, applied("1", None)), SourceResult::Starting);
    assert!(state(&simulation, None).time > simulation.runtime.now());
    assert_eq!(send(&simulation, deleted("2", None)), SourceResult::Stopping);
    simulation.run_until_idle();
    assert_eq!(simulation.target().unwrap().phase, TargetPhase::Gone, "{}", simulation.trace());
}

/// Returns true if a rejected state is stored without a place in the list of rejected events.
fn has_unlisted(table: &SimTable) -> bool {
    let state = table.state();
    let is_rejected = |one: &&DesiredTarget| one.result.as_ref().is_some_and(|outcome| outcome.result.is_failure());
    let mut rejected = state.desired.values().filter(is_rejected);
    rejected.any(|one| {
        let events = state.rejections.get("src").map(|rejections| rejections.events.as_slice());
        !events.unwrap_or_default().iter().any(|event| event.delivery == one.delivery)
    })
}

/// The target belongs to the platform. A sweep rejects the state again. An invocation can end after each operation.
#[test]
fn a_rejected_state_is_listed_before_its_result_is_stored() {
    let simulation = simulation();
    simulation.set_up();
    let (table, is_unlisted) = (Arc::clone(&simulation.table), Arc::new(AtomicBool::new(false)));
    let found = Arc::clone(&is_unlisted);
    simulation.table.set_gate(Arc::new(move |_: TableAccess| {
        found.fetch_or(has_unlisted(&table), Ordering::Relaxed);
        ready(WriteFate::Proceed)
    }));
    assert_eq!(send(&simulation, applied("1", None)), SourceResult::Rejected);
    make_due(&simulation, |state| (state.result, state.document) = (None, applied("1", None).document));
    simulation.advance(5 * MINUTE);
    let state = state(&simulation, None);
    assert_eq!((state.due, state.result.unwrap().result), (None, SourceResult::Rejected));
    let is_listed = !is_unlisted.load(Ordering::Relaxed) && !has_unlisted(&simulation.table);
    assert!(is_listed, "{}", simulation.trace());
    let rejections = simulation.table.state().rejections["src"].clone();
    assert_eq!(rejections.events.len(), 1, "{rejections:?}");
}

/// Fills the list of notifications of the target, none of which the platform has accepted.
fn fill_outbox(simulation: &Simulation) {
    let (phase, at, to) = (TargetChange::Gone, Timestamp(0), vec![TargetOutbox::PLATFORM.to_owned()]);
    let notice =
        PhaseNotice { number: 1, phase, at, run: None, ended: None, owner: None, target: serde_json::Value::Null, to };
    simulation.table.edit_target("s", |transition| {
        transition.target.outbox.notices = vec![notice; TargetOutbox::MAX_PLATFORM_NOTICES];
    });
}

/// Changes the namespace in the plan of the update that waits, so that it is refused when it begins.
fn refuse_waiting_update(simulation: &Simulation) {
    let target = simulation.target().unwrap();
    let key = target.update_key(target.pending_update.as_ref().unwrap());
    let json = simulation.table.state().plans[&key].clone();
    let mut plan = Plan::from_json(std::str::from_utf8(&json).unwrap()).unwrap();
    plan.target.namespace = Some("other".to_owned());
    let json = plan.to_json();
    simulation.table.edit(|store| async move { store.restore_plan(&key, json.as_bytes()).await });
    simulation.table.edit_target("s", |transition| {
        transition.target.pending_update.as_mut().unwrap().plan = plan.digest();
    });
}

/// An update was refused before it began. While its removal writes, another update waits with the same generation.
#[test]
fn the_removal_of_an_update_leaves_the_next_one_of_its_generation() {
    let target = slow_target();
    let simulation = Simulation::of(&target, SimOptions { retention: Some(Millis(1)), ..SimOptions::default() });
    assert_eq!(send(&simulation, applied("1", None)), SourceResult::Starting);
    assert_eq!(send(&simulation, applied("2", None)), SourceResult::Waiting);
    simulation.table.edit_target("s", |transition| {
        transition.target.pending_update = None;
        transition.target.refused_update = Some(RefusedUpdate { generation: 2, reason: "refused".to_owned() });
    });
    simulation.advance(10);
    gate_first_write(&simulation, 1_000, WriteFate::Proceed);
    let removal = simulation.start(|functions| async move { functions.remove_expired().await });
    simulation.advance(100);
    assert_eq!(send(&simulation, applied("3", None)), SourceResult::Waiting);
    simulation.runtime.run(removal);
    let wrong = std::mem::take(&mut simulation.table.state().wrong);
    assert_eq!(wrong, Vec::<String>::new(), "{}", simulation.trace());
    simulation.start_sweeps();
    simulation.advance(5 * MINUTE);
    let head = simulation.target().unwrap();
    let end = (head.phase, head.generation, head.pending_update);
    assert_eq!(end, (TargetPhase::Ready, 2, None), "{}", simulation.trace());
}

races! {
    // The deletion can be applied before the target is written. The end of the target then needs no sweep.
    a_target_that_is_opened_and_closed_at_once_ends_before_the_first_sweep:
        target(),
        |_| {},
        |race| events(race, [applied("1", None), deleted("2", None)]),
        |simulation| {
            let (target, state) = (simulation.target(), state(simulation, None));
            let begin = simulation.runtime.now().since(Timestamp(simulation.runtime.elapsed()));
            let is_good = match &target {
                Some(target) if state.is_delete => {
                    target.phase == TargetPhase::Gone && target.since.since(Timestamp(begin.0)).0 < MINUTE
                }
                Some(target) => target.phase == TargetPhase::Ready,
                None => state.is_delete,
            };
            is_good && state.due.is_none()
        };
    the_newest_of_concurrent_events_decides:
        target(),
        |simulation| begin(simulation, applied("1", None)),
        |race| events(race, [deleted("2", None), applied("3", None)]),
        |simulation| {
            simulation.advance(10 * MINUTE);
            let (target, state) = (simulation.target().unwrap(), state(simulation, None));
            let expected = if state.is_delete { TargetPhase::Gone } else { TargetPhase::Ready };
            target.phase == expected && target.waiting.is_none() && state.due.is_none()
        };
    // The deletion and the creation have one time.
    a_creation_lives_beside_a_deletion_of_its_second:
        target(),
        |simulation| begin(simulation, applied("1", None)),
        |race| {
            let sent = Some(Timestamp(1_700_000_000_000));
            events(race, [DesiredTarget { sent, ..deleted("2", None) }, DesiredTarget { sent, ..applied("3", None) }])
        },
        |simulation| {
            simulation.advance(10 * MINUTE);
            let (target, state) = (simulation.target().unwrap(), state(simulation, None));
            target.phase == TargetPhase::Ready && state.delivery == "3" && state.due.is_none()
        };
    // Two events change one instance, which one of them names. Each document gets a generation of its own.
    no_concurrent_change_of_an_instance_is_lost:
        target(),
        |simulation| begin(simulation, applied("1", Some("named"))),
        |race| events(race, [applied("2", Some("named")), applied("3", None)]),
        |simulation| {
            let target = simulation.target().unwrap();
            (target.uid.as_str(), target.phase, target.generation) == ("named", TargetPhase::Ready, 3)
        };
    one_of_two_sources_gets_a_name:
        target(),
        |_| {},
        |race| {
            let second = DesiredTarget { key: DesiredKey { source: "other".to_owned(), ..key(None) }, ..applied("2", None) };
            events(race, [applied("1", None), second])
        },
        |simulation| {
            let (target, table) = (simulation.target().unwrap(), simulation.table.state());
            let is_good = |state: &DesiredTarget| {
                let is_rejected = state.result.as_ref().is_some_and(|one| one.result == SourceResult::Rejected);
                is_rejected == (target.source.as_ref() != Some(&state.key.source))
            };
            target.phase == TargetPhase::Ready && table.desired.values().all(is_good)
        };
}
