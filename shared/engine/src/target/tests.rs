use super::*;

const PHASES: [TargetPhase; 7] = TargetPhase::ALL;
const STOPPING_OR_GONE: [TargetPhase; 3] = [TargetPhase::Stopping, TargetPhase::Stuck, TargetPhase::Gone];

fn target(phase: TargetPhase, hook: Option<Hook>, waiting: Option<&str>) -> Target {
    let waiting = waiting.map(|uid| WaitingInstance { uid: uid.to_owned(), generation: 1, source: None });
    Target { uid: "own".into(), generation: 2, phase, hook, waiting, ..Target::default() }
}

const SLEEP: fn() -> EventName = || EventName::new("sleep").unwrap();

#[test]
fn hooks_have_names_and_a_stored_form() {
    let event = Hook::Event(SLEEP());
    let hooks = Hook::ALL.into_iter().chain([Hook::Update(12), event]);
    let rows = hooks.map(|hook| format!("{} {hook} {}", hook.name(), hook.is_setup())).collect::<Vec<_>>();
    let expected = "preStart preStart true, postStart postStart true, preStop preStop false, postStop postStop false, \
                    update update-12 true, sleep sleep false";
    assert_eq!(rows.join(", "), expected);
    for hook in Hook::ALL.into_iter().chain([Hook::Update(12), event]) {
        assert_eq!(hook.to_string().parse(), Ok(hook));
    }
    for text in ["", "On", "on", "update", "update-0", "update-01", "prestart"] {
        assert_eq!(text.parse::<Hook>().unwrap_err(), format!("{text:?} is not the name of a hook"));
    }
}

/// Outputs flow to the same hook and to later ones, but not out of an update or an event.
#[test]
fn units_read_outputs_of_earlier_hooks() {
    let (update, event) = (Hook::Update(1), Hook::Event(SLEEP()));
    for (reader, makers) in [
        (Hook::PreStart, vec![Hook::PreStart]),
        (Hook::PostStart, vec![Hook::PreStart, Hook::PostStart]),
        (update, vec![Hook::PreStart, Hook::PostStart, update]),
        (event, vec![Hook::PreStart, Hook::PostStart, event]),
        (Hook::PostStop, vec![Hook::PreStart, Hook::PostStart, Hook::PreStop, Hook::PostStop]),
    ] {
        let hooks = [Hook::PreStart, Hook::PostStart, update, event, Hook::PreStop, Hook::PostStop];
        let readable: Vec<Hook> = hooks.into_iter().filter(|&maker| reader.can_read(maker)).collect();
        assert_eq!(readable, makers, "{reader}");
    }
}

