//! Items of the table as values.

mod change_feed;
mod clusters;
mod desired_states;
mod source_watches;
mod target_outbox;

use std::collections::BTreeMap;

use ebb_protocol::engine::{HeadState, Hook, Millis, TargetPhase, Timestamp};
use ebb_protocol::{EventRef, HistoryChange, RunId, TargetStopCause, TokenInfo, short_digest};
use serde::{Deserialize, Serialize};

use crate::table::TableSpec;

pub use change_feed::{ChangeFeed, ChangeRing};
pub use clusters::{BootstrapToken, ClusterItem, RegisteredRelay};
pub use desired_states::{DesiredKey, DesiredTarget, SourceRejections};
pub use source_watches::{ListFindings, ListPass, MissingTarget, ReplayState, SourceWatch};
pub use target_outbox::{PhaseNotice, ReceiverState, TargetOutbox};

/// A target. Every write increments its version, on condition that the version is still the one that was read.
#[serde_with::apply(bool => #[serde(default)], BTreeMap => #[serde(default)], Vec => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetHead {
    /// For example `sandbox`.
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// The source that created the instance. `None` for one of the platform or the API.
    pub source: Option<String>,
    /// The verified sender that created the instance: `platform`, `token NAME`, `ISSUER SUBJECT`, `role ROLE` or `source
    /// NAME`. `None` if it is unknown.
    pub owner: Option<String>,
    /// The sender of the creation, of the last update that began, or of the deletion: as `owner`, or `ttl`. `None` if it is
    /// unknown.
    pub changed_by: Option<String>,
    /// The labels of the document, at most [`Self::MAX_LABELS`] bytes of names and values.
    pub labels: BTreeMap<String, String>,
    /// Rises with each change of the document.
    pub generation: u64,
    /// The generation at which the instance began. The ids of its runs contain it.
    pub first_generation: u64,
    /// The number of the last update of the instance. An update without units has a number, and no run.
    pub updates: u32,
    pub phase: TargetPhase,
    /// The hook of the last run.
    pub hook: Option<Hook>,
    /// The digest of the plan. Empty for a target that was deleted before its creation.
    pub plan: String,
    /// The routing key for scripts.
    pub routing_key: Option<String>,
    /// Plugin versions in use, as `name@version`.
    pub plugins: Vec<String>,
    /// The time at which the instance was requested.
    pub created: Timestamp,
    /// The time of the last change of the phase, or of a ready target to another document. It orders the changes of a target.
    pub since: Timestamp,
    /// The time since which the target is ready, if its document was changed without a run since then.
    pub ready_since: Option<Timestamp>,
    /// The unit that failed first, with its reason, at most 200 characters. Only of a failed or stuck target.
    pub first_cause: Option<String>,
    /// The time of the last document or event that was accepted for the living target.
    pub active: Option<Timestamp>,
    /// The end of its TTL.
    pub expires: Option<Timestamp>,
    pub stop_cause: TargetStopCause,
    /// True if an operator overrode units of its teardown.
    pub is_overridden: bool,
    /// Of a gone target: the number of setup units without evidence that what they have made was removed, at the time when
    /// the target became gone.
    pub unconfirmed: u32,
    /// True if the target was moved back to its last run, which may be closed. A sweep then continues the run.
    pub is_reopened: bool,
    /// The last run whose end was reported, of an event or of `preStop`.
    pub reported: Option<RunId>,
    /// The notification of the present phase, if the platform has not accepted it yet.
    pub notification: Option<NotificationState>,
    /// The notifications that receivers of subscriptions have not accepted yet, also those of earlier instances.
    #[serde(default, skip_serializing_if = "TargetOutbox::is_empty")]
    pub outbox: TargetOutbox,
    pub waiting: Option<PendingCreation>,
    /// The newest change of the document that waits for the end of the present run.
    pub pending_update: Option<PendingUpdate>,
    /// The last update, if it was refused when it should have begun.
    pub refused_update: Option<RefusedUpdate>,
    /// The time of a deletion by its platform or source that a protected resource prevents until its protection ends.
    pub refused_deletion: Option<Timestamp>,
    #[serde(default)]
    pub events: TargetEvents,
    /// Ended instances of this name whose sensitive outputs are still in a cluster.
    pub release: Vec<SecretRelease>,
    /// The time since which a gone instance has no stored data. The table removes the target 30 days later.
    pub removed: Option<Timestamp>,
    /// The next wake-up.
    #[serde(skip)]
    pub due: Option<Timestamp>,
    #[serde(skip)]
    pub version: u64,
}

