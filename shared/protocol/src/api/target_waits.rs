//! The waits of a target and of its units, with their start and their end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::UnitState;
use crate::relay::WaitResolution;

/// A wait of a target, or of something that can begin only after its present run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetWait {
    pub waiter: WaitingParty,
    /// The generation of a waiting update, the name of a waiting event, or the UID of a waiting instance.
    pub waiter_name: Option<String>,
    pub awaits: AwaitedParty,
    /// The hook of awaited units, the awaited notification, or the UID of the awaited instance.
    pub awaited_name: Option<String>,
    /// The start of the wait. Absent if it is not stored.
    pub since: Option<String>,
    /// The last error of the awaited party.
    pub reason: Option<String>,
    /// The event that ends the wait. For people.
    pub release: String,
}

impl TargetWait {
    /// Returns the waits of others than the target itself.
    pub fn of_others(waits: &[Self]) -> impl Iterator<Item = &Self> {
        waits.iter().filter(|wait| wait.waiter != WaitingParty::Target)
    }
}

/// The party that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum WaitingParty {
    /// The target, for its next phase.
    Target,
    /// A change of its document.
    Update,
    /// An event of the platform.
    Event,
    /// A deletion by the platform or a source that was refused, because a resource is protected.
    Deletion,
    /// The next instance of its name.
    Instance,
}

/// The party that a target waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum AwaitedParty {
    /// Units of a run of the target.
    Units,
    /// The platform, which has not accepted a notification.
    Platform,
    /// A person with the scope for it.
    Operator,
    /// The present instance of the name.
    Instance,
}

/// Units of a run that have not ended, for the same reason.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenUnits {
    /// Keys of the units, at most 10.
    pub units: Vec<String>,
    /// The number of units.
    pub count: usize,
    pub state: UnitState,
    /// The activity or the wait of the units. For people.
    pub reason: String,
    /// The earliest time from which a unit runs, or waits for this. Absent if it is unknown.
    pub since: Option<String>,
    /// The earliest time at which an attempt fails if this does not end.
    pub fails_at: Option<String>,
    pub resolves: WaitResolution,
}