#[test]
fn events_run_one_after_the_other_while_the_target_is_ready() {
    use {EventDecision as D, TargetPhase as P};
    let decisions = PHASES.map(|phase| event(Some(&target(phase, None, None)), "own"));
    assert_eq!(decisions, [D::Accepted, D::Accepted, D::Accepted, D::Failed, D::Stale, D::Stale, D::Stale]);
    assert_eq!(event(Some(&target(P::Ready, None, None)), "other"), D::Stale);
    assert_eq!(PHASES.map(|phase| event(Some(&target(phase, None, Some("next"))), "next")), [D::Waiting; 7]);
    assert_eq!(event(None, "own"), D::Unknown);
    let hooks = HookSet::from(Hook::ALL);
    let sleeps = Some(PhaseChange::silent(P::Ready, Some(Hook::Event(SLEEP()))));
    for hook in [Hook::PostStart, Hook::Event(SLEEP()), Hook::Event(EventName::new("wake").unwrap())] {
        for outcome in [RunOutcome::Succeeded, RunOutcome::Failed] {
            let waits = Target { event: Some(SLEEP()), ..target(P::Ready, Some(hook), None) };
            let (next, idle) = match (hook, outcome) {
                (Hook::PostStart, RunOutcome::Failed) => {
                    let failed = Some(PhaseChange::reported(P::Failed, None));
                    (failed, failed)
                }
                _ => (sleeps, None),
            };
            assert_eq!(run_ended(&waits, hook, outcome, &hooks), next, "{hook:?} {outcome:?}");
            assert_eq!(run_ended(&Target { event: None, ..waits }, hook, outcome, &hooks), idle);
        }
        assert_eq!(
            delete(Some(&target(P::Ready, Some(hook), None)), ("own", RequestSender::Platform), &hooks),
            DeleteDecision::Cancel(PhaseChange::silent(P::Stopping, None))
        );
        assert_eq!(TeardownStage::cancelled_in(hook), TeardownStage::WasReady);
    }
    // An event that came while the target started runs after postStart.
    let starts = Target { event: Some(SLEEP()), ..target(P::Starting, Some(Hook::PreStart), None) };
    let started = |hooks: &HookSet| run_ended(&starts, Hook::PreStart, RunOutcome::Succeeded, hooks);
    assert_eq!(started(&hooks), Some(PhaseChange::reported(P::Ready, Some(Hook::PostStart))));
    let alone = HookSet::from([Hook::PreStart]);
    assert_eq!(started(&alone), Some(PhaseChange::reported(P::Ready, Some(Hook::Event(SLEEP())))));
    assert_eq!(next_event(&Target { phase: P::Stopping, ..starts.clone() }), None);
    // An update comes before it, and the write that ends the run makes the target due.
    let changes = Target { has_pending_update: true, ..starts };
    let started = run_ended(&changes, Hook::PreStart, RunOutcome::Succeeded, &alone);
    assert_eq!(started, Some(PhaseChange::reported(P::Ready, None)));
    let changes = Target { phase: P::Ready, hook: Some(Hook::PostStart), ..changes };
    assert_eq!(
        run_ended(&changes, Hook::PostStart, RunOutcome::Succeeded, &hooks),
        Some(PhaseChange::silent(P::Ready, None))
    );
    let begun = update(&Target { has_pending_update: false, ..changes }, None);
    assert_eq!(begun, Some(PhaseChange::reported(P::Ready, Some(Hook::Event(SLEEP())))));
}

#[test]
fn names_of_events_are_short_words() {
    for name in ["sleep", "a", "a1234567890"] {
        assert_eq!(EventName::new(name).unwrap().as_str(), name);
    }
    for name in ["", "1a", "Sleep", "a-b", "a12345678901", "on", "prestart", "update", "a\0"] {
        assert_eq!(EventName::new(name), None, "{name}");
    }
    let names = ["a", "aa", "b"].map(|name| Hook::Event(EventName::new(name).unwrap()));
    assert!(names.is_sorted() && Hook::PostStart < names[0] && names[2] < Hook::PreStop);
}

#[test]
fn a_living_target_is_updated_between_its_runs() {
    use TargetPhase as P;
    let runs = PHASES.map(|phase| update(&target(phase, None, None), Some(3)).is_some());
    assert_eq!(runs, [false, true, false, true, false, false, false]);
    let begun = update(&target(P::Failed, Some(Hook::Update(2)), None), Some(3));
    assert_eq!(begun, Some(PhaseChange::silent(P::Updating, Some(Hook::Update(3)))));
    let in_place = update(&target(P::Ready, Some(Hook::PreStart), None), None);
    assert_eq!(in_place, Some(PhaseChange::reported(P::Ready, None)));

    let texts = ["update-3", "update-0", "update-03", "update-", "update", "3"];
    assert_eq!(texts.map(Hook::update_number), [Some(3), None, None, None, None, None]);
    let updating = Target { event: Some(SLEEP()), ..target(P::Updating, Some(Hook::Update(3)), None) };
    let hooks = HookSet::from(Hook::ALL);
    let ended = |hook, outcome| run_ended(&updating, hook, outcome, &hooks);
    let ready = PhaseChange::reported(P::Ready, Some(Hook::Event(SLEEP())));
    assert_eq!(ended(Hook::Update(3), RunOutcome::Succeeded), Some(ready));
    assert_eq!(ended(Hook::Update(3), RunOutcome::Failed), Some(PhaseChange::reported(P::Failed, None)));
    assert_eq!(ended(Hook::Update(2), RunOutcome::Succeeded), None);
    assert_eq!(TeardownStage::cancelled_in(Hook::Update(3)), TeardownStage::WasReady);
    assert!(
        !Hook::Update(1).is_teardown() && Hook::PostStart < Hook::Update(1) && Hook::Update(9) < Hook::Event(SLEEP())
    );
}

