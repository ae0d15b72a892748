//! Sources: `s#NAME` / `h`. Connections: `c#NAME` / `h`. Subscriptions: `n#NAME` / `h`.
//! Undelivered notifications: `f#ID` / `h`. The document is in `b`.

use super::{Item, ItemReader, Store, item_at, key, number, readable, text, ttl_attribute};
use crate::{ItemQuery, NamedDocument, NamedKind, QueryRange, StoreResult, TableSpec};

pub(super) fn read_document(reader: ItemReader<'_>) -> StoreResult<NamedDocument> {
    Ok(NamedDocument {
        name: reader.text("n")?.to_owned(),
        document: reader.text("b")?.to_owned(),
        changed: reader.time("cr")?,
    })
}

impl NamedKind {
    fn list(self) -> &'static str {
        match self {
            Self::Source => TableSpec::LIST_SOURCES,
            Self::Connection => TableSpec::LIST_CONNECTIONS,
            Self::Subscription => TableSpec::LIST_SUBSCRIPTIONS,
            Self::Undelivered => TableSpec::LIST_UNDELIVERED,
        }
    }
}

/// Reads documents (`GetItem`), lists those of a kind (`Query` on the list index, `BatchGetItem`), and writes them (`PutItem`,
/// `DeleteItem`).
impl Store {
    pub async fn get_document(&self, kind: NamedKind, name: &str) -> StoreResult<Option<NamedDocument>> {
        self.table.read(&key::document(kind, name), key::HEAD, read_document).await
    }

    /// Returns all documents of a kind by name. Unreadable ones are skipped and logged.
    pub async fn list_documents(&self, kind: NamedKind) -> StoreResult<Vec<NamedDocument>> {
        let keys = self.table.pages(&ItemQuery::list(kind.list()), usize::MAX).await?;
        self.read_documents(&keys).await
    }

    /// Returns at most `limit` notifications that were given up, by the beginning of their names: `SUBSCRIPTION/` or
    /// `SUBSCRIPTION/INSTANCE-`.
    pub async fn list_undelivered(&self, prefix: &str, limit: usize) -> StoreResult<Vec<NamedDocument>> {
        let keys = self.undelivered_keys(prefix, limit).await?;
        self.read_documents(&keys).await
    }

    /// Returns the number of notifications of a subscription that were given up, or `limit` if there are more.
    pub async fn count_undelivered(&self, subscription: &str, limit: usize) -> StoreResult<usize> {
        Ok(self.undelivered_keys(&format!("{subscription}/"), limit).await?.len())
    }

    async fn read_documents(&self, keys: &[Item]) -> StoreResult<Vec<NamedDocument>> {
        let mut documents = readable("BatchGetItem", &self.table.batch_get(keys, None).await?, read_document);
        documents.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(documents)
    }

    /// Returns the keys of at most `limit` notifications that were given up.
    async fn undelivered_keys(&self, prefix: &str, limit: usize) -> StoreResult<Vec<Item>> {
        let prefix = key::document(NamedKind::Undelivered, prefix);
        let list = TableSpec::LIST_UNDELIVERED.to_owned();
        // No key has this character, the last one.
        let partitions = Some((prefix.clone(), format!("{prefix}\u{10ffff}")));
        let query = ItemQuery { limit: Some(limit), ..ItemQuery::new(QueryRange::List { list, partitions }) };
        let mut keys = self.table.pages(&query, limit).await?;
        keys.truncate(limit);
        Ok(keys)
    }

    /// Creates or replaces a document.
    pub async fn put_document(&self, kind: NamedKind, document: &NamedDocument) -> StoreResult<()> {
        let attributes = [
            (TableSpec::LIST, Some(text(kind.list()))),
            ("n", Some(text(&document.name))),
            ("cr", Some(number(document.changed.0))),
            ("b", Some(text(&document.document))),
            (TableSpec::TTL, (kind == NamedKind::Undelivered).then(|| ttl_attribute(document.changed))),
        ];
        self.table.put(item_at((key::document(kind, &document.name), key::HEAD), attributes)).await
    }

    /// Deletes a document. Returns false if it does not exist.
    pub async fn delete_document(&self, kind: NamedKind, name: &str) -> StoreResult<bool> {
        Ok(self.table.take(&key::document(kind, name), key::HEAD).await?.is_some())
    }
}
