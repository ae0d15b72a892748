//! Published plugins: `v#NAME` / `VERSION`. A withdrawn version has `wd` and is not listed.
//!
//! Small documents are in the attribute `b`. Large ones are in the bucket, with their key in `o`. The object is
//! written before the item. Plans may be compressed, in `z`.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::Timestamp;

use super::{DOCUMENT_INLINE, ItemReader, Store, digest, item_at, key, number, text, unpack};
use crate::item_table::AttributeChange::{Remove, SetIfAbsent};
use crate::{ItemQuery, PluginItem, StoreError, StoreResult, TableSpec, WriteCondition, WriteExpression};

pub(crate) const PACKED: &str = "z";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyStorage {
    Inline(Vec<u8>),
    Object(String),
}

impl BodyStorage {
    pub(super) fn attribute(&self) -> (&'static str, AttributeValue) {
        self.attribute_named("b", "o")
    }

    /// Returns the attribute with the body or, under another name, the key of its object.
    pub(super) fn attribute_named<'a>(&self, inline: &'a str, object: &'a str) -> (&'a str, AttributeValue) {
        match self {
            Self::Inline(bytes) => (inline, AttributeValue::B(Blob::new(bytes.clone()))),
            Self::Object(key) => (object, text(key)),
        }
    }

    /// Reads what [`Self::attribute_named`] has written.
    pub(super) fn read_named(reader: ItemReader<'_>, inline: &str, object: &str) -> StoreResult<Option<Self>> {
        Ok(match (reader.bytes_if_any(inline)?, reader.text_if_any(object)?) {
            (Some(bytes), _) => Some(Self::Inline(bytes.to_vec())),
            (None, Some(key)) => Some(Self::Object(key.to_owned())),
            (None, None) => None,
        })
    }

    pub(super) fn read(reader: ItemReader<'_>) -> StoreResult<Self> {
        if let Some(body) = Self::read_named(reader, "b", "o")? {
            return Ok(body);
        }
        match reader.bytes_if_any(PACKED)? {
            Some(packed) => {
                let text = unpack(packed).ok_or_else(|| reader.broken(format!("{PACKED} is damaged")))?;
                Ok(Self::Inline(text))
            }
            None => Err(reader.broken(format!("neither b nor o nor {PACKED}"))),
        }
    }
}

const WITHDRAWN: &str = "wd";
/// Attributes of a plugin version without its document.
const FACTS: &[&str] = &["pk", "sk", "dia", "dg", "cr", WITHDRAWN];

fn read_plugin(reader: ItemReader<'_>) -> StoreResult<PluginItem> {
    let name = key::plugin_of(reader.text("pk")?);
    Ok(PluginItem {
        name: name.ok_or_else(|| reader.broken("the partition key is not that of a plugin"))?,
        version: reader.text("sk")?.to_owned(),
        dialect: reader.text("dia")?.to_owned(),
        digest: reader.digest("dg")?,
        document: String::new(),
        created: reader.time("cr")?,
        withdrawn: reader.time_if_any(WITHDRAWN)?,
    })
}

/// Reads, publishes and withdraws plugins (`GetItem`, `Query`, `BatchGetItem`, `PutItem`, `UpdateItem`; large documents in the
/// bucket).
impl Store {
    /// Returns a version, even if it is withdrawn.
    pub async fn get_plugin(&self, name: &str, version: &str) -> StoreResult<Option<PluginItem>> {
        let Some(item) = self.table.get(&key::plugin(name), version).await? else { return Ok(None) };
        let reader = ItemReader::new("GetItem", &item);
        let plugin = read_plugin(reader)?;
        let document = String::from_utf8(self.read_body(BodyStorage::read(reader)?).await?)
            .map_err(|error| reader.broken(format!("document: {error}")))?;
        Ok(Some(PluginItem { document, ..plugin }))
    }

    /// Returns all versions of a plugin, even withdrawn ones, without documents and in no order.
    pub async fn list_versions(&self, name: &str) -> StoreResult<Vec<PluginItem>> {
        if !key::can_be(&key::plugin(name), "") {
            return Ok(Vec::new());
        }
        let query = ItemQuery { attributes: Some(FACTS), ..ItemQuery::partition(key::plugin(name)) };
        let items = self.table.pages(&query, usize::MAX).await?;
        items.iter().map(|item| read_plugin(ItemReader::new("Query", item))).collect()
    }

    /// Returns all versions of all plugins that are not withdrawn, without documents.
    pub async fn list_plugins(&self) -> StoreResult<Vec<PluginItem>> {
        let mut plugins = self.table.list(TableSpec::LIST_PLUGINS, Some(FACTS), read_plugin).await?;
        // The index may be stale.
        plugins.retain(|plugin| plugin.withdrawn.is_none());
        plugins.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(plugins)
    }

    /// Publishes a version, or a withdrawn version again with the same document. Returns false if the version exists.
    pub async fn put_plugin(&self, plugin: &PluginItem) -> StoreResult<bool> {
        let document = plugin.document.as_bytes();
        let body = self.store_body(format!("plugins/{}", plugin.digest), document, DOCUMENT_INLINE).await?;
        let attributes = [
            (TableSpec::LIST, text(TableSpec::LIST_PLUGINS)),
            ("dia", text(&plugin.dialect)),
            ("dg", digest(&plugin.digest)),
            ("cr", number(plugin.created.0)),
            body.attribute(),
        ];
        let item = item_at((key::plugin(&plugin.name), &plugin.version), attributes);
        let is_own = WriteCondition::equal("dg", digest(&plugin.digest));
        let is_published_again = WriteCondition::All(vec![is_own, WriteCondition::present(WITHDRAWN)]);
        let is_free = WriteCondition::Any(vec![WriteCondition::absent("pk"), is_published_again]);
        self.table.put_once(item, WriteExpression::when(is_free)).await
    }

    /// Withdraws a version and keeps its document. A repetition keeps the first time. Returns false if the version
    /// does not exist.
    pub async fn withdraw_plugin(&self, name: &str, version: &str, at: Timestamp) -> StoreResult<bool> {
        if !key::can_be(&key::plugin(name), version) {
            return Ok(false);
        }
        let changes = [(WITHDRAWN, SetIfAbsent(number(at.0))), (TableSpec::LIST, Remove)];
        let expression = WriteExpression::when(WriteCondition::present("pk")).with(changes);
        self.table.update_if((&key::plugin(name), version), expression).await
    }

    /// Returns the place of a body: the item up to `inline` bytes, otherwise the object `key`, which is written here.
    pub(super) async fn store_body(&self, key: String, bytes: &[u8], inline: usize) -> StoreResult<BodyStorage> {
        if bytes.len() <= inline {
            return Ok(BodyStorage::Inline(bytes.to_vec()));
        }
        self.bucket.put_object(&key, bytes.to_vec()).await?;
        Ok(BodyStorage::Object(key))
    }

    /// Returns a body, or `None` if its object is missing.
    pub(super) async fn find_body(&self, body: BodyStorage) -> StoreResult<Option<Vec<u8>>> {
        match body {
            BodyStorage::Inline(bytes) => Ok(Some(bytes)),
            BodyStorage::Object(key) => self.bucket.get_object(&key).await,
        }
    }

    pub(super) async fn read_body(&self, body: BodyStorage) -> StoreResult<Vec<u8>> {
        let key = if let BodyStorage::Object(key) = &body { key.clone() } else { String::new() };
        let reason = || format!("object {key} is missing in the bucket");
        let bytes = self.find_body(body).await?;
        bytes.ok_or_else(|| StoreError::Broken { operation: "GetObject", reason: reason() })
    }
}
