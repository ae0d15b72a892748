//! The state of clusters: `clusters` / `h`. Attributes are `scan#CLUSTER`, the time of the next orphan scan,
//! `since#CLUSTER` and `reason#CLUSTER` of an outage, `denied#CLUSTER` and `denial#CLUSTER`, the time and the reason of a
//! denied poll, and `policy#CLUSTER`, the time of the policy. `clusters` / `policy#CLUSTER` has the last policy that the
//! relay reported: `b` the policy as JSON, and `at`.
//!
//! The first item names each cluster that has any state, so that the state of a deleted cluster is found.
//!
//! Registered clusters: `registered` / NAME. The cluster is JSON in `b`, and the version is in `tv`. All are in one
//! partition, so that one query reads them.

use std::collections::BTreeMap;

use ebb_protocol::engine::Timestamp;

use super::{ItemReader, Store, has_version, item_at, json, key, number, readable, text};
use crate::item_table::AttributeChange::{Remove, Set};
use crate::{ClusterFault, ClusterFaultKind, ClusterItem, PolicyRecord, StoreResult, WriteCondition, WriteExpression};

const ITEM: (&str, &str) = (key::CLUSTERS, key::HEAD);

fn read_cluster(reader: ItemReader<'_>) -> StoreResult<ClusterItem> {
    let cluster: ClusterItem = reader.json("b")?;
    Ok(ClusterItem { version: reader.number("tv")?, ..cluster })
}

