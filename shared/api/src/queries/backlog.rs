//! The notifications that wait for the receivers of subscriptions, from the targets that are due.

use std::collections::BTreeMap;

use ebb_flow::error::FlowResult;
use ebb_protocol::{DeliveryError, TargetKey, Timestamp, rfc3339};
use ebb_store::{DueItem, Store, TargetHead};
use futures::{StreamExt as _, TryStreamExt as _};

/// Maximum due items, and targets of them, that one request reads. A target with a notification that waits is due.
const MAX_DUE: usize = 2_000;
const MAX_TARGETS: usize = 500;
/// Maximum concurrent reads.
const MAX_READS: usize = 16;

/// The notifications that wait, by subscription.
#[derive(Default)]
pub(super) struct Backlog {
    subscriptions: BTreeMap<String, Waiting>,
    /// True if more targets were due than one request reads.
    pub(super) is_incomplete: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub(super) count: usize,
    pub(super) oldest: Option<Timestamp>,
    /// The last failure, with its time.
    pub(super) failure: Option<(Timestamp, DeliveryError)>,
}

impl Backlog {
    pub(super) async fn read(store: &Store) -> FlowResult<Self> {
        let due = store.query_due(Timestamp(u64::MAX / 2), MAX_DUE).await?;
        let mut is_incomplete = due.len() >= MAX_DUE;
        let mut targets: Vec<(String, String)> = Vec::new();
        for (_, item) in due {
            if let DueItem::Target(kind, name) = item {
                targets.push((kind, name));
            }
        }
        is_incomplete |= targets.len() > MAX_TARGETS;
        targets.truncate(MAX_TARGETS);
        let reads = targets
            .into_iter()
            .map(|(kind, name)| async move { store.read_target(TargetKey::new(&kind, &name)).await });
        let heads: Vec<Option<TargetHead>> =
            futures::stream::iter(reads).buffer_unordered(MAX_READS).try_collect().await?;
        let mut backlog = Self { is_incomplete, ..Self::default() };
        heads.iter().flatten().for_each(|target| backlog.add(target));
        Ok(backlog)
    }

    fn add(&mut self, target: &TargetHead) {
        for notice in &target.outbox.notices {
            for name in &notice.to {
                let waiting = self.subscriptions.entry(name.clone()).or_default();
                waiting.count += 1;
                waiting.oldest = Some(waiting.oldest.map_or(notice.at, |oldest| oldest.min(notice.at)));
            }
        }
        for (name, state) in target.outbox.failed.iter().filter(|(_, state)| state.at > Timestamp(0)) {
            let Some(waiting) = self.subscriptions.get_mut(name) else { continue };
            if waiting.failure.as_ref().is_some_and(|(at, _)| *at >= state.at) {
                continue;
            }
            let error = DeliveryError {
                target: format!("{}/{}", target.kind, target.name),
                at: rfc3339(state.at),
                reason: state.reason.clone(),
                next: rfc3339(state.next),
            };
            waiting.failure = Some((state.at, error));
        }
    }

    /// Returns the number of notifications that wait, and the time of the oldest one.
    pub(super) fn total(&self) -> (usize, Option<Timestamp>) {
        let count = self.subscriptions.values().map(|waiting| waiting.count).sum();
        (count, self.subscriptions.values().filter_map(|waiting| waiting.oldest).min())
    }

    pub(super) fn of(&self, subscription: &str) -> Waiting {
        self.subscriptions.get(subscription).cloned().unwrap_or_default()
    }
}
