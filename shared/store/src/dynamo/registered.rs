//! Registered clusters: `registered` / NAME. The cluster is JSON in `b`, and the version is in `tv`. All are in one
//! partition, so that one query reads them.

use super::attribute::{Item, ItemReader, item, json, number, text};
use super::key;
use super::store::Store;
use super::target::has_version;
use crate::items::ClusterItem;
use crate::ops::StoreResult;

fn read_cluster(item: &Item) -> StoreResult<ClusterItem> {
    let reader = ItemReader::new("Query", item);
    let cluster: ClusterItem = reader.json("b")?;
    Ok(ClusterItem { version: reader.number("tv")?, ..cluster })
}

/// Reads and writes registered clusters (`Query`, `PutItem`, `DeleteItem`).
impl Store {
    /// Returns all clusters by name, strongly consistent. Unreadable ones are skipped and logged.
    pub async fn list_clusters(&self) -> StoreResult<Vec<ClusterItem>> {
        let (least, greatest) = key::CLUSTER_NAMES;
        let items = self.table.range(key::REGISTERED, least, greatest).await?;
        // One unreadable cluster must not hide the others.
        let readable = |item: &Item| {
            read_cluster(item)
                .inspect_err(|error| tracing::error!(name = ?item.get("sk"), %error, "a cluster is skipped"))
                .ok()
        };
        Ok(items.iter().filter_map(readable).collect())
    }

    /// Writes a cluster. Returns false, and writes nothing, if the item does not have the version `seen`, or exists
    /// although none was seen. A repetition of the same write returns true.
    pub async fn put_cluster(&self, cluster: &ClusterItem, seen: Option<u64>) -> StoreResult<bool> {
        let attributes = item([
            ("pk", text(key::REGISTERED)),
            ("sk", text(&cluster.name)),
            ("b", json(cluster)?),
            ("tv", number(cluster.version)),
        ]);
        self.table.put_once(attributes, has_version(seen)).await
    }

    /// Deletes a cluster. Returns false if it does not exist.
    pub async fn delete_cluster(&self, name: &str) -> StoreResult<bool> {
        Ok(self.table.take(key::REGISTERED, name).await?.is_some())
    }
}
