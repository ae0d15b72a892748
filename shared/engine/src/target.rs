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
    /// They have succeeded.
    Ready,
    /// A unit before or after ready has failed. What exists stays until the target is deleted.
    Failed,
    /// It is being taken away.
    Stopping,
    /// Taking it away has given up; an operator has to act.
    Stuck,
    /// Nothing of it is left.
    Gone,
}

/// What the engine knows of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Identity of this life; a target of the same name with another uid is another life.
    pub uid: String,
    /// Rises with each change of the document.
    pub generation: u64,
    /// Where it stands.
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
    /// Its resources are there.
    Ready,
    /// A unit failed.
    Failed,
    /// Taking it away needs an operator.
    Stuck,
    /// Nothing is left.
    Gone,
}

impl Tell {
    /// All of them.
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
    /// The new phase.
    pub phase: TargetPhase,
    /// The event whose run starts in the same transaction.
    pub start: Option<Moment>,
    /// What the platform is to be told from now on.
    pub tell: Option<Tell>,
}

/// The answer to a lifecycle webhook that asks for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It begins now.
    Begin(Step),
    /// It was asked for before: same answer, nothing new.
    Same,
    /// Its life is over already.
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
    /// Teardown starts at once.
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
