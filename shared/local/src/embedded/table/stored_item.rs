//! Rows of the table. The attributes are JSON as in requests of DynamoDB, so that people can read them with `sqlite3`.
//! Attributes of indexes have columns too.

use std::fmt;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use ebb_store::Item;
use ebb_store::item_table::ItemKey;
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, OptionalExtension as _, Row};
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The value of an attribute, by the name of its type in DynamoDB.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum StoredValue {
    S(String),
    N(String),
    /// In base64.
    B(String),
    Bool(bool),
    Ss(Vec<String>),
    L(Vec<Self>),
}

impl StoredValue {
    fn value(self) -> Result<AttributeValue, base64::DecodeError> {
        Ok(match self {
            Self::S(text) => AttributeValue::S(text),
            Self::N(number) => AttributeValue::N(number),
            Self::B(bytes) => AttributeValue::B(Blob::new(BASE64_STANDARD.decode(bytes)?)),
            Self::Bool(value) => AttributeValue::Bool(value),
            Self::Ss(texts) => AttributeValue::Ss(texts),
            Self::L(values) => AttributeValue::L(values.into_iter().map(Self::value).collect::<Result<_, _>>()?),
        })
    }
}

/// Writes the value that [`StoredValue`] reads.
struct ValueToStore<'a>(&'a AttributeValue);

impl Serialize for ValueToStore<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut one = serializer.serialize_map(Some(1))?;
        match self.0 {
            AttributeValue::S(text) => one.serialize_entry("S", text)?,
            AttributeValue::N(number) => one.serialize_entry("N", number)?,
            AttributeValue::B(bytes) => one.serialize_entry("B", &BASE64_STANDARD.encode(bytes))?,
            AttributeValue::Bool(value) => one.serialize_entry("BOOL", value)?,
            AttributeValue::Ss(texts) => one.serialize_entry("SS", texts)?,
            AttributeValue::L(values) => {
                one.serialize_entry("L", &values.iter().map(ValueToStore).collect::<Vec<_>>())?
            }
            other => return Err(S::Error::custom(format!("one machine does not store the value {other:?}"))),
        }
        one.end()
    }
}

/// Writes the attributes of an item without its key.
struct ItemToStore<'a>(&'a Item);

impl Serialize for ItemToStore<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attributes = self.0.iter().filter(|(name, _)| !matches!(name.as_str(), "pk" | "sk"));
        serializer.collect_map(attributes.map(|(name, value)| (name, ValueToStore(value))))
    }
}

/// Adds the attributes that [`ItemToStore`] has written.
struct StoredAttributes(Item);

impl<'de> DeserializeSeed<'de> for StoredAttributes {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StoredAttributes {
    type Value = Item;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the attributes of an item")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut attributes: A) -> Result<Item, A::Error> {
        while let Some((name, value)) = attributes.next_entry::<String, StoredValue>()? {
            self.0.insert(name, value.value().map_err(A::Error::custom)?);
        }
        Ok(self.0)
    }
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
    let read = StoredAttributes(key.into_item()).deserialize(&mut serde_json::Deserializer::from_slice(text));
    read.map_err(|error| damaged(error.into()))
}

fn key(row: &Row<'_>) -> rusqlite::Result<ItemKey> {
    Ok(ItemKey::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?))
}

/// Reads an item as [`read`] does. If its attributes cannot be decoded, returns its key and the error.
pub(super) fn read_any(row: &Row<'_>) -> rusqlite::Result<(Item, Option<rusqlite::Error>)> {
    match read(row) {
        Err(error) if super::is_broken_item(&error) => {
            let key = key(row)?;
            tracing::error!(%error, partition = key.partition, sort = key.sort, "cannot decode an item of the table");
            Ok((key.into_item(), Some(error)))
        }
        read => Ok((read?, None)),
    }
}

/// The columns of indexes: `g`, `due`, `l` and `ttl`.
#[derive(PartialEq)]
struct IndexColumns([Value; 4]);

impl IndexColumns {
    fn of(item: &Item) -> Self {
        Self(["g", "due", "l", "ttl"].map(|name| match item.get(name) {
            Some(AttributeValue::N(number)) => {
                number.parse().map_or(Value::Null, |number| Value::Integer(super::signed(number)))
            }
            Some(AttributeValue::S(text)) => Value::Text(text.clone()),
            _ => Value::Null,
        }))
    }
}

/// An item as its row stores it.
pub(super) struct EncodedItem {
    text: String,
    columns: IndexColumns,
}

impl EncodedItem {
    /// # Errors
    /// Returns [`rusqlite::Error::ToSqlConversionFailure`] if an attribute has a type that no row stores.
    pub(super) fn of(item: &Item) -> rusqlite::Result<Self> {
        let text = serde_json::to_string(&ItemToStore(item));
        let text = text.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(Self { text, columns: IndexColumns::of(item) })
    }
}

/// An item with the number of its row.
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
            Some(before) if before.damage.is_none() && IndexColumns::of(&before.item) == columns => {
                let mut statement =
                    connection.prepare_cached("UPDATE items SET item = ?2, sum = ?3 WHERE rowid = ?1")?;
                statement.execute((before.number, text, sum))?;
            }
            Some(before) => {
                let sql = "UPDATE items SET item = ?2, sum = ?3, g = ?4, due = ?5, l = ?6, ttl = ?7 WHERE rowid = ?1";
                let IndexColumns([g, due, l, ttl]) = columns;
                connection.prepare_cached(sql)?.execute((before.number, text, sum, g, due, l, ttl))?;
            }
            None => {
                let sql =
                    "INSERT INTO items (pk, sk, item, sum, g, due, l, ttl) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let IndexColumns([g, due, l, ttl]) = columns;
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
pub(in crate::embedded) fn delete_expired(connection: &Connection, now: i64, limit: usize) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM items WHERE rowid IN (SELECT rowid FROM items WHERE ttl < ?1 LIMIT ?2)";
    connection.prepare_cached(sql)?.execute((now, limit))
}
