//! Concurrent invocations with every order of their operations on the table.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ebb_engine::{EventName, Hook, Millis, Patch, PatchChange, RunPhase, TargetPhase, Timestamp};
use ebb_flow::advance::callback::CallbackOutcome;
use ebb_flow::{QueueMessage, TargetRequest};
use ebb_protocol::lifecycle::GONE;
use ebb_protocol::{ApplyTarget, EventRef, LifecycleData, LifecycleType, RunId, TargetAccess, TargetLimit, TokenKind};
use ebb_store::{InstanceExpiry, NewRun, NotificationState, RunFacts, TargetHead, TargetTransition};
use ebb_tests::fakes;
use ebb_tests::platform::sandbox;
use ebb_tests::simulation::{
    AttemptFate, ClusterOptions, FaultInjector, FaultKind, InvocationFailure, KIND, Scenario, SetupUnit, SimOptions,
    SimTask, SimTaskId, Simulation, TableAccess, TargetScenario, UNREACHABLE, UnitAction, WriteFate, lock, settings,
    unreachable_target,
};
use futures::future::join_all;

use crate::crash_points::assert_none;
use crate::regressions::{EVENT_MS, create, delete, stuck, with_an_event, with_one_undo};
use crate::table_schedule::schedule;

const SECOND: u64 = 1_000;
const POLL_MS: u64 = 10;
/// Maximum time for which a gate delays a write.
const MAX_DELAY_MS: u64 = 10 * SECOND;

/// Number of operations whose order varies. A test runs 2 to the power of this number. `EBB_RACE_TURNS` overrides it.
const OPERATIONS: usize = 7;

pub(crate) fn operations() -> usize {
    std::env::var("EBB_RACE_TURNS").ok().map_or(OPERATIONS, |text| text.parse().expect("a number of operations"))
}

fn scenario() -> Scenario {
    Scenario::of(vec![SetupUnit::plain(UnitAction::Pod, 700, &[]), SetupUnit::plain(UnitAction::Once, 900, &[0])])
}

/// Returns a simulation of one target without other faults and options.
fn simulation(scenario: &Scenario) -> Simulation {
    Simulation::of(&scenario.target(), SimOptions::default())
}

/// Runs `race` in every order, waits until nothing is in progress, and checks the end.
pub(crate) fn in_every_order(
    target: &TargetScenario,
    operations: usize,
    faults: impl Fn() -> FaultInjector,
    before: impl Fn(&Simulation),
    race: impl Fn(&Simulation) -> [SimTask<()>; 2],
    is_good: impl Fn(&Simulation) -> bool,
) {
    let (mut wrong, mut most) = (Vec::new(), 0);
    for order in 0..1u32 << operations {
        let mut simulation = Simulation::of(target, SimOptions { faults: faults(), ..SimOptions::default() });
        simulation.add(target, "s", "uid-2", None);
        simulation.start_sweeps();
        before(&simulation);
        let schedule = schedule(&simulation, order, operations);
        let tasks = race(&simulation);
        simulation.runtime.run(join_all(tasks));
        simulation.run_until_idle();
        most = lock(&schedule).followed.max(most);
        if !is_good(&simulation) {
            let (target, desired) = (simulation.target(), simulation.table.state().desired.clone());
            let found = format!("{target:?} {desired:?} {:?}", simulation.end(None));
            wrong.push(format!("{order:0operations$b} {found}\n{}", simulation.trace()));
        }
    }
    assert!(most > operations / 2, "no order was followed for more than half of the operations");
    assert_none(wrong);
}

fn send_event(simulation: &Simulation, number: usize) -> SimTask<()> {
    let instance = &simulation.instances[0];
    simulation.send(instance, move |platform, instance| async move { platform.send_event(&instance, number).await })
}

/// Applies a document with a time to live by the API.
fn apply(simulation: &Simulation, ttl: &str) -> SimTask<()> {
    let request = request(&scenario().target(), ttl);
    simulation.start(|functions| async move { functions.apply(request).await })
}

fn phase(simulation: &Simulation) -> Option<(String, TargetPhase)> {
    simulation.target().map(|target| (target.uid, target.phase))
}

/// Returns true if no object and no open run exists, and the target is gone as `uid` or was never created.
fn is_gone(simulation: &Simulation, uid: &str) -> bool {
    let (end, phase) = (simulation.end(None), phase(simulation));
    let is_gone = phase.is_none_or(|phase| phase == (uid.to_owned(), TargetPhase::Gone));
    is_gone && end.remaining.is_empty() && end.violations.is_empty()
}

