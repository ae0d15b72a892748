//! States that a source wants: replaced while they are applied, changed by a person meanwhile, and for names that are taken.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb_engine::{Millis, TargetPhase, Timestamp};
use ebb_protocol::SourceResult;
use ebb_store::{DesiredKey, DesiredTarget, RefusedUpdate};
use ebb_tests::simulation::{
    FaultInjector, KIND, Scenario, SetupUnit, SimOptions, SimTable, SimTask, Simulation, TableAccess, TargetScenario,
    UnitAction, WriteFate,
};
use serde::Deserialize;

use crate::regressions::gate_first_write;
use crate::schedules::races;

const MINUTE: u64 = 60_000;

pub(crate) fn target() -> TargetScenario {
    Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 900, &[])]).target()
}

pub(crate) fn slow_target() -> TargetScenario {
    Scenario::of(vec![SetupUnit::plain(UnitAction::Later, 5_000, &[])]).target()
}

fn key(uid: Option<&str>) -> DesiredKey {
    DesiredKey { source: "src".to_owned(), kind: KIND.to_owned(), name: "s".to_owned(), uid: uid.map(str::to_owned) }
}

/// Returns an event that applies a document with a label.
pub(crate) fn applied(delivery: &str, uid: Option<&str>) -> DesiredTarget {
    let labels = format!("labels: {{by: src, delivery: \"{delivery}\"}}\nresources:");
    let document = target().document.replace("NAME", "s").replacen("resources:", &labels, 1);
    DesiredTarget { document: Some(document), is_delete: false, ..deleted(delivery, uid) }
}

pub(crate) fn deleted(delivery: &str, uid: Option<&str>) -> DesiredTarget {
    DesiredTarget { delivery: delivery.to_owned(), key: key(uid), is_delete: true, ..DesiredTarget::default() }
}

fn simulation() -> Simulation {
    Simulation::scheduled(&target(), FaultInjector::none())
}

pub(crate) fn send(simulation: &Simulation, event: DesiredTarget) -> SourceResult {
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

pub(crate) fn state(simulation: &Simulation, uid: Option<&str>) -> DesiredTarget {
    simulation.table.state().desired[&key(uid)].clone()
}

/// Makes a state due, as while an invocation applies it.
pub(crate) fn make_due(simulation: &Simulation, change: impl FnOnce(&mut DesiredTarget)) {
    let due = simulation.runtime.now().plus(Millis(20_000));
    let mut state = state(simulation, None);
    (state.due, state.version) = (Some(due), state.version + 1);
    change(&mut state);
    assert!(simulation.table.edit(|store| async move { store.put_desired(&state).await }));
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
