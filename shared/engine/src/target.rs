//! The lifecycle of a target: the order of its hooks, and the notifications to the platform.

use crate::follow::RunOutcome;

/// A hook: a point in the lifecycle of a target at which units run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Before the target is ready; the target waits for it.
    PreStart,
    /// After it is ready; nothing waits.
    PostStart,
    /// Before it stops, while it is alive; the stop waits for it.
    PreStop,
    /// After it stopped; the removal waits for it.
    PostStop,
}

impl Hook {
    /// All, in the order of a life.
    pub const ALL: [Self; 4] = [Self::PreStart, Self::PostStart, Self::PreStop, Self::PostStop];
}

/// Where a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetPhase {
    /// Its `BeforeReady` units run.
    Starting,
    Ready,
    /// A unit before or after ready has failed. What exists stays until the target is deleted.
    Failed,
    Stopping,
    /// Taking it away has given up; an operator has to act.
    Stuck,
    Gone,
}

/// What the engine knows of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Identity of this life; a target of the same name with another uid is another life.
    pub uid: String,
    /// Rises with each change of the document.
    pub generation: u64,
    pub phase: TargetPhase,
    /// The hook whose run is or was the last one.
    pub hook: Option<Hook>,
    /// The uid that waits for the name.
    pub waiting: Option<String>,
}

/// Which hooks have units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookSet {
    bits: u8,
}

impl FromIterator<Hook> for HookSet {
    fn from_iter<T: IntoIterator<Item = Hook>>(hooks: T) -> Self {
        Self { bits: hooks.into_iter().fold(0, |bits, hook| bits | 1 << hook as u8) }
    }
}

impl HookSet {
    /// Returns true if `hook` has units.
    pub fn has(self, hook: Hook) -> bool {
        self.bits & (1 << hook as u8) != 0
    }
}

/// A notification to the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notification {
    Ready,
    Failed,
    /// Taking it away needs an operator.
    Stuck,
    Gone,
}

impl Notification {
    pub const ALL: [Self; 4] = [Self::Ready, Self::Failed, Self::Stuck, Self::Gone];

    /// Its name: `ready`, `failed`, `stuck`, `gone`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Stuck => "stuck",
            Self::Gone => "gone",
        }
    }
}

/// A transition of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseChange {
    pub phase: TargetPhase,
    /// The hook whose run starts in the same transaction.
    pub start: Option<Hook>,
    /// The notification that is to be delivered from now on.
    pub notification: Option<Notification>,
}

/// The answer to a lifecycle webhook that asks for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateDecision {
    Begin(PhaseChange),
    /// It was asked for before: same answer, nothing new.
    Repeated,
    Stale,
    /// Another life has the name: it waits until that one is gone.
    Wait,
    /// Another life already waits for the name.
    QueueFull,
    /// The same life with a higher generation.
    Changed,
}

/// What asking for `uid` at `generation` means.
pub fn create(existing: Option<&Target>, uid: &str, generation: u64, hooks: HookSet) -> CreateDecision {
    match existing {
        None => CreateDecision::Begin(begin(hooks)),
        Some(target) if target.uid == uid => match target.phase {
            TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => CreateDecision::Stale,
            _ if generation > target.generation => CreateDecision::Changed,
            _ => CreateDecision::Repeated,
        },
        Some(target) if target.phase == TargetPhase::Gone && target.waiting.is_none() => {
            CreateDecision::Begin(begin(hooks))
        }
        Some(target) => match &target.waiting {
            Some(waiting) if waiting == uid => CreateDecision::Repeated,
            Some(_) => CreateDecision::QueueFull,
            None => CreateDecision::Wait,
        },
    }
}

/// The first step of a life.
pub fn begin(hooks: HookSet) -> PhaseChange {
    if hooks.has(Hook::PreStart) {
        PhaseChange { phase: TargetPhase::Starting, start: Some(Hook::PreStart), notification: None }
    } else {
        ready(hooks)
    }
}

/// The answer to a lifecycle webhook that ends a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteDecision {
    /// Nothing is known of this life: its uid is remembered, so that a late creation is refused.
    PutTombstone,
    /// It waits for its name and never began: it is dropped and remembered.
    Unqueue,
    /// It was ended before: same answer.
    Repeated,
    /// Something may be running: the current run is cancelled and settled, then teardown starts.
    Cancel(PhaseChange),
    Begin(PhaseChange),
}

/// What deleting `uid` means.
pub fn delete(existing: Option<&Target>, uid: &str, hooks: HookSet) -> DeleteDecision {
    let Some(target) = existing else { return DeleteDecision::PutTombstone };
    if target.uid != uid {
        let waits = target.waiting.as_deref() == Some(uid);
        return if waits { DeleteDecision::Unqueue } else { DeleteDecision::PutTombstone };
    }
    let stopping = PhaseChange { phase: TargetPhase::Stopping, start: None, notification: None };
    match (target.phase, target.hook) {
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, _) => DeleteDecision::Repeated,
        (TargetPhase::Starting, _) | (TargetPhase::Ready, Some(Hook::PostStart)) => DeleteDecision::Cancel(stopping),
        (TargetPhase::Ready, _) | (TargetPhase::Failed, Some(Hook::PostStart)) => {
            DeleteDecision::Begin(teardown(TeardownStage::WasReady, hooks))
        }
        (TargetPhase::Failed, _) => DeleteDecision::Begin(teardown(TeardownStage::NeverReady, hooks)),
    }
}