fn is_first_gone(simulation: &Simulation) -> bool {
    is_gone(simulation, "uid-1")
}

fn is_ready(simulation: &Simulation) -> bool {
    let end = simulation.end(None);
    end.phase == Some(TargetPhase::Ready) && end.violations.is_empty()
}

/// Returns true if the target is ready after its events.
fn is_ready_after_events(simulation: &Simulation) -> bool {
    let ran = runs(simulation).iter().filter(|run| matches!(run.hook(), Hook::Event(_))).count();
    is_ready(simulation) && ran == 2
}

/// Tests two requests in every order: the target, what happens before, the requests, and what holds in the end.
macro_rules! races {
    ($($test:ident: $target:expr, $before:expr, $race:expr, $is_good:expr;)+) => {$(
        #[test]
        fn $test() {
            let (operations, faults) = ($crate::schedules::operations(), ebb_tests::simulation::FaultInjector::none);
            $crate::schedules::in_every_order(&$target, operations, faults, $before, $race, $is_good);
        }
    )+};
}
pub(crate) use races;

races! {
    no_object_remains_after_a_concurrent_creation_and_deletion:
        scenario().target(), |_| {}, |race| [create(race, 0), delete(race, 0)], is_first_gone;
    no_instance_remains_after_a_concurrent_creation_and_deletion_by_the_api:
        scenario().target(),
        |_| {},
        |race| {
            let request = request(&scenario().target(), "8h");
            let uid = request.derived_uid().unwrap();
            let (creation, platform) = (race.start(|it| async move { it.apply(request).await }), race.platform.clone());
            [creation, race.runtime.spawn(async move { platform.delete_by("person", "s", Some(&uid)).await })]
        },
        |simulation| is_gone(simulation, &request(&scenario().target(), "8h").derived_uid().unwrap());
    a_waiting_instance_starts_or_is_deleted:
        scenario().target(),
        |simulation| {
            simulation.set_up();
            simulation.runtime.run(create(simulation, 1));
        },
        |race| [delete(race, 0), delete(race, 1)],
        |simulation| is_first_gone(simulation) || is_gone(simulation, "uid-2");
    a_second_instance_starts_when_the_first_one_ends:
        scenario().target(),
        Simulation::set_up,
        |race| [delete(race, 0), create(race, 1)],
        |simulation| {
            let is_second = simulation.target().is_some_and(|target| target.uid == "uid-2");
            is_second && is_ready(simulation) && simulation.end(None).remaining.len() == 2
        };
    two_events_run_one_after_the_other:
        with_an_event(), Simulation::set_up, |race| [send_event(race, 0), send_event(race, 1)], is_ready_after_events;
    // The first event ends in a millisecond.
    an_event_runs_that_comes_when_another_one_ends:
        with_an_event(),
        |simulation| {
            simulation.set_up();
            drop(send_event(simulation, 0));
            simulation.advance(EVENT_MS - 1);
        },
        |race| [send_event(race, 1), race.runtime.spawn(async {})],
        is_ready_after_events;
    no_event_runs_after_a_concurrent_deletion:
        with_an_event(), Simulation::set_up, |race| [send_event(race, 0), delete(race, 0)], is_first_gone;
    no_object_remains_after_a_concurrent_retry_and_deletion:
        {
            let mut scenario = scenario();
            scenario.units[1].fate = AttemptFate::Never;
            scenario.target()
        },
        |simulation| {
            simulation.set_up();
            assert_eq!(phase(simulation), Some(("uid-1".to_owned(), TargetPhase::Failed)));
        },
        |race| {
            let retry = race.start(|functions| async move { functions.retry("s", None).await });
            [retry, delete(race, 0)]
        },
        is_first_gone;
    // Each document gets a generation of its own.
    no_concurrent_request_is_lost:
        scenario().target(),
        Simulation::set_up,
        |race| ["8h", "9h"].map(|ttl| apply(race, ttl)),
        |simulation| {
            let target = simulation.target().unwrap();
            (target.phase, target.generation) == (TargetPhase::Ready, 3)
        };
}

