//! Rows of the table. The attributes are JSON as in requests of DynamoDB, so that people can read them with `sqlite3`.
//! Attributes of indexes have columns too.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use ebb_store::Item;
use ebb_store::item_table::ItemKey;
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::{Deserialize, Serialize};

use super::sqlite_error::is_broken_item;

/// The value of an attribute, by the name of its type in DynamoDB.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum StoredValue<'a> {
    S(Cow<'a, str>),
    N(Cow<'a, str>),
    /// In base64.
    B(String),
    Bool(bool),
    Ss(Cow<'a, [String]>),
}

impl<'a> StoredValue<'a> {
    fn of(value: &'a AttributeValue) -> Result<Self, String> {
        Ok(match value {
            AttributeValue::S(text) => Self::S(text.into()),
            AttributeValue::N(number) => Self::N(number.into()),
            AttributeValue::B(bytes) => Self::B(BASE64_STANDARD.encode(bytes)),
            AttributeValue::Bool(value) => Self::Bool(*value),
            AttributeValue::Ss(texts) => Self::Ss(texts.into()),
            other => return Err(format!("one machine does not store the value {other:?}")),
        })
    }

    fn value(self) -> Result<AttributeValue, base64::DecodeError> {
        Ok(match self {
            Self::S(text) => AttributeValue::S(text.into_owned()),
            Self::N(number) => AttributeValue::N(number.into_owned()),
            Self::B(bytes) => AttributeValue::B(Blob::new(BASE64_STANDARD.decode(bytes)?)),
            Self::Bool(value) => AttributeValue::Bool(value),
            Self::Ss(texts) => AttributeValue::Ss(texts.into_owned()),
        })
    }
}

/// Returns the attributes of an item without its key.
fn encoded(item: &Item) -> Result<String, String> {
    let attributes = item.iter().filter(|(name, _)| !matches!(name.as_str(), "pk" | "sk"));
    let attributes = attributes.map(|(name, value)| Ok((name.as_str(), StoredValue::of(value)?)));
    let attributes: BTreeMap<&str, StoredValue<'_>> = attributes.collect::<Result<_, String>>()?;
    serde_json::to_string(&attributes).map_err(|error| error.to_string())
}

/// Returns the item with a key and the attributes that [`encoded`] has written.
fn decoded(key: ItemKey, attributes: &[u8]) -> Result<Item, Box<dyn Error + Send + Sync>> {
    let mut item = key.into_item();
    for (name, value) in serde_json::from_slice::<BTreeMap<String, StoredValue<'_>>>(attributes)? {
        item.insert(name, value.value()?);
    }
    Ok(item)
}

/// Returns the checksum of a row, by FNV-1a: a change of one byte always changes it.
fn checksum(key: &ItemKey, item: &[u8]) -> i64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for part in [key.partition.as_bytes(), b"\0", key.sort.as_bytes(), b"\0", item] {
        for byte in part {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    sum.cast_signed()
}

/// Returns the exclusive or of the checksums of all rows. Logs the rows that differ from their own.
pub(super) fn digest(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare("SELECT pk, sk, item, sum FROM items")?;
    let mut rows = statement.query([])?;
    let mut digest = 0;
    while let Some(row) = rows.next()? {
        read_any(row)?;
        digest ^= row.get::<_, i64>(3)?;
    }
    Ok(digest)
}

/// Reads an item from the columns `pk`, `sk`, its attributes and its checksum, which is `NULL` in a row of an index.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Item> {
    let (key, text) = (key(row)?, row.get_ref(2)?.as_bytes()?);
    let damaged = |reason| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, reason);
    if row.get::<_, Option<i64>>(3)?.is_some_and(|sum| sum != checksum(&key, text)) {
        return Err(damaged("the row differs from its checksum".into()));
    }
    decoded(key, text).map_err(damaged)
}

fn key(row: &Row<'_>) -> rusqlite::Result<ItemKey> {
    Ok(ItemKey::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?))
}

