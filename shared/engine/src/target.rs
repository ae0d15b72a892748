//! The life of a target: which event comes when, and what the platform is told.

use crate::follow::Outcome;

/// When in a life an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// Before the target is ready; the target waits for it.
    BeforeReady,
    /// After it is ready; nothing waits.
    AfterReady,
    /// Before it stops, while it is alive; the stop waits for it.
    BeforeStop,
    /// After it stopped; the removal waits for it.
    AfterStop,
}

impl Moment {
    /// All, in the order of a life.
    pub const ALL: [Self; 4] = [Self::BeforeReady, Self::AfterReady, Self::BeforeStop, Self::AfterStop];
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
    /// The event whose run is or was the last one.
    pub moment: Option<Moment>,
    /// The uid that waits for the name.
    pub waiting: Option<String>,
}

/// Which moments have units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    bits: u8,
}

impl FromIterator<Moment> for Moments {
    fn from_iter<T: IntoIterator<Item = Moment>>(moments: T) -> Self {
        Self { bits: moments.into_iter().fold(0, |bits, moment| bits | 1 << moment as u8) }
    }
}

impl Moments {
    /// Whether `moment` has units.
    pub fn has(self, moment: Moment) -> bool {
        self.bits & (1 << moment as u8) != 0
    }
}

/// What the platform is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tell {
    Ready,
    Failed,
    /// Taking it away needs an operator.
    Stuck,
    Gone,
}

impl Tell {
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
pub struct Step {
    pub phase: TargetPhase,
    /// The event whose run starts in the same transaction.
    pub start: Option<Moment>,
    /// What the platform is to be told from now on.
    pub tell: Option<Tell>,
}

/// The answer to a lifecycle webhook that asks for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    Begin(Step),
    /// It was asked for before: same answer, nothing new.
    Same,
    Stale,
    /// Another life has the name: it waits until that one is gone.
    Wait,
    /// Another life already waits for the name.
    Crowded,
    /// The same life with a higher generation.
    Changed,
}

/// What asking for `uid` at `generation` means.
pub fn create(existing: Option<&Target>, uid: &str, generation: u64, moments: Moments) -> Creation {
    match existing {
        None => Creation::Begin(begin(moments)),
        Some(target) if target.uid == uid => match target.phase {
            TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => Creation::Stale,
            _ if generation > target.generation => Creation::Changed,
            _ => Creation::Same,
        },
        Some(target) if target.phase == TargetPhase::Gone && target.waiting.is_none() => {
            Creation::Begin(begin(moments))
        }
        Some(target) => match &target.waiting {
            Some(waiting) if waiting == uid => Creation::Same,
            Some(_) => Creation::Crowded,
            None => Creation::Wait,
        },
    }
}

/// The first step of a life.
pub fn begin(moments: Moments) -> Step {
    if moments.has(Moment::BeforeReady) {
        Step { phase: TargetPhase::Starting, start: Some(Moment::BeforeReady), tell: None }
    } else {
        ready(moments)
    }
}

/// The answer to a lifecycle webhook that ends a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Nothing is known of this life: its uid is remembered, so that a late creation is refused.
    Remember,
    /// It waits for its name and never began: it is dropped and remembered.
    Unqueue,
    /// It was ended before: same answer.
    Same,
    /// Something may be running: the current run is cancelled and settled, then teardown starts.
    Cancel(Step),
    Begin(Step),
}

/// What deleting `uid` means.
pub fn delete(existing: Option<&Target>, uid: &str, moments: Moments) -> Deletion {
    let Some(target) = existing else { return Deletion::Remember };
    if target.uid != uid {
        let waits = target.waiting.as_deref() == Some(uid);
        return if waits { Deletion::Unqueue } else { Deletion::Remember };
    }
    let stopping = Step { phase: TargetPhase::Stopping, start: None, tell: None };
    match (target.phase, target.moment) {
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, _) => Deletion::Same,
        (TargetPhase::Starting, _) | (TargetPhase::Ready, Some(Moment::AfterReady)) => {
            Deletion::Cancel(stopping)
        }
        (TargetPhase::Ready, _) | (TargetPhase::Failed, Some(Moment::AfterReady)) => {
            Deletion::Begin(teardown(Life::WasReady, moments))
        }
        (TargetPhase::Failed, _) => Deletion::Begin(teardown(Life::NeverReady, moments)),
    }
}

/// How far a life had come when it is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has been ready: what is to happen while it is alive happens first.
    WasReady,
    /// It never was ready: there is nothing to drain or to dump.
    NeverReady,
    /// Its `BeforeStop` units are over.
    Drained,
}