/// The invocation that creates a target crashes before it posts the webhook. Messages and the first scheduled sweep are lost.
/// A sweep records the start, and one of the next two sweeps posts the webhook.
#[test]
fn one_of_two_sweeps_posts_a_webhook_again() {
    let target = Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 5 * SECOND, &[])]).target();
    let faults = || {
        let faults = FaultInjector::often(1, &[(FaultKind::MessageLost, 100)]);
        faults.and_at(FaultKind::DeathBeforeCall, [1]).and_at(FaultKind::SweepMissed, [1])
    };
    let sweep = |simulation: &Simulation| simulation.start(|functions| async move { functions.sweep().await });
    let before = |simulation: &Simulation| {
        // The request is not repeated after a crash.
        let (platform, instance) = (simulation.platform.clone(), simulation.instances[0].clone());
        simulation.runtime.run(async move { platform.create_once(&instance).await });
        advance_to_wakeup(simulation);
        simulation.runtime.run(sweep(simulation));
        advance_to_wakeup(simulation);
        assert!(simulation.ledger.state().attempts.is_empty(), "{}", simulation.trace());
    };
    in_every_order(&target, operations(), faults, before, |race| [sweep(race), sweep(race)], is_ready);
}

/// An operator deletes a stuck target by force while an invocation ends its run, which still waits for the platform. Nothing
/// else has to happen until the target is gone, and the platform learns it.
#[test]
fn a_forced_deletion_ends_while_its_run_ends() {
    let teardown = |simulation: &Simulation| {
        let of = |run: &RunId| run.hook() == Hook::PostStop;
        runs(simulation).into_iter().find(of).unwrap()
    };
    let before = |simulation: &Simulation| {
        simulation.set_up();
        simulation.tear_down();
        assert_eq!(phase(simulation), Some(("uid-1".to_owned(), TargetPhase::Stuck)));
        let (run, due) = (teardown(simulation), simulation.runtime.now());
        let changes =
            vec![PatchChange::SetPhase(RunPhase::Running), PatchChange::SetNotified(None), PatchChange::SetDue(due)];
        let open = Patch { conditions: Vec::new(), changes };
        simulation.table.edit(|store| async move { store.patch_run(&run, &open).await.map(drop) });
        let held = Some(NotificationState::Held(Hook::PostStop));
        simulation.table.edit_target("s", |transition| transition.target.notification = held);
    };
    let race = |simulation: &Simulation| {
        let message = QueueMessage::Run(teardown(simulation));
        [
            simulation.start(|functions| async move { functions.override_units("s", None, None).await }),
            simulation.start(|functions| async move { functions.message(message).await }),
        ]
    };
    let is_gone = |simulation: &Simulation| {
        let end = simulation.end(None);
        end.phase == Some(TargetPhase::Gone) && end.notifications.contains(GONE) && end.violations.is_empty()
    };
    in_every_order(&with_one_undo(), operations(), stuck, before, race, is_gone);
}

/// Advances the time until the first run is due.
fn advance_to_wakeup(simulation: &Simulation) {
    let run = runs(simulation).remove(0);
    simulation.advance(due(simulation, &run).unwrap().since(simulation.runtime.now()).0 + 1);
}

fn due(simulation: &Simulation, run: &RunId) -> Option<Timestamp> {
    simulation.table.state().heads.get(run)?.head.due
}

fn runs(simulation: &Simulation) -> Vec<RunId> {
    simulation.table.state().heads.keys().cloned().collect()
}

fn count(simulation: &Simulation, is_counted: impl Fn(&QueueMessage) -> bool) -> usize {
    simulation.ledger.state().messages.iter().filter(|(_, message)| is_counted(message)).count()
}

/// The notice of a removal in a simulation, and a second.
const NOTICE_MS: u64 = 107 * SECOND;

/// Removes expired data once.
fn remove(simulation: &Simulation) -> SimTask<()> {
    simulation.start(|functions| async move { functions.remove_expired().await })
}

/// Reports another success of the first unit.
fn report_again(simulation: &Simulation) -> SimTask<Result<CallbackOutcome, InvocationFailure>> {
    let run = runs(simulation).into_iter().find(|run| run.hook() == Hook::PreStart).unwrap();
    let expiry = simulation.runtime.now().plus(Millis(3_600 * SECOND));
    let token = fakes::claims(run, 1, TokenKind::Webhook, expiry).sign(&settings(0).token_keys);
    let body = serde_json::json!({"status": "succeeded", "outputs": {"id": "again"}}).to_string().into_bytes();
    let functions = Arc::clone(&simulation.functions);
    simulation.runtime.spawn(async move { functions.callback(token, body).await })
}

