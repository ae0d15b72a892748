//! Lives that hold plugin versions: `use#NAME@VERSION` / `LIFE`, one item for each version that a life holds.
//!
//! The item is written before the target of its life and removed after the target is gone. A crash in between leaves
//! an item without a living target, never a living target without an item, so a reader compares with the target.

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_wire::id;
use futures::{StreamExt as _, TryStreamExt as _};

use super::attribute::{Item, Reader, number, text};
use super::{Dynamo, PARALLEL, key};
use crate::ops::{HolderEntry, PluginHolder, PluginHolders, Stored};

/// The largest sort key that is asked for; keys of lives have 16 characters of `[a-z2-7]`.
const LAST: &str = "z~";

fn holder_item(plugin: &str, life: &str, holder: &PluginHolder) -> Item {
    let mut item = Item::from([
        ("pk".to_owned(), text(key::holders(plugin))),
        ("sk".to_owned(), text(life)),
        ("k".to_owned(), text(&holder.kind)),
        ("n".to_owned(), text(&holder.name)),
        ("uid".to_owned(), text(&holder.uid)),
        ("cr".to_owned(), number(holder.since.0)),
        ("rs".to_owned(), AttributeValue::L(holder.resources.iter().map(text).collect())),
    ]);
    item.extend(holder.cluster.as_ref().map(|cluster| ("cl".to_owned(), text(cluster))));
    item
}

fn read_holder(item: &Item) -> Stored<PluginHolder> {
    let reader = Reader::new("Query", item);
    Ok(PluginHolder {
        kind: reader.text("k")?.to_owned(),
        name: reader.text("n")?.to_owned(),
        uid: reader.text("uid")?.to_owned(),
        since: reader.time("cr")?,
        resources: reader.text_list("rs")?,
        cluster: reader.text_if_any("cl")?.map(str::to_owned),
    })
}

/// Reads an entry. One that is damaged does not hide the others.
fn read_entry(item: &Item) -> Stored<HolderEntry> {
    let life = Reader::new("Query", item).text("sk")?.to_owned();
    Ok(HolderEntry { life, holder: read_holder(item).map_err(|error| error.to_string()) })
}

#[async_trait]
impl PluginHolders for Dynamo {
    async fn hold_plugins(&self, holders: &[(String, PluginHolder)]) -> Stored<()> {
        let items = holders.iter().map(|(plugin, holder)| {
            let life = id::life(&holder.kind, &holder.name, &holder.uid);
            holder_item(plugin, &life, holder)
        });
        let items: Vec<Item> = items.collect();
        let writes = futures::stream::iter(items).map(|item| self.put(item));
        writes.buffer_unordered(PARALLEL).try_collect().await
    }

    async fn release_plugins(&self, life: &str, plugins: &[String]) -> Stored<()> {
        let keys: Vec<String> = plugins.iter().map(|plugin| key::holders(plugin)).collect();
        let removals = futures::stream::iter(keys).map(|partition| self.delete(partition, life));
        removals.buffer_unordered(PARALLEL).try_collect().await
    }

    async fn list_holders(
        &self,
        plugin: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Stored<Vec<HolderEntry>> {
        let least = after.map_or_else(String::new, |life| format!("{life}!"));
        let least = if least.is_empty() { "!" } else { &least };
        let query = self.range_query(&key::holders(plugin), least, LAST);
        let query = query.limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let mut items = self.pages(query, limit).await?;
        items.truncate(limit);
        items.iter().map(read_entry).collect()
    }
}
