//! Rules of the state protocol that the model can switch off, to show that it notices.
//!
//! Only with the feature `switches`, which no program has: without it every rule holds, and the compiler removes what
//! stands for its absence.

/// A rule whose absence the model has to notice. The numbers are those of the state protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolRule {
    /// Completion: the record is written before the head.
    RecordBeforeHead,
    /// Failure: a result that is in the record decides, whatever came later.
    RecordDecides,
    /// Cancellation: the epoch is bumped, so that nothing follows from results of the former one.
    CancelByEpoch,
    /// 1: an undo seals what it undoes before it reads.
    SealBeforeRead,
    /// 1: a late success reopens an undo that has begun to read.
    ReopenOnLateResult,
    /// 1: an undo starts only when everything that may have started is settled.
    CancelBeforeUndo,
    /// 2: queued work is removed before running work is killed, whose place it would get.
    DequeueBeforeKill,
    /// 2: teardown waits until what was sent before the cancellation has landed or never will.
    WaitForInFlight,
    /// 2: an answer of a gateway says nothing of the server behind it, which may still act.
    GatewayIsNoAnswer,
    /// 4: every attempt's success is undone.
    UndoEveryAttempt,
    /// 5: of several results of one attempt each is undone.
    EveryResultCounts,
    /// 5: a 202 is recorded, and the request not sent again.
    RecordAccepted,
    /// 5: a repetition of a result posts no webhook that its first taker may be posting.
    RepetitionsWait,
    /// 5: of several sweeps one posts a webhook again.
    LeaseBeforeRepeat,
    /// 5: one delivery of a message posts the webhooks that it passes on.
    ClaimDelivery,
    /// 5: a request that is not idempotent is posted once.
    PostOnce,
    /// 6: whoever puts a wake-up off must have seen what asked for it.
    VersionGuardsReschedule,
    /// 6: a sweep puts the wake-up off only after it has acted.
    RescheduleAfterActing,
    /// 6: a look that fails, or that others keep changing the run under, makes the run due again later.
    FailedSweepIsDue,
    /// 7: a deadline runs from the start of the try.
    DeadlineFromStart,
    /// 8: a join over several items looks at all of them.
    ReadAllItems,
    /// 8: a cancellation stops every item.
    StopEveryItem,
    /// 9: target and run begin in one transaction.
    OneTransaction,
    /// 10: what starts a run again does not bump its epoch.
    RedriveKeepsEpoch,
    /// 12: every send is joined before the invocation returns.
    JoinEverySend,
    /// 12: units beyond those that one invocation sends are passed on.
    EnqueueTheRest,
    /// 13: a send that failed makes the run due before anything is acknowledged.
    FailedSendIsDue,
    /// 14: the wake-up of a retry is in the table; the message is only a hint.
    RetryIsDue,
    /// 15: the success of an expired token is recorded.
    KeepExpiredSuccess,
    /// 17: what started and left no record is undone.
    UndoTheUnknown,
    /// 17: the stable key of a unit is the same for all its attempts.
    StableKey,
}

impl ProtocolRule {
    pub const ALL: [Self; 31] = [
        Self::RecordBeforeHead,
        Self::RecordDecides,
        Self::CancelByEpoch,
        Self::SealBeforeRead,
        Self::ReopenOnLateResult,
        Self::CancelBeforeUndo,
        Self::DequeueBeforeKill,
        Self::WaitForInFlight,
        Self::GatewayIsNoAnswer,
        Self::UndoEveryAttempt,
        Self::EveryResultCounts,
        Self::RecordAccepted,
        Self::RepetitionsWait,
        Self::LeaseBeforeRepeat,
        Self::ClaimDelivery,
        Self::PostOnce,
        Self::VersionGuardsReschedule,
        Self::RescheduleAfterActing,
        Self::FailedSweepIsDue,
        Self::DeadlineFromStart,
        Self::ReadAllItems,
        Self::StopEveryItem,
        Self::OneTransaction,
        Self::RedriveKeepsEpoch,
        Self::JoinEverySend,
        Self::EnqueueTheRest,
        Self::FailedSendIsDue,
        Self::RetryIsDue,
        Self::KeepExpiredSuccess,
        Self::UndoTheUnknown,
        Self::StableKey,
    ];
}

#[cfg(feature = "switches")]
thread_local! {
    static OFF: std::cell::Cell<Option<ProtocolRule>> = const { std::cell::Cell::new(None) };
}

/// Switches one rule off on this thread, and all others on.
#[cfg(feature = "switches")]
pub fn switch_off(rule: Option<ProtocolRule>) {
    OFF.set(rule);
}

/// Returns true if a rule holds.
#[cfg(feature = "switches")]
pub(crate) fn holds(rule: ProtocolRule) -> bool {
    OFF.get() != Some(rule)
}

/// Returns true if a rule holds.
#[cfg(not(feature = "switches"))]
pub(crate) const fn holds(_: ProtocolRule) -> bool {
    true
}