impl TargetHead {
    /// Maximum bytes of labels. The labels beyond are left out, so that the item stays small.
    pub const MAX_LABELS: usize = 8 << 10;

    /// Returns the first of `labels`, as many as a target stores.
    pub fn stored_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut bytes = 0;
        let fits = |(name, value): &(&String, &String)| {
            bytes += name.len() + value.len();
            bytes <= Self::MAX_LABELS
        };
        labels.iter().take_while(fits).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns a target that was never written and has no plan.
    pub fn new(kind: &str, name: &str, uid: &str, now: Timestamp) -> Self {
        let (kind, name, uid) = (kind.to_owned(), name.to_owned(), uid.to_owned());
        Self { kind, name, uid, created: now, since: now, ..Self::default() }
    }

    /// Returns true if the instance `uid` waits for the name.
    pub fn has_waiting(&self, uid: &str) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.uid == uid)
    }

    /// Returns the UID in the removal of the plan of a waiting update. UIDs of platforms have no spaces.
    pub fn update_uid(&self, pending: &PendingUpdate) -> String {
        format!("{} update {} {}", self.uid, pending.generation, pending.since.0)
    }

    /// Returns the key under which the plan of a waiting update is stored. Each update has its own, so that the removal
    /// of an earlier plan leaves that of a later one. An update that was refused, or was not stored, leaves its generation
    /// to a later one.
    pub fn update_key(&self, pending: &PendingUpdate) -> String {
        self.target_key().instance(&self.update_uid(pending)).key()
    }

    /// Returns the generation of the newest accepted document.
    pub fn newest_generation(&self) -> u64 {
        self.pending_update.as_ref().map_or(self.generation, |pending| pending.generation)
    }

    /// Returns the id of a run of the present instance. For an event it is the last run.
    pub fn run(&self, hook: Hook) -> RunId {
        match (hook, self.events.recent.last()) {
            (Hook::Event(_), Some(last)) => RunId::of_event(&self.instance_key(), self.first_generation, last),
            _ => RunId::new(&self.instance_key(), self.first_generation, hook),
        }
    }

    /// Returns the time at which `phase` was entered.
    pub fn phase_since(&self) -> Timestamp {
        self.ready_since.unwrap_or(self.since)
    }

    /// Returns the time of a change of the phase. The changes of a target have rising times, also if the clocks of two
    /// invocations differ.
    pub fn change_time(&self, now: Timestamp) -> Timestamp {
        match self.version {
            0 => now,
            _ => now.max(self.since.plus(Millis(1))),
        }
    }

    /// Returns true if `run` is the last run of the present instance.
    pub fn is_last_run(&self, run: &RunId) -> bool {
        self.hook.is_some_and(|hook| self.run(hook) == *run)
    }

    /// Returns the transition that only makes `change`.
    pub fn update(&self, change: impl FnOnce(&mut Self)) -> TargetTransition {
        let mut target = Self { version: self.version + 1, ..self.clone() };
        change(&mut target);
        TargetTransition::new(target, Some(self.version))
    }

    /// Returns the list that contains the target. A gone target stays in the active list while the platform has not
    /// accepted all notifications about its name, or another instance waits for the name. A notification that a run
    /// holds does not count, because its run delivers it.
    pub fn list(&self) -> TargetList {
        let is_due = matches!(self.notification, Some(NotificationState::Due(_)));
        match self.phase {
            TargetPhase::Gone if !is_due && self.waiting.is_none() && self.outbox.platform_notices() == 0 => {
                TargetList::Gone
            }
            _ => TargetList::Active,
        }
    }
}

