//! Counts what the table holds, for the gauges of a monitoring system.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{TargetPhase, Timestamp};
use ebb_flow::error::FlowResult;
use ebb_protocol::id::TargetKey;
use ebb_store::{ClusterFaultKind, DueItem, NamedKind, Store, TargetList};

use super::backlog::Backlog;
use super::subscriptions::MAX_UNDELIVERED;

/// Targets that are read at the same time.
const PAGE: usize = 1_000;
/// Maximum due items that are counted. Each open run is due.
const MAX_DUE: usize = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Targets in each phase, without those that are gone.
    pub targets: Vec<(&'static str, usize)>,
    /// The same for those that use a plugin, by its name and phase.
    pub plugins: BTreeMap<(String, &'static str), usize>,
    /// Open runs among the 10,000 most urgent due items.
    pub open_runs: usize,
    /// Milliseconds for which the most urgent run or target is due.
    pub due_lag_ms: u64,
    /// Clusters whose relay does not respond.
    pub outages: usize,
    /// Notifications that wait for receivers of subscriptions, of the 500 most urgent targets.
    pub waiting: usize,
    /// Milliseconds since the oldest of them. 0 without one.
    pub waiting_ms: u64,
    /// Notifications of each subscription that wait, and those that were given up in the last 30 days, at most 1,000.
    pub subscriptions: BTreeMap<(String, &'static str), usize>,
}

/// Counts targets, runs, outages and notifications.
///
/// It reads each target that is not gone, so callers keep the counts for some seconds.
///
/// # Errors
/// Returns an error if the table cannot be read.
pub async fn read(store: &Store, now: Timestamp) -> FlowResult<StateCounts> {
    let mut targets = TargetPhase::ALL.map(|phase| (phase, 0));
    let mut plugins: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
    let mut after: Option<(String, String)> = None;
    loop {
        let from = after.as_ref().map(|(kind, name)| TargetKey::new(kind, name));
        let page = store.list_page(TargetList::Active, None, from, PAGE).await?;
        for target in page.targets.iter().filter(|target| target.phase != TargetPhase::Gone) {
            targets[target.phase as usize].1 += 1;
            let names: BTreeSet<&str> = target.plugins.iter().filter_map(|plugin| plugin.split('@').next()).collect();
            for name in names {
                *plugins.entry((name.to_owned(), target.phase.name())).or_default() += 1;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let due = store.query_due(Timestamp(u64::MAX / 2), MAX_DUE).await?;
    let backlog = Backlog::read(store).await?;
    let (waiting, oldest) = backlog.total();
    let mut subscriptions = BTreeMap::new();
    for one in store.list_documents(NamedKind::Subscription).await? {
        let undelivered = store.count_undelivered(&one.name, MAX_UNDELIVERED).await?;
        subscriptions.insert((one.name.clone(), "waiting"), backlog.of(&one.name).count);
        subscriptions.insert((one.name, "undelivered"), undelivered);
    }
    let living = targets.into_iter().filter(|(phase, _)| *phase != TargetPhase::Gone);
    Ok(StateCounts {
        targets: living.map(|(phase, count)| (phase.name(), count)).collect(),
        plugins,
        open_runs: due.iter().filter(|(_, item)| matches!(item, DueItem::Run(_))).count(),
        due_lag_ms: due.first().map_or(0, |(first, _)| now.since(*first).0),
        outages: store.read_faults(ClusterFaultKind::Outage).await?.len(),
        waiting,
        waiting_ms: oldest.map_or(0, |oldest| now.since(oldest).0),
        subscriptions,
    })
}
