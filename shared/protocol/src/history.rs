//! The history of targets, and lists of runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::RunState;

/// What an entry of the history tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum HistoryChange {
    /// The instance was created. The entry is that of the first run, of `postStart`, or of an instance without units.
    #[default]
    Created,
    /// The document was changed.
    Updated,
    /// A document was accepted. It waits for the end of a run, or for the earlier instance of the name.
    Accepted,
    /// The units of an event run.
    Event,
    /// The instance was deleted.
    Deleted,
    /// The `ttl` of the instance ended.
    Expired,
    /// Two observations of its source lacked its thing.
    Missing,
    /// An operator retries failed units.
    Retried,
    /// An operator retries a teardown with another version of a plugin.
    Repaired,
    /// An operator marks failed units of a teardown as complete.
    ForceCompleted,
    /// An operator marks all open units of a teardown as complete.
    ForceDeleted,
}

impl HistoryChange {
    pub fn words(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Accepted => "accepted",
            Self::Missing => "missing at its sender",
            Self::Event => "event",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Retried => "retried",
            Self::Repaired => "repaired",
            Self::ForceCompleted => "force-completed",
            Self::ForceDeleted => "force-deleted",
        }
    }
}

/// An entry of the history of a target.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Names the entry among those of its target.
    pub id: String,
    pub time: String,
    pub change: HistoryChange,
    /// The verified caller: `platform`, `token NAME`, `ISSUER SUBJECT`, `role ROLE`, `source NAME` or `ttl`. Absent if it is
    /// unknown.
    pub by: Option<String>,
    /// For people: `NAME SUBJECT`, if the issuer of `by` has a name.
    #[serde(rename = "byName")]
    pub by_name: Option<String>,
    /// The instance.
    pub uid: String,
    /// The generation of the document.
    pub generation: u64,
    /// The run that began.
    pub run: Option<HistoryRun>,
    /// Why an operator decided it.
    pub reason: Option<String>,
    /// The units that a decision concerns, `RESOURCE/UNIT`, at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
    /// The plugin of each resource of the document by name, as `NAME@VERSION`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, String>,
    /// The digest of the stored document. The entry itself has the text.
    pub document: Option<String>,
}

/// A run in the history or in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryRun {
    pub id: String,
    /// For example `preStart`.
    pub hook: String,
    pub state: RunState,
    /// The time at which the platform accepted the notification of the end of the run, if it accepted the first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notified: Option<String>,
}

/// A page of the history of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryPage {
    /// The newest first. May be empty although more pages follow.
    pub entries: Vec<HistoryEntry>,
    /// The query parameter `nextToken` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
    /// The notifications about the present instance that their receivers have not accepted, the newest first. On the first
    /// page, for callers that may read all targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<OpenNotification>,
}

/// A notification that its receiver has not accepted.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenNotification {
    /// The time of the change that it reports, or for one that was given up, the time of that.
    pub time: String,
    /// The phase that it reports.
    pub phase: String,
    /// `platform` or `subscription NAME`.
    pub to: String,
    /// True if it is not repeated any more. Such a notification is listed for 30 days.
    #[serde(default)]
    pub given_up: bool,
    /// The reason of the last failure. Absent before the first one.
    pub reason: Option<String>,
    /// The time of the next attempt after a failure.
    pub next: Option<String>,
}

/// An entry with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryDetail {
    #[serde(flatten)]
    pub entry: HistoryEntry,
    /// The text of the document. Absent if the entry has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A run of a target, in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListedRun {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub started: String,
    /// The verified caller that caused the run, as in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(flatten)]
    pub run: HistoryRun,
}

/// A page of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    /// Ordered by the kind and name of the target. May be empty although more pages follow.
    pub runs: Vec<ListedRun>,
    /// The query parameter `nextToken` of the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_token: Option<String>,
}
