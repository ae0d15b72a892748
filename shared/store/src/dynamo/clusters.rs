//! What is known of clusters beside runs: `rounds` / `h`, with an attribute `c#CLUSTER` that says when something is due
//! that is done now and then, and `s#CLUSTER` and `w#CLUSTER` since when and why it gives no answer.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ebb_protocol::engine::Timestamp;

use super::attribute::{ItemReader, number, text};
use super::{DynamoTable, key};
use crate::ops::{OrphanScans, OutageRecord, RelayOutages, StoreResult};

/// The key of the one item.
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
        // A write that was sent again because its answer was lost is refused: that round is left out.
        self.update_if(ITEM, request).await
    }
}

#[async_trait]
impl RelayOutages for DynamoTable {
    async fn read_outages(&self) -> StoreResult<BTreeMap<String, OutageRecord>> {
        let Some(item) = self.get(ITEM.0, ITEM.1).await? else { return Ok(BTreeMap::new()) };
        let reader = ItemReader::new("GetItem", &item);
        let clusters = item.keys().filter_map(|name| key::outage_cluster(name));
        let noted = clusters.map(|cluster| {
            let (since, why) = key::outage_attributes(cluster);
            let noted = OutageRecord { since: reader.time(&since)?, reason: reader.text(&why)?.to_owned() };
            Ok((cluster.to_owned(), noted))
        });
        noted.collect()
    }

    async fn begin_outage(&self, cluster: &str, since: Timestamp, why: &str) -> StoreResult<bool> {
        let (at, reason) = key::outage_attributes(cluster);
        let request = self
            .client
            .update_item()
            .update_expression("SET #s = :s, #w = :w")
            .condition_expression("attribute_not_exists(#s)")
            .expression_attribute_names("#s", at)
            .expression_attribute_names("#w", reason)
            .expression_attribute_values(":s", number(since.0))
            .expression_attribute_values(":w", text(why));
        self.update_if(ITEM, request).await
    }

    async fn end_outage(&self, cluster: &str) -> StoreResult<bool> {
        let (at, reason) = key::outage_attributes(cluster);
        let request = self
            .client
            .update_item()
            .update_expression("REMOVE #s, #w")
            .condition_expression("attribute_exists(#s)")
            .expression_attribute_names("#s", at)
            .expression_attribute_names("#w", reason);
        self.update_if(ITEM, request).await
    }
}
