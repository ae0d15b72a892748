//! Sources: `s#NAME` / `h`. The document is in `b`.

use async_trait::async_trait;

use super::attribute::{Item, ItemReader, item, number, text};
use super::key;
use crate::items::SourceItem;
use crate::ops::{SourceStore, StoreResult};
use crate::store::Store;
use crate::table::TableSpec;

fn read_source(operation: &'static str, item: &Item) -> StoreResult<SourceItem> {
    let reader = ItemReader::new(operation, item);
    Ok(SourceItem {
        name: reader.text("n")?.to_owned(),
        document: reader.text("b")?.to_owned(),
        changed: reader.time("cr")?,
    })
}

#[async_trait]
impl SourceStore for Store {
    async fn get_source(&self, name: &str) -> StoreResult<Option<SourceItem>> {
        let item = self.dynamo.get(&key::source(name), key::HEAD).await?;
        item.map(|item| read_source("GetItem", &item)).transpose()
    }

    async fn list_sources(&self) -> StoreResult<Vec<SourceItem>> {
        let query = self.dynamo.list_query(TableSpec::LIST_SOURCES).key_condition_expression("#l = :l");
        let keys = self.dynamo.pages(query, usize::MAX).await?;
        let items = self.dynamo.batch_get(&keys, None).await?;
        let mut sources =
            items.iter().map(|item| read_source("BatchGetItem", item)).collect::<StoreResult<Vec<_>>>()?;
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sources)
    }

    async fn put_source(&self, source: &SourceItem) -> StoreResult<()> {
        let item = item([
            ("pk", text(key::source(&source.name))),
            ("sk", text(key::HEAD)),
            (TableSpec::LIST, text(TableSpec::LIST_SOURCES)),
            ("n", text(&source.name)),
            ("cr", number(source.changed.0)),
            ("b", text(&source.document)),
        ]);
        self.dynamo.put(item).await
    }

    async fn delete_source(&self, name: &str) -> StoreResult<bool> {
        Ok(self.dynamo.take(key::source(name), key::HEAD).await?.is_some())
    }
}
