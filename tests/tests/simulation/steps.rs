//! What happens to a target, its source and the receivers of its notifications, one step after the other.

use ebb_documents::plan::Plan;
use ebb_engine::{Millis, TargetChange, Timestamp};
use ebb_flow::QueueMessage;
use ebb_store::{DesiredTarget, PhaseNotice, TargetOutbox};
use ebb_tests::simulation::{
    FaultInjector, FaultKind, InvocationFailure, ProviderUnit, Scenario, SetupUnit, Simulation, TargetScenario,
    UnitAction, WriteFate,
};
use serde::Deserialize;

use crate::outbox::{received, subscribed, undelivered};
use crate::regressions;
use crate::source_states::{applied, deleted, make_due, send, slow_target, state, target};

/// A row of `steps.yaml`, whose head describes the steps. A step can have what it shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepRow {
    name: String,
    #[serde(default)]
    target: RowTarget,
    /// Kinds of faults, each with the number of an injection point.
    #[serde(default)]
    faults: Vec<(FaultKind, u64)>,
    steps: Vec<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RowTarget {
    #[default]
    Plain,
    /// Each attempt takes 5 s and calls back.
    Slow,
    Subscribed,
    OneUndo,
    /// The action of each unit, its duration in milliseconds, and the lower units that it reads.
    Units(Vec<(UnitAction, u64, Vec<usize>)>),
    Thing(ProviderUnit),
    /// The lines of its plugin after the first ones.
    Plugin(String),
}

impl RowTarget {
    fn scenario(&self) -> TargetScenario {
        match self {
            Self::Plain => target(),
            Self::Slow => slow_target(),
            Self::Subscribed => subscribed(),
            Self::OneUndo => regressions::with_one_undo(),
            Self::Units(units) => {
                let units = units.iter().map(|(action, millis, reads)| SetupUnit::plain(*action, *millis, reads));
                Scenario::of(units.collect()).target()
            }
            Self::Thing(unit) => unit.target(""),
            Self::Plugin(lines) => regressions::target(lines),
        }
    }
}

/// Each fault of a row is reached.
#[test]
fn each_step_shows_what_it_should() {
    let rows: Vec<StepRow> = serde_saphyr::from_str(include_str!("steps.yaml")).unwrap();
    for StepRow { name, target, faults, steps } in rows {
        let injector = faults.iter().fold(FaultInjector::none(), |all, (kind, number)| all.and_at(*kind, [*number]));
        let simulation = Simulation::scheduled(&target.scenario(), injector);
        for step in &steps {
            let words: Vec<&str> = step[0].split(' ').collect();
            let (argument, other) = (words.get(1).copied().unwrap_or_default(), words.get(2).copied());
            let shown = take_step(&simulation, words[0], argument, other);
            assert_eq!(shown.as_ref(), step.get(1), "{name}, {step:?}: {}", simulation.trace());
        }
        for (kind, _) in &faults {
            let wanted = faults.iter().filter(|(other, _)| other == kind).count();
            assert_eq!(simulation.injected(*kind), wanted as u64, "{name}, {kind}: {}", simulation.trace());
        }
    }
}

fn take_step(simulation: &Simulation, verb: &str, argument: &str, other: Option<&str>) -> Option<String> {
    let (now, target, state) = (simulation.runtime.now(), || simulation.target().unwrap(), || state(simulation, other));
    let sent = |event: DesiredTarget| format!("{:?}", send(simulation, event));
    Some(match verb {
        "apply" => sent(applied(argument, other)),
        "push" => {
            let ttl = "ttl: {after: 10m, from: activity}\nresources:";
            let document = applied("1", None).document.map(|text| text.replacen("resources:", ttl, 1));
            sent(DesiredTarget { document, ..applied(argument, None) })
        }
        "delete" => sent(deleted(argument, other)),
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
        "extended" => target().expires.is_some_and(|end| end >= now.plus(Millis(9 * 60_000))).to_string(),
        "planned" => {
            let key = target().instance_key();
            let plan = simulation.table.state().plans[&key].clone();
            String::from_utf8(plan).unwrap().contains(&format!("\"delivery\":\"{argument}\"")).to_string()
        }
        "result" => format!("{:?}", state().result.unwrap().result),
        "due" => state().due.is_some().to_string(),
        "document" => state().document.is_some().to_string(),
        "ahead" => (state().time > now).to_string(),
        "seldom" => (90..=110).contains(&state().version).to_string(),
        "attempts" => {
            let attempts = simulation.ledger.state().attempts.clone();
            let keys = attempts.into_iter().map(|one| one.unit.unit_key.clone());
            keys.filter(|key| argument.is_empty() || key == argument).collect::<Vec<_>>().join(", ")
        }
        "granted" => simulation.trace().matches("grants the access token").count().to_string(),
        "failed" => Vec::from_iter(simulation.end(None).failed).join(", "),
        "remaining" => Vec::from_iter(simulation.end(None).remaining).join(", "),
        "violations" => simulation.end(None).violations.join("\n"),
        "undelivered" => {
            let shown =
                undelivered(simulation).into_iter().map(|(subscription, phase)| format!("{subscription} {phase}"));
            shown.collect::<Vec<_>>().join(", ")
        }
        "received" => {
            let own = received(simulation).into_iter().filter(|((subscription, _), _)| subscription == argument);
            let shown = own.map(|((_, id), times)| format!("{} {times}", id.rsplit('-').nth(1).unwrap()));
            shown.collect::<Vec<_>>().join(", ")
        }
        "reported" => (target().outbox == TargetOutbox::default()).to_string(),
        "notified" => simulation.ledger.state().notifications.len().to_string(),
        "queued" => {
            let is_of_target = |message: &QueueMessage| matches!(message, QueueMessage::Target(..));
            simulation.ledger.state().messages.iter().any(|(_, message)| is_of_target(message)).to_string()
        }
        "wakes" => target().due.is_some().to_string(),
        _ => {
            match verb {
                "idle" => simulation.run_until_idle(),
                "seconds" => simulation.advance(1_000 * argument.parse::<u64>().unwrap()),
                "end" => simulation.tear_down(),
                "stop" => simulation.delete(),
                "retry" => regressions::retry(simulation),
                "crash" => {
                    regressions::gate_first_write(simulation, 0, WriteFate::Die);
                    let retried = simulation.invoke(|functions| async move { functions.retry("s", None).await });
                    assert!(matches!(retried, Some(Err(InvocationFailure))));
                }
                "observe" => simulation.observe_sources(&[argument]),
                "open" | "close" => simulation.set_thing(argument, other.unwrap(), verb == "open"),
                "refusing" => {
                    let status = other.unwrap().parse().unwrap();
                    simulation.ledger.state().refusing.insert(argument.to_owned(), status);
                }
                "accepting" => simulation.ledger.state().refusing.clear(),
                "remove" => {
                    let removed = simulation.invoke(|it| async move { it.delete_target("a", "s", None).await });
                    removed.unwrap().unwrap();
                }
                "redo" if argument.is_empty() => make_due(simulation, |_| {}),
                "redo" => make_due(simulation, |state| (state.is_delete, state.result) = (argument == "delete", None)),
                "refuse" => refuse_waiting_update(simulation),
                "fill" => fill_outbox(simulation),
                "empty" => simulation.table.edit_target("s", |transition| transition.target.outbox.notices.clear()),
                verb => panic!("unknown step {verb}"),
            }
            return None;
        }
    })
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