/// Returns every set of hooks. Each hook is inserted twice.
fn choices() -> impl Iterator<Item = (HookSet, Vec<Hook>)> {
    (0..16).map(|bits| {
        let named = (0..4).filter(|n| bits >> n & 1 > 0).map(|n| Hook::ALL[n]);
        let named: Vec<Hook> = named.collect();
        (named.iter().chain(&named).copied().collect(), named)
    })
}

#[test]
fn an_instance_passes_through_the_hooks_with_units() {
    for (hooks, named) in choices() {
        let has = |hook| named.contains(&hook).then_some(hook);
        assert_eq!(Hook::ALL.map(|hook| hooks.contains(&hook).then_some(hook)), Hook::ALL.map(has));
        let ready = PhaseChange::reported(TargetPhase::Ready, has(Hook::PostStart));
        let first = match has(Hook::PreStart) {
            None => ready,
            first => PhaseChange::silent(TargetPhase::Starting, first),
        };
        assert_eq!(begin(&hooks), first);
        let stopping = |hook| PhaseChange::silent(TargetPhase::Stopping, Some(hook));
        let after = has(Hook::PostStop).map_or(PhaseChange::reported(TargetPhase::Gone, None), stopping);
        let drained = has(Hook::PreStop).map_or(after, stopping);
        let down = [TeardownStage::WasReady, TeardownStage::NeverReady, TeardownStage::Drained]
            .map(|stage| teardown(stage, &hooks));
        assert_eq!(down, [drained, after, after], "{named:?}");

        for (phase, at, of, outcome) in PHASES.into_iter().flat_map(|phase| {
            Hook::ALL.into_iter().flat_map(|at| Hook::ALL.map(|of| (at, of))).flat_map(move |(at, of)| {
                [RunOutcome::Succeeded, RunOutcome::Failed].map(|outcome| (phase, at, of, outcome))
            })
        }) {
            use {RunOutcome as O, TargetPhase as P};
            let expected = match (phase, of, outcome) {
                _ if at != of => None,
                (P::Starting, Hook::PreStart, O::Succeeded) => Some(ready),
                (P::Starting, Hook::PreStart, O::Failed) | (P::Ready, Hook::PostStart, O::Failed) => {
                    Some(PhaseChange::reported(P::Failed, None))
                }
                (P::Stopping, Hook::PreStop | Hook::PostStop, O::Failed) => Some(PhaseChange::reported(P::Stuck, None)),
                (P::Stopping | P::Stuck, Hook::PreStop, O::Succeeded) => Some(after),
                (P::Stopping | P::Stuck, Hook::PostStop, O::Succeeded) => Some(PhaseChange::reported(P::Gone, None)),
                _ => None,
            };
            let over = run_ended(&target(phase, Some(at), None), of, outcome, &hooks);
            assert_eq!(over, expected, "{phase:?} at {at:?}: {of:?} {outcome:?}, {named:?}");
        }
        assert_eq!(
            run_ended(&target(TargetPhase::Starting, None, None), Hook::PreStart, RunOutcome::Failed, &hooks),
            None
        );
    }
    let stages = [TeardownStage::NeverReady, TeardownStage::WasReady, TeardownStage::Drained, TeardownStage::Drained];
    assert_eq!(Hook::ALL.map(TeardownStage::cancelled_in), stages);
}

#[test]
fn a_name_has_one_instance_and_one_waiting_instance() {
    let hooks = HookSet::from(Hook::ALL);
    let create = |existing: Option<&Target>, uid: &str, generation: u64| {
        create(existing, (uid, RequestSender::Platform), generation, &hooks)
    };
    assert_eq!(create(None, "new", 1), CreateDecision::Begin(begin(&hooks)));
    for (phase, waiting) in PHASES.into_iter().flat_map(|phase| [None, Some("new"), Some("other")].map(|w| (phase, w)))
    {
        let existing = target(phase, None, waiting);
        let of_own = [1, 2, 3].map(|generation| create(Some(&existing), "own", generation));
        let of_new = create(Some(&existing), "new", 1);
        let expected = match STOPPING_OR_GONE.contains(&phase) {
            true => [CreateDecision::Stale; 3],
            false => [CreateDecision::Repeated, CreateDecision::Repeated, CreateDecision::Changed],
        };
        assert_eq!(of_own, expected, "{existing:?}");
        let expected = match waiting {
            Some("new") => CreateDecision::Repeated,
            Some(_) => CreateDecision::QueueFull,
            None if phase == TargetPhase::Gone => CreateDecision::Begin(begin(&hooks)),
            None => CreateDecision::Wait,
        };
        assert_eq!(of_new, expected, "{existing:?}");
        let is_changed = create(Some(&existing), "new", 2) == CreateDecision::Changed;
        assert_eq!(is_changed, waiting == Some("new"), "{existing:?}");
    }
}

