//! The progress of a run: the attempts to dispatch next, or its outcome.

use ebb_engine::{Attempt, Epoch, HeadState, RunOutcome, Unit};
use ebb_store::TargetHead;

use crate::{InvocationCache, Run};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProgress {
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when no unit can run.
    pub end: Option<RunEnd>,
    /// Set when the result did not advance the run.
    pub late: Option<LateResult>,
}

impl RunProgress {
    pub(crate) fn late(late: LateResult) -> Self {
        Self { late: Some(late), ..Self::default() }
    }

    /// Adds the progress by another result of the same run.
    pub(crate) fn merge(&mut self, other: Self) {
        self.ready.extend(other.ready);
        self.end = self.end.take().or(other.end);
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunEnd {
    /// `None` if the run was cancelled.
    pub outcome: Option<RunOutcome>,
    /// The head that has the last result, as the write returned it. `None` if the run has to be read again.
    pub head: Option<Box<HeadState>>,
}

/// The reason why a result did not advance its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateResult {
    /// A success that is now recorded as late, or a failure of an attempt that the run does not wait for.
    Late,
    /// A distinct success above the limit of its attempt, or above that of its unit after an undo of the teardown may have
    /// begun. No undo takes it into account.
    Excess,
}

/// The next step of a run, for [`crate::advance::dispatch_all::drive`].
pub struct Continuation {
    pub run: Run,
    pub epoch: Epoch,
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when the run has ended.
    pub end: Option<RunEnd>,
    /// The target as this invocation has written it with the run. Its version shows whether it is still the present one.
    pub target: Option<Box<TargetHead>>,
    pub cache: InvocationCache,
}

impl Continuation {
    pub(crate) fn dispatching(run: Run, epoch: Epoch, ready: Vec<(Unit, Attempt)>) -> Self {
        Self::of(run, epoch, RunProgress { ready, ..RunProgress::default() }, InvocationCache::default())
    }

    /// Returns the continuation after a result of `run`.
    pub fn of(run: Run, epoch: Epoch, progress: RunProgress, cache: InvocationCache) -> Self {
        Self { run, epoch, ready: progress.ready, end: progress.end, target: None, cache }
    }
}