/// Times of the next orphan scans, outages of clusters and denied polls, all in one item (`GetItem`, `UpdateItem`). Policies
/// that relays reported, and the end of the state of a cluster (`GetItem`, `UpdateItem`, `DeleteItem`). Registered clusters
/// (`Query`, `PutItem`, `DeleteItem`).
impl Store {
    /// Returns all clusters with any state, also outages and policies, with the time of the next scan. A cluster that
    /// was not scanned has none.
    pub async fn read_scans(&self) -> StoreResult<BTreeMap<String, Option<Timestamp>>> {
        let read = |reader: ItemReader<'_>| {
            let clusters = reader.item.keys().filter_map(|name| key::attribute_cluster(name));
            let next = |cluster| reader.time_if_any(&key::scan_attribute(cluster));
            clusters.map(|cluster| Ok((cluster.to_owned(), next(cluster)?))).collect::<StoreResult<_>>()
        };
        Ok(self.table.read(ITEM.0, ITEM.1, read).await?.unwrap_or_default())
    }

    /// Leases the scan that was read as due at `seen` and schedules the next one. Returns false if another caller has
    /// leased it.
    pub async fn claim_scan(&self, cluster: &str, seen: Option<Timestamp>, next: Timestamp) -> StoreResult<bool> {
        let name = key::scan_attribute(cluster);
        let expression = WriteExpression::when(match seen {
            Some(seen) => WriteCondition::equal(&name, number(seen.0)),
            None => WriteCondition::absent(&name),
        });
        // The write is refused if it is a repetition of a write whose response was lost. That scan is skipped.
        self.table.update_if(ITEM, expression.with([(name, Set(number(next.0)))])).await
    }

    pub async fn read_faults(&self, kind: ClusterFaultKind) -> StoreResult<BTreeMap<String, ClusterFault>> {
        let Some(item) = self.table.get(ITEM.0, ITEM.1).await? else { return Ok(BTreeMap::new()) };
        let reader = ItemReader::new("GetItem", &item);
        let (prefix, _) = key::fault_attributes(kind, "");
        let clusters = item.keys().filter_map(|name| name.strip_prefix(&prefix));
        let faults = clusters.map(|cluster| {
            let (at, reason) = key::fault_attributes(kind, cluster);
            let fault = ClusterFault { at: reader.time(&at)?, reason: reader.text(&reason)?.to_owned() };
            Ok((cluster.to_owned(), fault))
        });
        faults.collect()
    }

    /// Records a fault. Returns false and changes nothing if an outage is recorded, or a denial within
    /// [`ClusterFault::DENIAL_INTERVAL_MS`].
    pub async fn begin_fault(
        &self,
        kind: ClusterFaultKind,
        cluster: &str,
        at: Timestamp,
        reason: &str,
    ) -> StoreResult<bool> {
        let (at_name, reason_name) = key::fault_attributes(kind, cluster);
        let mut free = vec![WriteCondition::absent(&at_name)];
        if kind == ClusterFaultKind::Denial {
            let last = at.0.saturating_sub(ClusterFault::DENIAL_INTERVAL_MS);
            free.push(WriteCondition::AtMost(at_name.clone(), last));
        }
        let changes = [(at_name, Set(number(at.0))), (reason_name, Set(text(reason)))];
        self.table.update_if(ITEM, WriteExpression::when(WriteCondition::Any(free)).with(changes)).await
    }

    /// Removes a fault. Returns false if none is recorded.
    pub async fn end_fault(&self, kind: ClusterFaultKind, cluster: &str) -> StoreResult<bool> {
        let (at_name, reason_name) = key::fault_attributes(kind, cluster);
        let expression = WriteExpression::when(WriteCondition::present(&at_name));
        self.table.update_if(ITEM, expression.with([(at_name, Remove), (reason_name, Remove)])).await
    }

    pub async fn read_policy(&self, cluster: &str) -> StoreResult<Option<PolicyRecord>> {
        let read = |reader: ItemReader<'_>| Ok(PolicyRecord { at: reader.time("at")?, policy: reader.json("b")? });
        self.table.read(key::CLUSTERS, &key::policy(cluster), read).await
    }

    /// Replaces the policy of a cluster. The caller limits its size.
    pub async fn note_policy(&self, cluster: &str, PolicyRecord { at, policy }: &PolicyRecord) -> StoreResult<()> {
        // The mark comes first, so that no policy is without one.
        let mark = WriteExpression::default().with([(key::policy(cluster), Set(number(at.0)))]);
        self.table.update_if(ITEM, mark).await?;
        let expression = WriteExpression::default().with([("at", Set(number(at.0))), ("b", Set(json(policy)?))]);
        self.table.update_if((key::CLUSTERS, &key::policy(cluster)), expression).await.map(drop)
    }

    /// Removes all state of a cluster: its scan, outage, denial and policy. A cluster without state is not an error.
    pub async fn forget_cluster(&self, cluster: &str) -> StoreResult<()> {
        self.table.delete(key::CLUSTERS, &key::policy(cluster)).await?;
        let names = key::cluster_attributes(cluster);
        let conditions = names.iter().map(|name| WriteCondition::present(name)).collect();
        let expression = WriteExpression::when(WriteCondition::Any(conditions));
        self.table.update_if(ITEM, expression.with(names.map(|name| (name, Remove)))).await.map(drop)
    }

    /// Returns all clusters by name, strongly consistent. Unreadable ones are skipped and logged.
    pub async fn list_clusters(&self) -> StoreResult<Vec<ClusterItem>> {
        let (least, greatest) = key::CLUSTER_NAMES;
        Ok(readable("Query", &self.table.range(key::REGISTERED, least, greatest).await?, read_cluster))
    }

    /// Writes a cluster. Returns false, and writes nothing, if the item does not have the version `seen`, or exists
    /// although none was seen. A repetition of the same write returns true.
    pub async fn put_cluster(&self, cluster: &ClusterItem, seen: Option<u64>) -> StoreResult<bool> {
        let attributes = [("b", json(cluster)?), ("tv", number(cluster.version))];
        self.table.put_once(item_at((key::REGISTERED, &cluster.name), attributes), has_version(seen)).await
    }

    /// Deletes a cluster. Returns false if it does not exist.
    pub async fn delete_cluster(&self, name: &str) -> StoreResult<bool> {
        Ok(self.table.take(key::REGISTERED, name).await?.is_some())
    }
}