impl Life {
    /// How far a life had come whose run of `moment` was cancelled.
    pub fn cancelled_in(moment: Moment) -> Self {
        match moment {
            Moment::BeforeReady => Self::NeverReady,
            Moment::AfterReady => Self::WasReady,
            Moment::BeforeStop | Moment::AfterStop => Self::Drained,
        }
    }
}

/// The step into teardown, once nothing of the target's setup can be running.
pub fn teardown(life: Life, moments: Moments) -> Step {
    let stopping = |moment| Step { phase: TargetPhase::Stopping, start: Some(moment), tell: None };
    match life {
        Life::WasReady if moments.has(Moment::BeforeStop) => stopping(Moment::BeforeStop),
        _ if moments.has(Moment::AfterStop) => stopping(Moment::AfterStop),
        _ => GONE,
    }
}

const GONE: Step = Step { phase: TargetPhase::Gone, start: None, tell: Some(Tell::Gone) };

/// What follows for the target when the run of `moment` is over, or `None` when the target has moved on from it.
pub fn run_over(target: &Target, moment: Moment, outcome: Outcome, moments: Moments) -> Option<Step> {
    if target.moment != Some(moment) {
        return None;
    }
    let step = |phase, start, tell| Some(Step { phase, start, tell });
    match (target.phase, moment, outcome) {
        (TargetPhase::Starting, Moment::BeforeReady, Outcome::Succeeded) => Some(ready(moments)),
        (TargetPhase::Starting, Moment::BeforeReady, Outcome::Failed)
        | (TargetPhase::Ready, Moment::AfterReady, Outcome::Failed) => {
            step(TargetPhase::Failed, None, Some(Tell::Failed))
        }
        (TargetPhase::Stopping | TargetPhase::Stuck, Moment::BeforeStop, Outcome::Succeeded) => {
            Some(teardown(Life::Drained, moments))
        }
        (TargetPhase::Stopping | TargetPhase::Stuck, Moment::AfterStop, Outcome::Succeeded) => Some(GONE),
        (TargetPhase::Stopping, Moment::BeforeStop | Moment::AfterStop, Outcome::Failed) => {
            step(TargetPhase::Stuck, None, Some(Tell::Stuck))
        }
        _ => None,
    }
}

