//! The changes of a target that notifications report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::target::TargetPhase;

/// A change of a target that a notification reports: a new phase, or the end of a run that leaves the phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TargetChange {
    // The phases, in their order.
    #[default]
    Starting,
    Ready,
    Updating,
    Failed,
    Stopping,
    Stuck,
    Gone,
    // The run of an event such as `sleep` has ended.
    EventSucceeded,
    EventFailed,
    // The units of `preStop` have succeeded, and those of `postStop` have not begun.
    PreStopEnded,
}

impl TargetChange {
    /// Returns the name of the change in documents and in the type of its notification.
    pub fn name(self) -> &'static str {
        let ends = ["event-succeeded", "event-failed", "pre-stop-ended"];
        let mut names = TargetPhase::ALL.into_iter().map(TargetPhase::name).chain(ends);
        names.nth(self as usize).unwrap_or_default()
    }

    /// Returns the change as the verb and the object of a sentence about the target: `is` and `ready`.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::EventSucceeded => ("has", "completed the event"),
            Self::EventFailed => ("has", "failed the event"),
            Self::PreStopEnded => ("has", "completed preStop"),
            Self::Failed => ("has", self.name()),
            _ => ("is", self.name()),
        }
    }
}

impl From<TargetPhase> for TargetChange {
    fn from(phase: TargetPhase) -> Self {
        match phase {
            TargetPhase::Starting => Self::Starting,
            TargetPhase::Ready => Self::Ready,
            TargetPhase::Updating => Self::Updating,
            TargetPhase::Failed => Self::Failed,
            TargetPhase::Stopping => Self::Stopping,
            TargetPhase::Stuck => Self::Stuck,
            TargetPhase::Gone => Self::Gone,
        }
    }
}