/// An atomic transition of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetTransition {
    /// The target after the transition. Its `version` is one more than `expected_version`, or 1.
    pub target: TargetHead,
    /// The version that was read. `None` if there was no item.
    pub expected_version: Option<u64>,
    pub run: Option<NewRun>,
    pub tombstone: Option<Tombstone>,
    /// The entry of a change that begins no run. The entry of a run is written before its transition.
    pub entry: Option<HistoryItem>,
}

impl TargetTransition {
    pub fn new(target: TargetHead, expected_version: Option<u64>) -> Self {
        Self { target, expected_version, run: None, tombstone: None, entry: None }
    }
}

/// The end of an instance that no target names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    pub instance: String,
    pub ended: Timestamp,
    /// It is kept until 30 days after this time. `None` keeps it, as the runs of the instance.
    pub needed: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetList {
    /// Active targets, and gone ones that still wait: see [`TargetHead::list`].
    Active,
    /// Gone targets that wait for nothing and are not expired yet.
    Gone,
}

impl TargetList {
    pub(crate) fn partition(self) -> &'static str {
        match self {
            Self::Active => TableSpec::LIST_TARGETS,
            Self::Gone => TableSpec::LIST_GONE,
        }
    }
}

/// The notification of the present phase, which the platform has not accepted yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NotificationState {
    /// The run of this hook stays open until the first delivery, so that the target needs no index entry.
    Held(Hook),
    /// The target itself is due for the next delivery.
    Due(ReceiverState),
}

/// An instance whose sensitive outputs are still in a cluster.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRelease {
    pub instance: String,
    /// `None` means the default cluster.
    pub cluster: Option<String>,
    /// The UID of the cluster, if the plan has it.
    pub uid: Option<String>,
}

/// An update that waits for the end of the present run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingUpdate {
    pub generation: u64,
    /// The digest of the plan of its document. The plan is stored with [`TargetHead::update_key`].
    pub plan: String,
    pub routing_key: Option<String>,
    /// The verified sender, as the owner of a target.
    pub by: Option<String>,
    /// The labels of its document, as those of a target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// True if it may not remove or replace a complete resource.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_resources: bool,
    /// The time since which it waits. It tells the update from earlier ones of its generation.
    pub since: Timestamp,
}

/// An update that has waited, and that the target could not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedUpdate {
    pub generation: u64,
    /// The error text.
    pub reason: String,
}

/// A creation that waits until the previous instance of the name is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingCreation {
    pub uid: String,
    /// The source that requested it. `None` for the platform or the API.
    #[serde(default, rename = "owner", skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The verified sender that requested it, as that of a target.
    #[serde(default, rename = "createdBy", skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The labels of the document, as those of a target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub generation: u64,
    /// The generation in the ids of its runs, if a newer document has come since. A scheduled removal names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_generation: Option<u64>,
    pub plan: String,
    pub routing_key: Option<String>,
    pub plugins: Vec<String>,
    pub ttl_ms: Option<u64>,
    /// The time since which the instance waits. For display. A newer document keeps it.
    pub since: Timestamp,
}

impl PendingCreation {
    pub fn first_generation(&self) -> u64 {
        self.first_generation.unwrap_or(self.generation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    Source,
    Connection,
    Subscription,
    /// A notification that no receiver accepted in time. Its document is JSON, and it is kept for 30 days.
    Undelivered,
}

/// A document that is replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDocument {
    pub name: String,
    /// At most [`Self::MAX_DOCUMENT`] bytes.
    pub document: String,
    pub changed: Timestamp,
}

impl NamedDocument {
    /// Maximum bytes of a document. An item may have 400 KB.
    pub const MAX_DOCUMENT: usize = 256 << 10;
}

/// A named API token. Its secret is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenItem {
    pub info: TokenInfo,
    /// The digest of the whole token.
    pub digest: String,
    pub revoked: Option<Timestamp>,
}