/// A unit of a gone instance reports another success while the removal of the data is announced (round 0), or executed
/// (round 1).
#[test]
fn an_accepted_success_is_undone_before_its_instance_is_removed() {
    let target = Scenario::of(vec![SetupUnit::plain(UnitAction::Later, 700, &[])]).target();
    let (mut accepted, mut refused, mut wrong) = (0, 0, Vec::new());
    for (round, order) in (0..2).flat_map(|round| (0..1_u32 << operations()).map(move |order| (round, order))) {
        let options = SimOptions { retention: Some(Millis(1)), ..SimOptions::default() };
        let simulation = Simulation::of(&target, options);
        simulation.set_up();
        simulation.tear_down();
        for _ in 0..round {
            simulation.runtime.run(remove(&simulation));
            simulation.advance(NOTICE_MS);
        }
        schedule(&simulation, order, operations());
        let (removal, report) = (remove(&simulation), report_again(&simulation));
        let outcome = simulation.runtime.run(async move {
            removal.await;
            report.await
        });
        let outcome = outcome.flatten();
        let is_accepted = matches!(outcome, Some(Ok(CallbackOutcome::Accepted | CallbackOutcome::Late(_))));
        *(if is_accepted { &mut accepted } else { &mut refused }) += 1;
        // The next rounds withdraw the announcement, so that the undo can report its result.
        simulation.start_sweeps();
        simulation.run_until_idle();
        for _ in 0..2 {
            simulation.advance(NOTICE_MS);
            simulation.runtime.run(remove(&simulation));
        }
        let is_undone = simulation.ledger.state().attempts.iter().any(|one| one.reads.iter().any(|id| id == "again"));
        let mut violations = simulation.end(None).violations;
        violations.append(&mut simulation.table.state().wrong);
        if is_accepted != is_undone || !violations.is_empty() {
            wrong.push(format!("{round} {order:b} {outcome:?} {violations:?}\n{}", simulation.trace()));
        }
    }
    assert_none(wrong);
    assert!(accepted > 0 && refused > 0, "{accepted} accepted, {refused} refused");
}

/// The runs of more events are due than a round announces. Each minute, a round removes as many as it announces, although
/// the notice is longer, and operations of the table take time.
#[test]
fn removals_are_announced_while_others_wait() {
    let options = SimOptions { retention: Some(Millis(1)), latency_ms: 16, ..SimOptions::default() };
    let simulation = Simulation::of(&scenario().target(), options);
    let (kind, name, uid, plan) = (KIND.to_owned(), "gone".to_owned(), "uid".to_owned(), String::new());
    let (generation, started) = (1, Timestamp::default());
    let facts = RunFacts { kind, name, uid, generation, plan, routing_key: None, started, by: None };
    for number in 0..1_500_u64 {
        let RunFacts { kind, name, uid, plan, .. } = facts.clone();
        let event = EventRef::new(EventName::new("sleep").unwrap(), &format!("{number}"));
        let run = RunId::of_event(&facts.instance_key(), generation, &event);
        let (updates, event, due, failures) = (0, Some(event), started, 0);
        let expiry = InstanceExpiry { kind, name, uid, generation, updates, plan, event, due, failures };
        let target = TargetHead { version: number + 1, ..TargetHead::new(KIND, "gone", "other", started) };
        let begun = TargetTransition {
            run: Some(NewRun { id: run.clone(), facts: facts.clone(), due }),
            ..TargetTransition::new(target, number.checked_sub(1).map(|seen| seen + 1))
        };
        let changes = vec![PatchChange::SetPhase(RunPhase::Closed), PatchChange::ClearDue];
        let close = Patch { conditions: Vec::new(), changes };
        simulation.table.edit(|store| async move {
            assert!(store.move_target(&begun).await?);
            store.patch_run(&run, &close).await?;
            store.put_expiry(&expiry).await
        });
    }
    let mut remaining = Vec::new();
    for minute in 1..=5 {
        simulation.runtime.run(remove(&simulation));
        remaining.push(simulation.table.state().expiries.len());
        simulation.advance((minute * 60 * SECOND).saturating_sub(simulation.runtime.elapsed()));
    }
    assert_eq!(remaining, [1_500, 1_500, 1_000, 500, 0]);
    assert_none(std::mem::take(&mut simulation.table.state().wrong));
}

/// The writes so far of a table whose writes are delayed.
#[derive(Default)]
struct DelayedWrites {
    writers: Mutex<Vec<SimTaskId>>,
    /// True if a write passed because of the maximum delay.
    is_expired: AtomicBool,
}

