//! The state of clusters: `clusters` / `h`. Attributes are `scan#CLUSTER`, the time of the next orphan scan, and
//! `since#CLUSTER` and `reason#CLUSTER` of an outage.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;

use super::attribute::{ItemReader, number, text};
use super::{DynamoTable, key};
use crate::ops::{OrphanScans, OutageRecord, RelayOutages, StoreResult};

const ITEM: (&str, &str) = (key::CLUSTERS, key::HEAD);

#[async_trait]
impl OrphanScans for DynamoTable {
    async fn read_scans(&self) -> StoreResult<BTreeMap<String, Timestamp>> {
        let Some(item) = self.get(ITEM.0, ITEM.1).await? else { return Ok(BTreeMap::new()) };
        let reader = ItemReader::new("GetItem", &item);
        let clusters = item.keys().filter_map(|name| Some((name, key::scan_cluster(name)?)));
        clusters.map(|(name, cluster)| Ok((cluster.to_owned(), reader.time(name)?))).collect()
    }

    async fn claim_scan(&self, cluster: &str, seen: Option<Timestamp>, next: Timestamp) -> StoreResult<bool> {
        let condition = if seen.is_some() { "#c = :s" } else { "attribute_not_exists(#c)" };
        let mut request = self
            .client
            .update_item()
            .update_expression("SET #c = :n")
            .condition_expression(condition)
            .expression_attribute_names("#c", key::scan_attribute(cluster))
            .expression_attribute_values(":n", number(next.0));
        if let Some(seen) = seen {
            request = request.expression_attribute_values(":s", number(seen.0));
        }
        // A repeated write whose first response was lost is refused. That scan is skipped.
        self.update_if(ITEM, request).await
    }
}

#[async_trait]
impl RelayOutages for DynamoTable {
    async fn read_outages(&self) -> StoreResult<BTreeMap<String, OutageRecord>> {
        let Some(item) = self.get(ITEM.0, ITEM.1).await? else { return Ok(BTreeMap::new()) };
        let reader = ItemReader::new("GetItem", &item);
        let clusters = item.keys().filter_map(|name| key::outage_cluster(name));
        let outages = clusters.map(|cluster| {
            let (since, reason) = key::outage_attributes(cluster);
            let outage = OutageRecord { since: reader.time(&since)?, reason: reader.text(&reason)?.to_owned() };
            Ok((cluster.to_owned(), outage))
        });
        outages.collect()
    }

    async fn begin_outage(&self, cluster: &str, since: Timestamp, reason: &str) -> StoreResult<bool> {
        let (since_name, reason_name) = key::outage_attributes(cluster);
        let request = self
            .client
            .update_item()
            .update_expression("SET #s = :s, #r = :r")
            .condition_expression("attribute_not_exists(#s)")
            .expression_attribute_names("#s", since_name)
            .expression_attribute_names("#r", reason_name)
            .expression_attribute_values(":s", number(since.0))
            .expression_attribute_values(":r", text(reason));
        self.update_if(ITEM, request).await
    }

    async fn end_outage(&self, cluster: &str) -> StoreResult<bool> {
        let (since_name, reason_name) = key::outage_attributes(cluster);
        let request = self
            .client
            .update_item()
            .update_expression("REMOVE #s, #r")
            .condition_expression("attribute_exists(#s)")
            .expression_attribute_names("#s", since_name)
            .expression_attribute_names("#r", reason_name);
        self.update_if(ITEM, request).await
    }
}