/// The basis of a session of the console, which each request checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SessionBasis {
    /// A token of the configuration.
    Configured,
    /// The named token with this id.
    Named(String),
    /// The claims of an identity token, encrypted.
    Identity(String),
}

/// A session of the console. Its id is not stored.
#[serde_with::apply(Timestamp => #[serde(with = "ebb_protocol::time")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionItem {
    /// The digest of the id.
    pub digest: String,
    pub basis: SessionBasis,
    /// Proves the token, or the encrypted claims, to the holder of the id.
    pub proof: String,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// The access token of a connection, or the reason why there is none.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessTokenItem {
    /// The encrypted token.
    pub token: Option<String>,
    pub obtained: Timestamp,
    pub expires: Timestamp,
    /// The error text of the last request for a token, if it failed.
    pub failure: Option<String>,
    /// The end of the lease of the function that asks for a token, or of the pause after a failure.
    #[serde(skip)]
    pub leased_until: Timestamp,
}

/// The events of the present instance, the oldest first.
#[serde_with::apply(Vec => #[serde(default, skip_serializing_if = "Vec::is_empty")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetEvents {
    /// The last events that began, at most [`Self::MAX_RECENT`].
    pub recent: Vec<EventRef>,
    /// The events that wait until the present run has ended.
    pub waiting: Vec<DatedEvent>,
    /// The last events that were accepted and did not run, at most [`Self::MAX_RECENT`]. For display.
    pub dropped: Vec<DatedEvent>,
}

/// An accepted event that waits, or that did not run because the document had no units for it any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatedEvent {
    pub event: EventRef,
    /// The time since which it waits, or at which it was dropped. For display.
    pub at: Timestamp,
}

impl TargetEvents {
    pub const MAX_RECENT: usize = 8;

    pub fn has(&self, event: &EventRef) -> bool {
        self.recent.contains(event) || self.waits(event)
    }

    pub fn waits(&self, event: &EventRef) -> bool {
        self.waiting.iter().any(|waiting| waiting.event == *event)
    }

    /// Lets an event wait from the time `now`. It can have been dropped before.
    pub fn append(&mut self, event: EventRef, now: Timestamp) {
        self.dropped.retain(|dropped| dropped.event != event);
        self.waiting.push(DatedEvent { event, at: now });
    }

    /// Drops the waiting events for which `stays` returns false, at the time `now`.
    pub fn drop_waiting(&mut self, stays: impl Fn(&EventRef) -> bool, now: Timestamp) {
        let (waiting, dropped): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| stays(&waiting.event));
        self.waiting = waiting;
        self.dropped.extend(dropped.into_iter().map(|dropped| DatedEvent { at: now, ..dropped }));
        let excess = self.dropped.len().saturating_sub(Self::MAX_RECENT);
        self.dropped.drain(..excess);
    }

    /// Moves the first waiting event to the recent ones.
    pub fn begin_next(&mut self) {
        let next = (!self.waiting.is_empty()).then(|| self.waiting.remove(0));
        self.recent.extend(next.map(|next| next.event));
        let excess = self.recent.len().saturating_sub(Self::MAX_RECENT);
        self.recent.drain(..excess);
    }
}

/// The part of a run that its units do not change, stored in its head item. A repair of the teardown changes `plan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFacts {
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// The generation of the document when the run began.
    pub generation: u64,
    pub plan: String,
    /// The routing key for scripts.
    pub routing_key: Option<String>,
    pub started: Timestamp,
    /// The sender that caused the run, as [`TargetHead::changed_by`].
    pub by: Option<String>,
}