/// Delays writes while `is_delayed` returns true. It gets the tasks of all writes so far and the number of the write.
fn delay_writes(simulation: &Simulation, is_delayed: fn(&[SimTaskId], usize) -> bool) -> Arc<DelayedWrites> {
    let delayed = Arc::<DelayedWrites>::default();
    let (runtime, writes) = (simulation.runtime.clone(), Arc::clone(&delayed));
    simulation.table.set_gate(Arc::new(move |access: TableAccess| {
        let (runtime, writes) = (runtime.clone(), Arc::clone(&writes));
        async move {
            if access == TableAccess::Read {
                return WriteFate::Proceed;
            }
            let write = {
                let mut writers = writes.writers.lock().unwrap();
                writers.push(runtime.current());
                writers.len() - 1
            };
            let end = runtime.elapsed() + MAX_DELAY_MS;
            while is_delayed(&writes.writers.lock().unwrap(), write) {
                if runtime.elapsed() >= end {
                    writes.is_expired.store(true, Ordering::Relaxed);
                    break;
                }
                runtime.sleep(POLL_MS).await;
            }
            WriteFate::Proceed
        }
    }));
    delayed
}

/// Each of two sweeps sets a wake-up after a minute. The second one makes its two writes before those of the first one: the
/// time of the next request of the queued task, and the wake-up of the run.
#[test]
fn a_run_is_due_at_the_wakeup_of_the_first_of_two_sweeps() {
    let scenario = Scenario::of(vec![SetupUnit::plain(UnitAction::Pod, SECOND, &[])]);
    let clusters = ClusterOptions { free_from: 30 * 60 * SECOND, ..ClusterOptions::default() };
    let faults = FaultInjector::often(1, &[(FaultKind::MessageLost, 100)]);
    let simulation = Simulation::of(&scenario.target(), SimOptions { faults, clusters, ..SimOptions::default() });
    simulation.create();
    let run = runs(&simulation).remove(0);
    advance_to_wakeup(&simulation);
    let is_delayed = |writers: &[SimTaskId], write: usize| {
        let others = writers.iter().filter(|writer| **writer != writers[0]);
        writers[write] == writers[0] && others.count() < 2
    };
    let writes = delay_writes(&simulation, is_delayed);
    let started = simulation.runtime.now();
    let sweeps = [0, SECOND].map(|wait| {
        let (runtime, functions) = (simulation.runtime.clone(), Arc::clone(&simulation.functions));
        simulation.runtime.spawn(async move {
            runtime.sleep(wait).await;
            functions.sweep().await.ok()
        })
    });
    simulation.runtime.run(join_all(sweeps));
    let is_delayed = is_delayed(&writes.writers.lock().unwrap(), 0);
    assert!(!is_delayed && !writes.is_expired.load(Ordering::Relaxed));
    assert_eq!(due(&simulation, &run), Some(started.plus(Millis(60 * SECOND))), "{}", simulation.trace());
}

/// Returns a request to the API for the target `s` with a time to live.
fn request(target: &TargetScenario, ttl: &str) -> TargetRequest {
    let document = target.document.replace("NAME", "s");
    let target = ApplyTarget {
        kind: KIND.to_owned(),
        name: "s".to_owned(),
        document: document.replacen("resources:", &format!("ttl: {ttl}\nresources:"), 1),
        ..ApplyTarget::default()
    };
    let access = TargetAccess { caller: "token a".to_owned(), limits: vec![TargetLimit::All] };
    TargetRequest { target, key: Some("build-7".to_owned()), access, source: None }
}