/// Reads an item as [`read`] does. If its attributes cannot be decoded, returns its key and the error.
pub(super) fn read_any(row: &Row<'_>) -> rusqlite::Result<(Item, Option<rusqlite::Error>)> {
    match read(row) {
        Err(error) if is_broken_item(&error) => {
            let key = key(row)?;
            tracing::error!(%error, partition = key.partition, sort = key.sort, "cannot decode an item of the table");
            Ok((key.into_item(), Some(error)))
        }
        read => Ok((read?, None)),
    }
}

/// SQLite has no larger number, and no time is later.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The columns of indexes: `g`, `due`, `l` and `ttl`.
type IndexColumns = [Value; 4];

fn index_columns(item: &Item) -> IndexColumns {
    ["g", "due", "l", "ttl"].map(|name| match item.get(name) {
        Some(AttributeValue::N(number)) => number.parse().map_or(Value::Null, |number| Value::Integer(signed(number))),
        Some(AttributeValue::S(text)) => Value::Text(text.clone()),
        _ => Value::Null,
    })
}

pub(super) struct EncodedItem {
    text: String,
    columns: IndexColumns,
}

impl EncodedItem {
    /// # Errors
    /// Returns [`rusqlite::Error::ToSqlConversionFailure`] if an attribute has a type that no row stores.
    pub(super) fn of(item: &Item) -> rusqlite::Result<Self> {
        let text = encoded(item).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(Self { text, columns: index_columns(item) })
    }
}

pub(super) struct StoredRow {
    number: i64,
    /// Its key only, if it is damaged.
    pub(super) item: Item,
    damage: Option<rusqlite::Error>,
}

impl StoredRow {
    /// # Errors
    /// Returns an error if the item cannot be decoded.
    pub(super) fn find(connection: &Connection, key: &ItemKey) -> rusqlite::Result<Option<Self>> {
        match Self::find_any(connection, key)? {
            Some(Self { damage: Some(error), .. }) => Err(error),
            found => Ok(found),
        }
    }

    /// Finds an item whose attributes are not needed.
    pub(super) fn find_any(connection: &Connection, key: &ItemKey) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT pk, sk, item, sum, rowid FROM items WHERE pk = ?1 AND sk = ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let found = |row: &Row<'_>| {
            let (item, damage) = read_any(row)?;
            Ok(Self { number: row.get(4)?, item, damage })
        };
        statement.query_row((&key.partition, &key.sort), found).optional()
    }

    /// Writes `item` in the place of `before`. Index entries that do not change are not written.
    pub(super) fn replace(
        connection: &Connection,
        key: &ItemKey,
        before: Option<&Self>,
        item: EncodedItem,
    ) -> rusqlite::Result<()> {
        let EncodedItem { text, columns } = item;
        let sum = checksum(key, text.as_bytes());
        match before {
            Some(before) if before.damage.is_none() && index_columns(&before.item) == columns => {
                let sql = "UPDATE items SET item = ?2, sum = ?3 WHERE rowid = ?1";
                connection.prepare_cached(sql)?.execute((before.number, text, sum))?;
            }
            Some(before) => {
                let sql = "UPDATE items SET item = ?2, sum = ?3, g = ?4, due = ?5, l = ?6, ttl = ?7 WHERE rowid = ?1";
                let [g, due, l, ttl] = columns;
                connection.prepare_cached(sql)?.execute((before.number, text, sum, g, due, l, ttl))?;
            }
            None => {
                let sql =
                    "INSERT INTO items (pk, sk, item, sum, g, due, l, ttl) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let [g, due, l, ttl] = columns;
                connection.prepare_cached(sql)?.execute((&key.partition, &key.sort, text, sum, g, due, l, ttl))?;
            }
        }
        Ok(())
    }

    pub(super) fn delete(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.prepare_cached("DELETE FROM items WHERE rowid = ?1")?.execute([self.number]).map(drop)
    }
}

/// Deletes at most `limit` items that expired before `now`, in seconds since 1970.
pub(super) fn delete_expired(connection: &Connection, now: i64, limit: usize) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM items WHERE rowid IN (SELECT rowid FROM items WHERE ttl < ?1 LIMIT ?2)";
    connection.prepare_cached(sql)?.execute((now, limit))
}
