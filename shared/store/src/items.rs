//! What the table holds, as values.

use ebb_protocol::engine::target::Notification;
use ebb_protocol::engine::{HeadState, Hook, Shard, TargetPhase, Timestamp};
use ebb_protocol::id::RunId;
use ebb_protocol::lifecycle::TargetStopCause;
use serde::{Deserialize, Serialize};

use crate::ops::TargetList;

/// One target. Every write gives it a new version; a write says which version it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetHead {
    /// `sandbox`, …
    pub kind: String,
    /// Its name; kind and name are the key.
    pub name: String,
    pub uid: String,
    /// Rises with each change of the document.
    pub generation: u64,
    pub phase: TargetPhase,
    /// The hook whose run is or was the last one.
    pub hook: Option<Hook>,
    /// Digest of its plan. Empty for one that was deleted before it was created: it never had any.
    pub plan: String,
    /// What scripts see as the routing key.
    pub routing_key: Option<String>,
    /// Exact plugin versions that it holds, `name@version`.
    pub plugins: Vec<String>,
    /// When this life was asked for.
    pub created: Timestamp,
    /// When `phase` was entered.
    pub since: Timestamp,
    /// When its time to live ends.
    pub expires: Option<Timestamp>,
    /// Why it stops, or has stopped.
    pub stop_cause: TargetStopCause,
    /// True if an operator overrode units of its teardown.
    pub is_overridden: bool,
    /// The notification that the platform has not accepted yet.
    pub notification: Option<NotificationState>,
    pub waiting: Option<PendingCreation>,
    /// Lives of this name that are over and whose sensitive outputs a cluster still holds.
    pub release: Vec<SecretRelease>,
    /// When `sweep` has to look at it.
    pub due: Option<Timestamp>,
    pub version: u64,
}

impl TargetHead {
    /// A life that was asked for at `now`, and about which nothing else is known: without a plan, never written.
    pub fn new(kind: &str, name: &str, uid: &str, now: Timestamp) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            generation: 0,
            phase: TargetPhase::Starting,
            hook: None,
            plan: String::new(),
            routing_key: None,
            plugins: Vec::new(),
            created: now,
            since: now,
            expires: None,
            stop_cause: TargetStopCause::Deleted,
            is_overridden: false,
            notification: None,
            waiting: None,
            release: Vec::new(),
            due: None,
            version: 0,
        }
    }

    /// The list that it is in. A gone target stays in the list of the active ones while the platform refuses its
    /// notification, and while another instance waits for its name. A notification that holds its run open is delivered by
    /// that run.
    pub fn list(&self) -> TargetList {
        let is_delivered = self.notification.as_ref().is_none_or(|pending| pending.delivered_by.is_some());
        match self.phase {
            TargetPhase::Gone if is_delivered && self.waiting.is_none() => TargetList::Gone,
            _ => TargetList::Active,
        }
    }
}

/// A notification that the platform has not accepted yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotificationState {
    #[serde(with = "notification_text")]
    pub notification: Notification,
    pub attempts: u32,
    /// The hook whose run stays open until the notification is delivered, so that the target needs no place in the index:
    /// once this run is closed, it is delivered. `None`: the target itself is due.
    #[serde(default, with = "hook_text", skip_serializing_if = "Option::is_none")]
    pub delivered_by: Option<Hook>,
    /// Why the platform did not accept it last; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A life whose sensitive outputs a cluster holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRelease {
    pub instance: String,
    /// The cluster; `None`: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// A creation that waits until another life of the same name is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingCreation {
    pub uid: String,
    pub generation: u64,
    pub plan: String,
    pub routing_key: Option<String>,
    pub plugins: Vec<String>,
    /// Milliseconds of its time to live.
    pub ttl_ms: Option<u64>,
}

/// What never changes of a run; in its root item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFacts {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub generation: u64,
    pub plan: String,
    /// What scripts see as the routing key.
    pub routing_key: Option<String>,
    pub started: Timestamp,
}

/// A head item as it was read: the root has facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    pub shard: Shard,
    pub head: HeadState,
    /// In the root only.
    pub facts: Option<RunFacts>,
}

/// A run that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    pub id: RunId,
    pub facts: RunFacts,
    /// When `sweep` looks at it first.
    pub due: Timestamp,
}

/// The answer to a conditional write of a head item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchResult {
    /// Written; the item after it (`ALL_NEW`).
    Written(RunHead),
    /// A condition did not hold; the item as it is (`ALL_OLD`), if there is one.
    ConditionFailed(Option<RunHead>),
}

mod notification_text {
    use super::Notification;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(notification: &Notification, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(notification.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Notification, D::Error> {
        let word = String::deserialize(deserializer)?;
        let found = Notification::ALL.into_iter().find(|notification| notification.name() == word);
        found.ok_or_else(|| Error::custom(format!("unknown notification {word:?}")))
    }
}

mod hook_text {
    use ebb_protocol::engine::Hook;
    use ebb_protocol::id::{hook_name, hook_named};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hook: &Option<Hook>, serializer: S) -> Result<S::Ok, S::Error> {
        match hook {
            Some(hook) => serializer.serialize_str(hook_name(*hook)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Hook>, D::Error> {
        let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        hook_named(&word).map(Some).ok_or_else(|| Error::custom(format!("unknown hook {word:?}")))
    }
}