/// A request removes the surplus instance of an earlier one, which waits for the name. It has begun in between.
#[test]
fn a_request_does_not_end_an_instance_that_has_begun() {
    let target = Scenario::of(vec![SetupUnit::plain(UnitAction::Once, 900, &[])]).target();
    let document = target.document.replace("NAME", "s");
    let simulation = Simulation::after_setup(&target, FaultInjector::none());
    let instance = |uid: &str| LifecycleData { document: Some(document.clone()), ..sandbox("s", uid, "") };
    let (creation, waiting) = ((LifecycleType::Created, String::new()), instance("api-waiting"));
    let waits = simulation.invoke(|functions| async move { functions.lifecycle(creation, waiting).await });
    assert!(matches!(waits, Some(Ok(Ok(_)))), "{waits:?}");
    // The first instance ends before the second operation of the request. The next one then begins.
    let (runtime, functions, ended) =
        (simulation.runtime.clone(), Arc::clone(&simulation.functions), instance("uid-1"));
    let first = Mutex::new(None::<(SimTaskId, usize)>);
    simulation.table.set_gate(Arc::new(move |_: TableAccess| {
        let task = runtime.current();
        let is_second = {
            let mut first = first.lock().unwrap();
            let (first, operations) = first.get_or_insert((task, 0));
            *operations += usize::from(*first == task);
            *first == task && *operations == 2
        };
        let (runtime, functions, ended) = (runtime.clone(), Arc::clone(&functions), ended.clone());
        async move {
            if is_second {
                let deletion = (LifecycleType::Deleted, "deleted".to_owned());
                functions.lifecycle(deletion, ended).await.unwrap().unwrap();
                runtime.sleep(15 * SECOND).await;
            }
            WriteFate::Proceed
        }
    }));
    let request = request(&target, "9h");
    let applied = simulation.invoke(|functions| async move { functions.apply(request).await });
    assert!(matches!(applied, Some(Ok(Ok(_)))), "{applied:?}");
    simulation.run_until_idle();
    let target = simulation.target().unwrap();
    assert_eq!((target.uid.as_str(), target.phase, target.generation), ("api-waiting", TargetPhase::Ready, 2));
}

/// At most two recoveries wait for an unreachable cluster at once. The third one runs out of time.
#[test]
fn a_recovery_that_runs_out_of_time_is_repeated() {
    const TARGETS: usize = 3;
    let target = unreachable_target();
    let mut simulation = Simulation::new([&target], SimOptions::default());
    for number in 0..TARGETS {
        simulation.add(&target, &format!("{UNREACHABLE}-{number}"), &format!("uid-{number}"), None);
        create(&simulation, number);
    }
    simulation.advance(SECOND);
    let runs = runs(&simulation);
    assert_eq!(runs.len(), TARGETS);
    for run in &runs {
        let message = QueueMessage::Recover(run.clone());
        drop(simulation.start(|functions| async move { functions.message(message).await }));
    }
    simulation.advance(60 * SECOND);
    let repeated = count(&simulation, |message| matches!(message, QueueMessage::Recover(_)));
    assert!(repeated > 0, "{}", simulation.trace());
}

/// Deletes a target whose webhook has not called back, and delivers `extra` messages for its run. Returns the number of
/// messages for that run from the deletion to the end.
fn messages_after_deletion(extra: usize) -> usize {
    let simulation = simulation(&Scenario::of(vec![SetupUnit::plain(UnitAction::Later, 3_600_000, &[])]));
    simulation.start_sweeps();
    simulation.create();
    simulation.delete();
    let message = QueueMessage::Run(runs(&simulation).remove(0));
    let before = count(&simulation, |sent| *sent == message);
    for _ in 0..extra {
        let message = message.clone();
        simulation.invoke(|functions| async move { functions.message(message).await });
    }
    simulation.run_until_idle();
    assert_eq!(simulation.end(None).violations, Vec::<String>::new(), "{}", simulation.trace());
    count(&simulation, |sent| *sent == message) - before
}

#[test]
fn duplicated_messages_cause_no_further_messages() {
    let without_duplicates = messages_after_deletion(0);
    assert!(without_duplicates > 0, "the run gets no message");
    assert_eq!(messages_after_deletion(5), without_duplicates);
}

/// Number of the write that seals the third undo. The writes before it stop the target, seal two undos, and complete one.
const SEAL: usize = 4;

/// An invocation waits for an undo while it seals another undo. The delayed seal must not block the first one.
#[test]
fn a_dispatch_continues_while_the_next_one_is_prepared() {
    let units = [(100, &[][..]), (100, &[0]), (2_000, &[])];
    let units = units.map(|(millis, reads)| SetupUnit::plain(UnitAction::Once, millis, reads));
    let simulation = simulation(&Scenario::of(units.into()));
    simulation.set_up();
    // The write is delayed until the next one has started.
    let delayed = delay_writes(&simulation, |writers, write| write + 1 == SEAL && writers.len() == SEAL);
    simulation.tear_down();
    assert_eq!(simulation.target().map(|target| target.phase), Some(TargetPhase::Gone));
    let writes = delayed.writers.lock().unwrap().len();
    assert!(writes > SEAL && !delayed.is_expired.load(Ordering::Relaxed), "{}", simulation.trace());
}
