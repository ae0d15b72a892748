//! The progress of a run: the attempts to dispatch next, or its outcome.

use ebb_engine::{Attempt, Epoch, RunOutcome, Unit};

use crate::run::head::Run;
use crate::run::inputs::InvocationCache;

/// What follows from a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProgress {
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when nothing can move any more.
    pub outcome: Option<RunOutcome>,
    /// Set when the result did not count as progress.
    pub late: Option<LateResult>,
}

impl RunProgress {
    pub(super) fn late(late: LateResult) -> Self {
        Self { late: Some(late), ..Self::default() }
    }
}

/// Why a result did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateResult {
    /// A success that is in the ledger now.
    Recorded,
    /// A failure of a try that nobody waits for.
    Ignored,
    /// One distinct success more than are kept of an attempt. It is counted, and no undo takes it into account.
    Excess,
}

/// Something to go on with.
pub struct Continuation {
    pub run: Run,
    pub epoch: Epoch,
    pub ready: Vec<(Unit, Attempt)>,
    /// Set when the run is over.
    pub outcome: Option<RunOutcome>,
    pub cache: InvocationCache,
}

impl Continuation {
    /// What follows from a result of `run`.
    pub fn of(run: Run, epoch: Epoch, progress: RunProgress, cache: InvocationCache) -> Self {
        Self { run, epoch, ready: progress.ready, outcome: progress.outcome, cache }
    }
}