/// How far a life had come when it is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeardownStage {
    /// It has been ready: what is to happen while it is alive happens first.
    WasReady,
    /// It never was ready: there is nothing to drain or to dump.
    NeverReady,
    /// Its `BeforeStop` units are over.
    Drained,
}

impl TeardownStage {
    /// How far a life had come whose run of `hook` was cancelled.
    pub fn cancelled_in(hook: Hook) -> Self {
        match hook {
            Hook::PreStart => Self::NeverReady,
            Hook::PostStart => Self::WasReady,
            Hook::PreStop | Hook::PostStop => Self::Drained,
        }
    }
}

/// The step into teardown, once nothing of the target's setup can be running.
pub fn teardown(life: TeardownStage, hooks: HookSet) -> PhaseChange {
    let stopping = |hook| PhaseChange { phase: TargetPhase::Stopping, start: Some(hook), notification: None };
    match life {
        TeardownStage::WasReady if hooks.has(Hook::PreStop) => stopping(Hook::PreStop),
        _ if hooks.has(Hook::PostStop) => stopping(Hook::PostStop),
        _ => GONE,
    }
}

const GONE: PhaseChange = PhaseChange { phase: TargetPhase::Gone, start: None, notification: Some(Notification::Gone) };

/// What follows for the target when the run of `hook` is over, or `None` when the target has moved on from it.
pub fn run_ended(target: &Target, hook: Hook, outcome: RunOutcome, hooks: HookSet) -> Option<PhaseChange> {
    if target.hook != Some(hook) {
        return None;
    }
    let step = |phase, start, notification| Some(PhaseChange { phase, start, notification });
    match (target.phase, hook, outcome) {
        (TargetPhase::Starting, Hook::PreStart, RunOutcome::Succeeded) => Some(ready(hooks)),
        (TargetPhase::Starting, Hook::PreStart, RunOutcome::Failed)
        | (TargetPhase::Ready, Hook::PostStart, RunOutcome::Failed) => {
            step(TargetPhase::Failed, None, Some(Notification::Failed))
        }
        (TargetPhase::Stopping | TargetPhase::Stuck, Hook::PreStop, RunOutcome::Succeeded) => {
            Some(teardown(TeardownStage::Drained, hooks))
        }
        (TargetPhase::Stopping | TargetPhase::Stuck, Hook::PostStop, RunOutcome::Succeeded) => Some(GONE),
        (TargetPhase::Stopping, Hook::PreStop | Hook::PostStop, RunOutcome::Failed) => {
            step(TargetPhase::Stuck, None, Some(Notification::Stuck))
        }
        _ => None,
    }
}

