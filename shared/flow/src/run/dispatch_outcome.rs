//! The outcome of a dispatch, for each kind of executor.

use ebb_protocol::callback::ReasonCode;

use crate::run::attempt_end::{AttemptEnd, AttemptFailure};
use crate::run::wakeup::AttemptWakeup;

/// What became of a send.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchOutcome {
    /// How the try ended; `None`: its result will come later.
    pub end: Option<AttemptEnd>,
    /// For an undo: the number of further things that it has to remove.
    pub remaining: u32,
    /// When the run has to be looked at; `None`: this send is no reason for it.
    pub wakeup: Option<AttemptWakeup>,
    /// True if the receiver will call back, which the caller has to note.
    pub is_accepted: bool,
}

impl DispatchOutcome {
    pub(crate) fn ended(ended: AttemptEnd) -> Self {
        Self { end: Some(ended), remaining: 0, wakeup: None, is_accepted: false }
    }

    /// Its result comes later.
    pub(crate) fn later(wakeup: Option<AttemptWakeup>) -> Self {
        Self { end: None, remaining: 0, wakeup, is_accepted: false }
    }

    pub(crate) fn failed(code: ReasonCode, message: &str) -> Self {
        Self::ended(AttemptEnd::Failed(AttemptFailure::new(code, message)))
    }
}

/// On whose behalf a try is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchReason {
    /// A result that has just made it ready.
    Result,
    /// A look that knows its start.
    SweepRepeat,
    /// A look that knows of no start. The try may have been sent before.
    SweepStart,
}
