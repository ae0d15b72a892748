//! The outcome of a dispatch and its reason.

use ebb_protocol::{ReasonCode, Timestamp};
use ebb_store::AttemptUpdate;

use crate::error::FlowResult;
use crate::run::wakeup::{self, AttemptWakeup};
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure, slots};

#[derive(Clone, Debug, PartialEq)]
pub struct DispatchOutcome {
    /// The end of the attempt. `None` means that the result comes later.
    pub end: Option<AttemptEnd>,
    /// For an undo: the number of results that remain to be undone after this one.
    pub remaining: u32,
    /// The time at which the run needs a sweep because of this dispatch.
    pub wakeup: Option<AttemptWakeup>,
    /// True if the receiver will call back, and the caller has to record the acceptance.
    pub is_accepted: bool,
}

impl DispatchOutcome {
    pub(crate) fn ended(end: AttemptEnd) -> Self {
        Self { end: Some(end), remaining: 0, wakeup: None, is_accepted: false }
    }

    /// Returns the outcome of an attempt whose result comes later.
    pub(crate) fn later(wakeup: Option<AttemptWakeup>) -> Self {
        Self { end: None, remaining: 0, wakeup, is_accepted: false }
    }

    pub(crate) fn failed(code: ReasonCode, message: &str) -> Self {
        Self::ended(AttemptEnd::Failed(AttemptFailure::new(code, message)))
    }
}

impl AttemptContext<'_> {
    /// Leaves the attempt to `sweep`, which starts it at `at`. Its deadline counts from then on. `why` is for people.
    pub(super) async fn postpone(&self, at: Timestamp, why: Option<&str>) -> FlowResult<DispatchOutcome> {
        slots::release(*self).await?;
        self.update(AttemptUpdate::Postponed(at, why.map(str::to_owned))).await?;
        Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(at))))
    }

    /// Records that the request is sent again after so many seconds.
    pub(super) async fn repeat(&self, seconds: u64) -> FlowResult<DispatchOutcome> {
        Ok(DispatchOutcome::later(Some(AttemptWakeup::Recorded(wakeup::record_repeat(*self, seconds).await?))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchReason {
    /// A result has made the attempt ready.
    Result,
    /// A sweep repeats an attempt with a recorded start.
    SweepRepeat,
    /// A sweep dispatches an attempt that had no recorded start. It may have been dispatched before.
    SweepStart,
}
