//! Notifications of subscriptions: receivers that hang, and more changes than a target holds. `steps.yaml` has receivers that
//! reject.

use std::collections::BTreeMap;

use ebb_store::{NamedKind, TargetOutbox};
use ebb_tests::simulation::{FaultInjector, Scenario, SetupUnit, SimOptions, Simulation, TargetScenario, UnitAction};

const HOUR: u64 = 3_600_000;

pub(crate) fn subscribed() -> TargetScenario {
    let target = Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 700, &[])]).target();
    TargetScenario { subscribed: true, ..target }
}

/// Returns the number of times that receivers got each notification.
pub(crate) fn received(simulation: &Simulation) -> BTreeMap<(String, String), u32> {
    let mut times = BTreeMap::new();
    for one in &simulation.ledger.state().received {
        *times.entry((one.subscription.clone(), one.id.clone())).or_default() += 1;
    }
    times
}

/// Returns the subscriptions and phases of the notifications that were given up, the oldest first.
pub(crate) fn undelivered(simulation: &Simulation) -> Vec<(String, String)> {
    let state = simulation.table.state();
    let given_up = state.documents.iter().filter(|((kind, _), _)| kind == "Undelivered");
    let stored = given_up.map(|(_, document)| serde_json::from_str(&document.document).unwrap());
    let mut listed: Vec<serde_json::Value> = stored.collect();
    listed.sort_by_key(|stored| stored["notice"]["number"].as_u64());
    let text = |stored: &serde_json::Value, path: &str| stored.pointer(path).unwrap().as_str().unwrap().to_owned();
    listed.iter().map(|stored| (text(stored, "/subscription"), text(stored, "/notice/phase"))).collect()
}

/// A receiver hangs for an hour. The other receiver of the same targets gets everything at once, a bounded number of requests
/// waits for the one that hangs, and it gets everything afterwards.
#[test]
fn a_receiver_that_hangs_delays_no_other() {
    const TARGETS: usize = 150;
    let target = subscribed();
    let mut simulation = Simulation::new([&target], SimOptions::default());
    simulation.start_sweeps();
    simulation.ledger.state().hanging.insert("all".to_owned());
    for number in 0..TARGETS {
        let instance = simulation.add(&target, &format!("t{number}"), &format!("uid-{number}"), None);
        simulation.send(&instance, |platform, instance| async move { platform.create(&instance).await });
    }
    simulation.advance(10_000);
    // No request to the receiver that hangs has ended yet.
    assert_eq!(received(&simulation).len(), TARGETS, "{}", simulation.trace());
    simulation.advance(HOUR);
    let hung = simulation.ledger.state().hung.clone();
    let most = |from: u64| {
        let at = |time: u64| hung.iter().filter(|(begin, end)| (*begin..*end).contains(&time)).count();
        hung.iter().filter(|(begin, _)| *begin >= from).map(|(begin, _)| at(*begin)).max().unwrap()
    };
    let first_end = hung[0].1;
    assert_eq!((most(0), most(first_end + 1)), (12, 2));
    // A request in 5 s to 5 min, twice at a time.
    assert!((20..120).contains(&hung.len()), "{} requests", hung.len());
    let messages = simulation.ledger.state().messages.len();
    assert!(messages < TARGETS * 40, "{messages} messages");
    simulation.ledger.state().hanging.clear();
    simulation.advance(HOUR);
    assert_eq!(received(&simulation).values().sum::<u32>() as usize, 3 * TARGETS);
}

/// More receivers of a target hang than one write begins deliveries to. The last receiver gets its notification meanwhile,
/// without a sweep.
#[test]
fn many_receivers_that_hang_delay_no_other() {
    let simulation = Simulation::of(&subscribed(), SimOptions::default());
    for number in 0..98 {
        // Receivers get their notifications in the order of these names.
        let name = format!("a{number:02}");
        let ends = ("Subscription".to_owned(), "ends".to_owned());
        let mut subscription = simulation.table.state().documents[&ends].clone();
        subscription.document = subscription.document.replace("ends", &name);
        subscription.name.clone_from(&name);
        simulation.table.put_documents(NamedKind::Subscription, std::iter::once(subscription));
        simulation.ledger.state().hanging.insert(name);
    }
    simulation.create();
    simulation.advance(10_000);
    let got = received(&simulation);
    assert!(got.keys().any(|(name, id)| name == "ends" && id.contains("-ready-")), "{got:?}");
}

#[test]
fn the_oldest_of_too_many_notifications_are_given_up() {
    for (labels, expected, added) in [(1, TargetOutbox::MAX_NOTICES, 2 * TargetOutbox::MAX_NOTICES), (8_000, 16, 40)] {
        let simulation = Simulation::scheduled(&subscribed(), FaultInjector::none());
        simulation.ledger.state().refusing.insert("all".to_owned(), 503);
        simulation.create();
        simulation.advance(HOUR);
        simulation.table.edit_target("s", |transition| {
            let notices = &mut transition.target.outbox.notices;
            let last = notices.last().unwrap().clone();
            for number in 0..added as u64 {
                let mut notice = last.clone();
                notice.number = 1_000 + number;
                notice.target["labels"] = serde_json::json!({"a": "x".repeat(labels)});
                notices.push(notice);
            }
        });
        simulation.advance(HOUR);
        let target = simulation.target().unwrap();
        let (waiting, first) = (target.outbox.notices.len(), target.outbox.notices[0].number);
        assert!(waiting <= expected && waiting + 2 > expected, "{waiting} of {expected}");
        assert_eq!(first, (1_000 + added - waiting) as u64);
        assert_eq!(undelivered(&simulation).len(), added + 2 - waiting);
        assert!(!target.outbox.exceeds(1));
    }
}