#[test]
fn an_instance_belongs_to_its_sender() {
    use RequestSender::{Operator, Platform, Source};
    let hooks = HookSet::from(Hook::ALL);
    let senders = [(Platform, None), (Source("a"), Some("a")), (Source("b"), Some("b"))];
    for (phase, (sender, own), (_, other), (_, next)) in PHASES.into_iter().flat_map(|phase| {
        let pairs = senders.into_iter().flat_map(move |one| senders.map(|other| (one, other)));
        pairs.flat_map(move |(one, other)| senders.map(|next| (phase, one, other, next)))
    }) {
        let created_by = |source: Option<&str>| source.map(str::to_owned);
        let waiting = WaitingInstance { uid: "next".to_owned(), generation: 1, source: created_by(next) };
        let existing = Target { source: created_by(other), waiting: Some(waiting), ..target(phase, None, None) };
        let alone = Target { waiting: None, ..existing.clone() };
        for uid in ["own", "next", "new"] {
            let is_foreign = (uid == "own" && other != own && phase.is_alive())
                || (uid == "next" && next != own)
                || (own.is_some() && ((uid != "own" && next != own) || (other != own && phase.is_alive())));
            let created = create(Some(&existing), (uid, sender), 3, &hooks);
            assert_eq!(created == CreateDecision::Foreign, is_foreign, "{sender:?} {uid} {existing:?}");
            let is_stale = uid == "own" && !phase.is_alive();
            assert_eq!(created == CreateDecision::Stale, is_stale, "{sender:?} {uid} {existing:?}");
            let deleted = delete(Some(&existing), (uid, sender), &hooks);
            let is_foreign = (uid == "own" && other != own) || (uid == "next" && next != own);
            assert_eq!(deleted == DeleteDecision::Foreign, is_foreign, "{sender:?} {uid} {existing:?}");
            assert_ne!(delete(Some(&existing), (uid, Operator), &hooks), DeleteDecision::Foreign);
        }
        let is_foreign = own.is_some() && other != own && phase.is_alive();
        let created = create(Some(&alone), ("new", sender), 1, &hooks);
        assert_eq!(created == CreateDecision::Foreign, is_foreign, "{sender:?} {alone:?}");
    }
}

#[test]
fn a_deletion_starts_the_teardown_of_its_phase() {
    use TargetPhase as P;
    let hooks = HookSet::from(Hook::ALL);
    let cancel = DeleteDecision::Cancel(PhaseChange::silent(P::Stopping, None));
    let begin = |hook| DeleteDecision::Begin(PhaseChange::silent(P::Stopping, Some(hook)));
    let delete = |existing: Option<&Target>, uid: &str| delete(existing, (uid, RequestSender::Platform), &hooks);
    assert_eq!(delete(None, "own"), DeleteDecision::PutTombstone);
    let stages = Hook::ALL.into_iter().chain([Hook::Update(2)]).map(Some).chain([None]);
    for (phase, hook) in PHASES.into_iter().flat_map(|phase| stages.clone().map(move |hook| (phase, hook))) {
        let expected = match (phase, hook) {
            (phase, _) if STOPPING_OR_GONE.contains(&phase) => DeleteDecision::Repeated,
            (P::Starting | P::Updating, _) | (P::Ready, Some(Hook::PostStart)) => cancel,
            (P::Ready, _) | (P::Failed, Some(Hook::PostStart | Hook::Update(_))) => begin(Hook::PreStop),
            _ => begin(Hook::PostStop),
        };
        let existing = target(phase, hook, Some("next"));
        let deleted = ["own", "next", "other"].map(|uid| delete(Some(&existing), uid));
        assert_eq!(deleted, [expected, DeleteDecision::Unqueue, DeleteDecision::PutTombstone], "{existing:?}");
    }
}