fn ready(hooks: HookSet) -> PhaseChange {
    let start = hooks.has(Hook::PostStart).then_some(Hook::PostStart);
    PhaseChange { phase: TargetPhase::Ready, start, notification: Some(Notification::Ready) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [TargetPhase; 6] = [
        TargetPhase::Starting,
        TargetPhase::Ready,
        TargetPhase::Failed,
        TargetPhase::Stopping,
        TargetPhase::Stuck,
        TargetPhase::Gone,
    ];
    const UNDER_WAY_OR_OVER: [TargetPhase; 3] = [TargetPhase::Stopping, TargetPhase::Stuck, TargetPhase::Gone];

    fn target(phase: TargetPhase, hook: Option<Hook>, waiting: Option<&str>) -> Target {
        Target { uid: "own".into(), generation: 2, phase, hook, waiting: waiting.map(str::to_owned) }
    }

    /// Every choice of hooks, each named twice.
    fn choices() -> impl Iterator<Item = (HookSet, Vec<Hook>)> {
        (0..16).map(|bits| {
            let named = (0..4).filter(|n| bits >> n & 1 > 0).map(|n| Hook::ALL[n]);
            let named: Vec<Hook> = named.collect();
            (named.iter().chain(&named).copied().collect(), named)
        })
    }

    fn step(phase: TargetPhase, start: Option<Hook>, notification: Option<Notification>) -> PhaseChange {
        PhaseChange { phase, start, notification }
    }

    #[test]
    fn a_life_goes_through_the_moments_that_have_units() {
        for (hooks, named) in choices() {
            let has = |hook| named.contains(&hook).then_some(hook);
            assert_eq!(Hook::ALL.map(|hook| hooks.has(hook).then_some(hook)), Hook::ALL.map(has));
            let ready = step(TargetPhase::Ready, has(Hook::PostStart), Some(Notification::Ready));
            let first = match has(Hook::PreStart) {
                None => ready,
                first => step(TargetPhase::Starting, first, None),
            };
            assert_eq!(begin(hooks), first);
            let stopping = |hook| step(TargetPhase::Stopping, Some(hook), None);
            let after = has(Hook::PostStop).map_or(step(TargetPhase::Gone, None, Some(Notification::Gone)), stopping);
            let drained = has(Hook::PreStop).map_or(after, stopping);
            let down = [TeardownStage::WasReady, TeardownStage::NeverReady, TeardownStage::Drained]
                .map(|life| teardown(life, hooks));
            assert_eq!(down, [drained, after, after], "{named:?}");

            for (phase, at, of, outcome) in PHASES.into_iter().flat_map(|phase| {
                let pairs = Hook::ALL.into_iter().flat_map(|at| Hook::ALL.map(|of| (at, of)));
                pairs.flat_map(move |(at, of)| {
                    [RunOutcome::Succeeded, RunOutcome::Failed].map(|outcome| (phase, at, of, outcome))
                })
            }) {
                use {Hook as M, RunOutcome as O, TargetPhase as P};
                let expected = match (phase, of, outcome) {
                    _ if at != of => None,
                    (P::Starting, M::PreStart, O::Succeeded) => Some(ready),
                    (P::Starting, M::PreStart, O::Failed) | (P::Ready, M::PostStart, O::Failed) => {
                        Some(step(P::Failed, None, Some(Notification::Failed)))
                    }
                    (P::Stopping, M::PreStop | M::PostStop, O::Failed) => {
                        Some(step(P::Stuck, None, Some(Notification::Stuck)))
                    }
                    (P::Stopping | P::Stuck, M::PreStop, O::Succeeded) => Some(after),
                    (P::Stopping | P::Stuck, M::PostStop, O::Succeeded) => {
                        Some(step(P::Gone, None, Some(Notification::Gone)))
                    }
                    _ => None,
                };
                let over = run_ended(&target(phase, Some(at), None), of, outcome, hooks);
                assert_eq!(over, expected, "{phase:?} at {at:?}: {of:?} {outcome:?}, {named:?}");
            }
            assert_eq!(
                run_ended(&target(TargetPhase::Starting, None, None), Hook::PreStart, RunOutcome::Failed, hooks),
                None
            );
        }
        assert_eq!(Notification::ALL.map(Notification::name), ["ready", "failed", "stuck", "gone"]);
        let lives =
            [TeardownStage::NeverReady, TeardownStage::WasReady, TeardownStage::Drained, TeardownStage::Drained];
        assert_eq!(Hook::ALL.map(TeardownStage::cancelled_in), lives);
    }

    #[test]
    fn a_name_belongs_to_one_life_and_one_may_wait_for_it() {
        let hooks: HookSet = Hook::ALL.into_iter().collect();
        assert_eq!(create(None, "new", 1, hooks), CreateDecision::Begin(begin(hooks)));
        for (phase, waiting) in
            PHASES.into_iter().flat_map(|phase| [None, Some("new"), Some("other")].map(|w| (phase, w)))
        {
            let existing = target(phase, None, waiting);
            let of_own = [1, 2, 3].map(|generation| create(Some(&existing), "own", generation, hooks));
            let of_new = create(Some(&existing), "new", 1, hooks);
            let expected = match UNDER_WAY_OR_OVER.contains(&phase) {
                true => [CreateDecision::Stale; 3],
                false => [CreateDecision::Repeated, CreateDecision::Repeated, CreateDecision::Changed],
            };
            assert_eq!(of_own, expected, "{existing:?}");
            let expected = match waiting {
                Some("new") => CreateDecision::Repeated,
                Some(_) => CreateDecision::QueueFull,
                None if phase == TargetPhase::Gone => CreateDecision::Begin(begin(hooks)),
                None => CreateDecision::Wait,
            };
            assert_eq!(of_new, expected, "{existing:?}");
        }
    }

    #[test]
    fn a_deletion_takes_away_what_there_can_be() {
        use {Hook as M, TargetPhase as P};
        let hooks: HookSet = Hook::ALL.into_iter().collect();
        let cancel = DeleteDecision::Cancel(step(P::Stopping, None, None));
        let begin = |hook| DeleteDecision::Begin(step(P::Stopping, Some(hook), None));
        assert_eq!(delete(None, "own", hooks), DeleteDecision::PutTombstone);
        for (phase, hook) in PHASES
            .into_iter()
            .flat_map(|phase| Hook::ALL.into_iter().map(Some).chain([None]).map(move |hook| (phase, hook)))
        {
            let expected = match (phase, hook) {
                (phase, _) if UNDER_WAY_OR_OVER.contains(&phase) => DeleteDecision::Repeated,
                (P::Starting, _) | (P::Ready, Some(M::PostStart)) => cancel,
                (P::Ready, _) | (P::Failed, Some(M::PostStart)) => begin(M::PreStop),
                _ => begin(M::PostStop),
            };
            let existing = target(phase, hook, Some("next"));
            let deleted = ["own", "next", "other"].map(|uid| delete(Some(&existing), uid, hooks));
            assert_eq!(deleted, [expected, DeleteDecision::Unqueue, DeleteDecision::PutTombstone], "{existing:?}");
        }
    }
}
