//! The notifications of a target that wait for the receivers of subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use ebb_protocol::engine::TargetChange;
use ebb_protocol::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// The notifications of a target that wait for receivers. Each receiver gets its notifications one after the other, and
/// independently of the other receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetOutbox {
    /// The oldest first, see [`Self::exceeds`].
    pub notices: Vec<PhaseNotice>,
    /// The subscriptions whose first notification was sent, or is being sent, and is not accepted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, ReceiverState>,
}

impl TargetOutbox {
    /// Maximum notifications that wait.
    pub const MAX_NOTICES: usize = 100;
    /// Maximum bytes of their JSON. An item may have 400 KB.
    pub const MAX_BYTES: usize = 128 << 10;
    /// Maximum `gone` of instances that were deleted while they waited, and maximum notifications of ended runs for the
    /// platform. They never exceed the other limits.
    pub const MAX_PLATFORM_NOTICES: usize = 20;
    /// The receiver of the `gone` of instances that were deleted while they waited, and of the ends of runs. No
    /// subscription has this name.
    pub const PLATFORM: &str = "#platform";

    /// Returns true if no notification waits. The leases of deliveries then mean nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    /// Returns true if more than `times` the allowed notifications of subscriptions wait.
    pub fn exceeds(&self, times: usize) -> bool {
        let notices: Vec<&PhaseNotice> = self.notices.iter().filter(|notice| !notice.is_for_platform()).collect();
        let bytes = || serde_json::to_vec(&notices).map_or(usize::MAX, |json| json.len());
        notices.len() > times * Self::MAX_NOTICES || bytes() > times * Self::MAX_BYTES
    }

    /// Returns the first notification of each subscription that a receiver may get at `now`.
    pub fn next(&self, now: Timestamp) -> Option<(&PhaseNotice, &str)> {
        let mut later = BTreeSet::new();
        let all = self.notices.iter().flat_map(|notice| notice.to.iter().map(move |name| (notice, name.as_str())));
        let mut first = all.filter(|(_, name)| later.insert(*name));
        first.find(|(_, name)| self.failed.get(*name).is_none_or(|state| state.next <= now))
    }

    /// Returns the time of the next delivery. It may be in the past.
    pub fn due(&self) -> Option<Timestamp> {
        let names = self.notices.iter().flat_map(|notice| &notice.to);
        names.map(|name| self.failed.get(name).map_or(Timestamp(0), |state| state.next)).min()
    }

    /// Returns the number of `gone` that wait for the platform.
    pub fn platform_notices(&self) -> usize {
        self.notices.iter().filter(|notice| notice.is_for_platform() && notice.phase == TargetChange::Gone).count()
    }

    /// Removes the oldest notification of an ended run for the platform, if as many wait as are allowed.
    pub fn limit_platform_ends(&mut self) {
        let is_end = |notice: &PhaseNotice| notice.is_for_platform() && notice.phase != TargetChange::Gone;
        let mut ends = self.notices.iter().enumerate().filter(|(_, notice)| is_end(notice)).map(|(place, _)| place);
        if let (Some(oldest), true) = (ends.next(), ends.count() + 1 >= Self::MAX_PLATFORM_NOTICES) {
            self.notices.remove(oldest);
        }
    }

    /// Returns true if a notification waits for the receiver of a subscription.
    pub fn has(&self, number: u64, subscription: &str) -> bool {
        let mut notices = self.notices.iter().filter(|notice| notice.number == number);
        notices.any(|notice| notice.to.iter().any(|name| name == subscription))
    }

    /// Removes a notification of a subscription. The lease of its delivery stays, see [`Self::end_lease`].
    pub fn remove(&mut self, number: u64, subscription: &str) {
        for notice in self.notices.iter_mut().filter(|notice| notice.number == number) {
            notice.to.retain(|name| name != subscription);
        }
        self.notices.retain(|notice| !notice.to.is_empty());
    }

    /// Ends the lease of a delivery, so that the next notification of the subscription can be sent. A lease of another
    /// invocation stays.
    pub fn end_lease(&mut self, subscription: &str, lease: Timestamp) {
        if self.failed.get(subscription).is_some_and(|state| state.next == lease) {
            self.failed.remove(subscription);
        }
    }
}

/// A change of a target, as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseNotice {
    /// The version of the target that the change wrote.
    pub number: u64,
    /// The phase that the target entered, or another change.
    pub phase: TargetChange,
    pub at: Timestamp,
    pub run: Option<RunId>,
    /// `deleted`, `expired` or `forced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The target as JSON: its identity and labels.
    pub target: serde_json::Value,
    /// The subscriptions whose receiver has not accepted it, or [`TargetOutbox::PLATFORM`].
    pub to: Vec<String>,
}

impl PhaseNotice {
    /// Returns true if it is for the platform. It is delivered until the platform accepts it.
    pub fn is_for_platform(&self) -> bool {
        self.to.iter().any(|name| name == TargetOutbox::PLATFORM)
    }
}

/// The deliveries of the first notification to a receiver that have begun and were not accepted. The platform is a
/// receiver, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverState {
    /// The attempts, and the times at which the notification was postponed.
    pub attempts: u32,
    /// The time of the first of the last responses in a row that reject the notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Timestamp>,
    /// The time of the next attempt. During an attempt, it is the end of its lease.
    pub next: Timestamp,
    /// The reason of the last failure.
    pub reason: String,
    /// The time of the last failure. 0 before the first one.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write that appends many notifications can drop one during its delivery.
    #[test]
    fn a_lease_ends_without_its_notification() {
        let state = ReceiverState { attempts: 1, next: Timestamp(5), ..ReceiverState::default() };
        let mut outbox = TargetOutbox { notices: Vec::new(), failed: [("all".to_owned(), state)].into() };
        outbox.remove(1, "all");
        // Another invocation has this lease.
        outbox.end_lease("all", Timestamp(4));
        assert_eq!(outbox.failed.len(), 1);
        outbox.end_lease("all", Timestamp(5));
        assert_eq!(outbox, TargetOutbox::default());
    }
}