/// Adds the keys to types with the fields `kind`, `name` and `uid`.
macro_rules! instance_keys {
    ($($named:ty),+) => {$(
        impl $named {
            pub fn target_key(&self) -> ebb_protocol::TargetKey<'_> {
                ebb_protocol::TargetKey::new(&self.kind, &self.name)
            }

            pub fn instance_key(&self) -> String {
                self.target_key().instance(&self.uid).key()
            }
        }
    )+};
}

pub(crate) use instance_keys;

instance_keys!(TargetHead, RunFacts);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    pub head: HeadState,
    pub facts: RunFacts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    pub id: RunId,
    pub facts: RunFacts,
    /// The first wake-up.
    pub due: Timestamp,
}

/// An entry of the history of a target.
///
/// The entry of a run is written before the transaction that begins the run, with the same time. It counts if the run exists
/// and began at that time. No other entry of the run has that time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryItem {
    pub at: Timestamp,
    pub change: HistoryChange,
    /// The sender, as [`TargetHead::changed_by`]. That of a run is in its facts.
    pub by: Option<String>,
    pub uid: String,
    pub generation: u64,
    pub run: Option<RunId>,
    /// The reason of an operator.
    pub reason: Option<String>,
    /// The units of a decision, at most [`Self::MAX_UNITS`].
    #[serde(default)]
    pub units: Vec<String>,
    /// The plugin of each resource of the document by name, as `NAME@VERSION`.
    #[serde(default)]
    pub plugins: BTreeMap<String, String>,
    /// The document that was applied, if it may be stored. One with more than 100 KiB after compression is not stored.
    #[serde(skip)]
    pub document: Option<String>,
    /// The time after which the table removes the entry. `None` keeps it.
    #[serde(skip)]
    pub expires: Option<Timestamp>,
}

impl HistoryItem {
    pub const MAX_UNITS: usize = 50;

    /// Returns the name of the entry among those of its target. A repeated write has the same. Names of newer entries sort
    /// before those of older ones.
    pub fn id(&self) -> String {
        let own = || {
            let (at, generation) = (self.at.0.to_string(), self.generation.to_string());
            let (by, reason) = (self.by.as_deref().unwrap_or_default(), self.reason.as_deref().unwrap_or_default());
            let units = self.units.join(" ");
            short_digest(&[self.change.words(), &at, by, &self.uid, &generation, reason, &units], 16)
        };
        let subject = self.run.as_ref().map_or_else(own, ToString::to_string);
        format!("{:020}-{subject}", u64::MAX - self.at.0)
    }
}

/// The outcome of a conditional write of the head item of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchResult {
    /// The item after the write.
    Written(RunHead),
    /// The present item, if there is one.
    ConditionFailed(Option<RunHead>),
}

impl PatchResult {
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written(_))
    }
}

#[cfg(test)]
mod tests {
    use ebb_protocol::engine::EventName;

    use super::*;

    #[test]
    fn the_last_dropped_events_are_known_until_they_wait_again() {
        let event = |name: &str, id: u32| EventRef::new(EventName::new(name).unwrap(), &id.to_string());
        let mut events = TargetEvents::default();
        for event in (0..10).map(|id| event("wake", id)).chain([event("sleep", 0)]) {
            events.append(event, Timestamp(3));
        }
        events.drop_waiting(|event| event.name.as_str() == "sleep", Timestamp(5));
        assert_eq!(events.waiting, [DatedEvent { event: event("sleep", 0), at: Timestamp(3) }]);
        let dropped = |ids: std::ops::Range<u32>| {
            ids.map(|id| DatedEvent { event: event("wake", id), at: Timestamp(5) }).collect::<Vec<_>>()
        };
        assert_eq!(events.dropped, dropped(2..10));
        assert!(!events.has(&event("wake", 9)));
        events.append(event("wake", 9), Timestamp(7));
        assert_eq!(events.waiting[1], DatedEvent { event: event("wake", 9), at: Timestamp(7) });
        assert_eq!((events.waiting.len(), events.dropped), (2, dropped(2..9)));
    }
}