fn ready(moments: Moments) -> Step {
    let start = moments.has(Moment::AfterReady).then_some(Moment::AfterReady);
    Step { phase: TargetPhase::Ready, start, tell: Some(Tell::Ready) }
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
    const UNDER_WAY_OR_OVER: [TargetPhase; 3] =
        [TargetPhase::Stopping, TargetPhase::Stuck, TargetPhase::Gone];

    fn target(phase: TargetPhase, moment: Option<Moment>, waiting: Option<&str>) -> Target {
        Target { uid: "own".into(), generation: 2, phase, moment, waiting: waiting.map(str::to_owned) }
    }

    /// Every choice of moments, each named twice.
    fn choices() -> impl Iterator<Item = (Moments, Vec<Moment>)> {
        (0..16).map(|bits| {
            let named = (0..4).filter(|n| bits >> n & 1 > 0).map(|n| Moment::ALL[n]);
            let named: Vec<Moment> = named.collect();
            (named.iter().chain(&named).copied().collect(), named)
        })
    }

    fn step(phase: TargetPhase, start: Option<Moment>, tell: Option<Tell>) -> Step {
        Step { phase, start, tell }
    }

    #[test]
    fn a_life_goes_through_the_moments_that_have_units() {
        for (moments, named) in choices() {
            let has = |moment| named.contains(&moment).then_some(moment);
            assert_eq!(Moment::ALL.map(|moment| moments.has(moment).then_some(moment)), Moment::ALL.map(has));
            let ready = step(TargetPhase::Ready, has(Moment::AfterReady), Some(Tell::Ready));
            let first = match has(Moment::BeforeReady) {
                None => ready,
                first => step(TargetPhase::Starting, first, None),
            };
            assert_eq!(begin(moments), first);
            let stopping = |moment| step(TargetPhase::Stopping, Some(moment), None);
            let after =
                has(Moment::AfterStop).map_or(step(TargetPhase::Gone, None, Some(Tell::Gone)), stopping);
            let drained = has(Moment::BeforeStop).map_or(after, stopping);
            let down = [Life::WasReady, Life::NeverReady, Life::Drained].map(|life| teardown(life, moments));
            assert_eq!(down, [drained, after, after], "{named:?}");

            for (phase, at, of, outcome) in PHASES.into_iter().flat_map(|phase| {
                let pairs = Moment::ALL.into_iter().flat_map(|at| Moment::ALL.map(|of| (at, of)));
                pairs.flat_map(move |(at, of)| {
                    [Outcome::Succeeded, Outcome::Failed].map(|outcome| (phase, at, of, outcome))
                })
            }) {
                use {Moment as M, Outcome as O, TargetPhase as P};
                let expected = match (phase, of, outcome) {
                    _ if at != of => None,
                    (P::Starting, M::BeforeReady, O::Succeeded) => Some(ready),
                    (P::Starting, M::BeforeReady, O::Failed) | (P::Ready, M::AfterReady, O::Failed) => {
                        Some(step(P::Failed, None, Some(Tell::Failed)))
                    }
                    (P::Stopping, M::BeforeStop | M::AfterStop, O::Failed) => {
                        Some(step(P::Stuck, None, Some(Tell::Stuck)))
                    }
                    (P::Stopping | P::Stuck, M::BeforeStop, O::Succeeded) => Some(after),
                    (P::Stopping | P::Stuck, M::AfterStop, O::Succeeded) => {
                        Some(step(P::Gone, None, Some(Tell::Gone)))
                    }
                    _ => None,
                };
                let over = run_over(&target(phase, Some(at), None), of, outcome, moments);
                assert_eq!(over, expected, "{phase:?} at {at:?}: {of:?} {outcome:?}, {named:?}");
            }
            assert_eq!(
                run_over(
                    &target(TargetPhase::Starting, None, None),
                    Moment::BeforeReady,
                    Outcome::Failed,
                    moments
                ),
                None
            );
        }
        assert_eq!(Tell::ALL.map(Tell::name), ["ready", "failed", "stuck", "gone"]);
        let lives = [Life::NeverReady, Life::WasReady, Life::Drained, Life::Drained];
        assert_eq!(Moment::ALL.map(Life::cancelled_in), lives);
    }

    #[test]
    fn a_name_belongs_to_one_life_and_one_may_wait_for_it() {
        let moments: Moments = Moment::ALL.into_iter().collect();
        assert_eq!(create(None, "new", 1, moments), Creation::Begin(begin(moments)));
        for (phase, waiting) in
            PHASES.into_iter().flat_map(|phase| [None, Some("new"), Some("other")].map(|w| (phase, w)))
        {
            let existing = target(phase, None, waiting);
            let of_own = [1, 2, 3].map(|generation| create(Some(&existing), "own", generation, moments));
            let of_new = create(Some(&existing), "new", 1, moments);
            let expected = match UNDER_WAY_OR_OVER.contains(&phase) {
                true => [Creation::Stale; 3],
                false => [Creation::Same, Creation::Same, Creation::Changed],
            };
            assert_eq!(of_own, expected, "{existing:?}");
            let expected = match waiting {
                Some("new") => Creation::Same,
                Some(_) => Creation::Crowded,
                None if phase == TargetPhase::Gone => Creation::Begin(begin(moments)),
                None => Creation::Wait,
            };
            assert_eq!(of_new, expected, "{existing:?}");
        }
    }

    #[test]
    fn a_deletion_takes_away_what_there_can_be() {
        use {Moment as M, TargetPhase as P};
        let moments: Moments = Moment::ALL.into_iter().collect();
        let cancel = Deletion::Cancel(step(P::Stopping, None, None));
        let begin = |moment| Deletion::Begin(step(P::Stopping, Some(moment), None));
        assert_eq!(delete(None, "own", moments), Deletion::Remember);
        for (phase, moment) in PHASES.into_iter().flat_map(|phase| {
            Moment::ALL.into_iter().map(Some).chain([None]).map(move |moment| (phase, moment))
        }) {
            let expected = match (phase, moment) {
                (phase, _) if UNDER_WAY_OR_OVER.contains(&phase) => Deletion::Same,
                (P::Starting, _) | (P::Ready, Some(M::AfterReady)) => cancel,
                (P::Ready, _) | (P::Failed, Some(M::AfterReady)) => begin(M::BeforeStop),
                _ => begin(M::AfterStop),
            };
            let existing = target(phase, moment, Some("next"));
            let deleted = ["own", "next", "other"].map(|uid| delete(Some(&existing), uid, moments));
            assert_eq!(deleted, [expected, Deletion::Unqueue, Deletion::Remember], "{existing:?}");
        }
    }
}
