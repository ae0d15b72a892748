//! The table of one machine: DynamoDB's operations on a SQLite file.
//!
//! All writes pass one thread, which commits those that wait together. A write is answered after the commit of its
//! group. Reads see committed writes only, and use another connection, on the thread of their caller.

mod capacity;
mod evaluate;
pub(super) mod stored_item;
pub(super) mod write_queue;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ebb_store::item_table::{
    ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemWrite, QueryRange, TableError, TableResponse,
    TransactionOutcome, WriteOutcome,
};
use ebb_store::{Item, ItemTable, StoreError, StoreResult, item_size};
use rusqlite::{Connection, ErrorCode, OpenFlags, Params, ffi};

use self::stored_item::StoredRow;
use self::write_queue::WriteQueue;
use super::{EmbeddedError, StateDurability};
use crate::files;

/// The version of the file's form, in its `user_version`.
const FORM: i64 = 1;
/// A page of a query ends after the item that passes this number of bytes.
const PAGE_BYTES: usize = 1 << 20;
/// A batch of reads ends after the item that passes this number of bytes.
const BATCH_BYTES: usize = 16 << 20;
/// The time for which a connection waits for another process, such as a backup.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The indexes contain the keys of the table, so that a query of an index reads nothing else.
const SCHEMA: &str = "
    CREATE TABLE items (
        pk TEXT NOT NULL, sk TEXT NOT NULL, g INTEGER, due INTEGER, l TEXT, ttl INTEGER, item TEXT NOT NULL
    );
    CREATE UNIQUE INDEX items_by_key ON items (pk, sk);
    CREATE INDEX items_by_due ON items (g, due, pk, sk) WHERE g IS NOT NULL AND due IS NOT NULL;
    CREATE INDEX items_by_list ON items (l, pk, sk) WHERE l IS NOT NULL;
    CREATE INDEX items_by_ttl ON items (ttl) WHERE ttl IS NOT NULL;
";

/// Returns the statements that set the durability of a connection.
fn durability_settings(durability: StateDurability) -> &'static str {
    match durability {
        StateDurability::Process => "PRAGMA synchronous = NORMAL",
        // On macOS, the disk keeps its cache without the last two.
        StateDurability::Full => "PRAGMA synchronous = FULL; PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1",
    }
}

/// A table in a file. It is closed when it is dropped.
#[derive(Debug)]
pub struct EmbeddedTable {
    reader: Mutex<Connection>,
    queue: WriteQueue,
    /// The folder of a temporary table.
    _folder: Option<tempfile::TempDir>,
}

impl EmbeddedTable {
    /// Opens the table in `folder`. Creates both if they are missing.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written, its file is damaged or is not a table of this version, or the
    /// thread of the writes cannot be started.
    pub fn open(folder: &Path, durability: StateDurability) -> Result<Self, EmbeddedError> {
        files::private_folder(folder)?;
        let file = Self::file(folder);
        check(&file)?;
        let writer = writer(&file, durability).map_err(|error| refused(&file, error))?;
        let form: i64 =
            writer.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(|error| refused(&file, error))?;
        if form != FORM {
            let reason = format!(
                "its form is {form}, and this version of ebb has {FORM}. Start the version that wrote it, delete the \
                 sandboxes there, and then remove the folder, or choose another folder with --state"
            );
            return Err(refused(&file, reason));
        }
        let reader = reader(&file).map_err(|error| refused(&file, error))?;
        let queue = WriteQueue::start(writer)
            .map_err(|source| EmbeddedError::Io { what: "the thread of the table".to_owned(), source })?;
        Ok(Self { queue, reader: Mutex::new(reader), _folder: None })
    }

    /// Returns the file of the table in `folder`.
    pub fn file(folder: &Path) -> PathBuf {
        folder.join("table.sqlite")
    }

    /// Returns a table in a temporary folder, which is removed with the table.
    ///
    /// # Errors
    /// Returns an error if the temporary folder of the machine cannot be written.
    pub fn temporary() -> Result<Self, EmbeddedError> {
        let what = || "a temporary folder".to_owned();
        let folder = tempfile::tempdir().map_err(|source| EmbeddedError::Io { what: what(), source })?;
        let table = Self::open(folder.path(), StateDurability::Process)?;
        Ok(Self { _folder: Some(folder), ..table })
    }

    /// Waits for the writes that were sent, and moves the log into the file. Later writes fail.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Returns all items, ordered by key.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn scan(&self) -> StoreResult<Vec<Item>> {
        self.read("Scan", |connection| {
            let mut statement = connection.prepare_cached("SELECT pk, sk, item FROM items ORDER BY pk, sk")?;
            statement.query_map([], |row| stored_item::read(row, 2))?.collect()
        })
    }

    /// Reads on the thread of the caller, because a read takes less time than a change of threads.
    fn read<T>(
        &self,
        operation: &'static str,
        action: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> StoreResult<T> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        action(&reader).map_err(|error| failed(operation, &error))
    }
}

/// A problem of the file can pass, for example a full disk. An item or a page that is damaged stays.
fn failed(operation: &'static str, error: &rusqlite::Error) -> StoreError {
    let reason = error.to_string();
    match is_broken_item(error) || is_damaged_file(error) {
        true => StoreError::Broken { operation, reason },
        false => StoreError::Retryable { operation, reason },
    }
}

/// Returns true if an item cannot be decoded or encoded.
fn is_broken_item(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(error, E::FromSqlConversionFailure(..) | E::ToSqlConversionFailure(_) | E::InvalidColumnType(..))
}

fn is_damaged_file(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Checks every page of the file, if it exists. Otherwise a damaged page would fail the requests that read it.
fn check(file: &Path) -> Result<(), EmbeddedError> {
    let is_empty = file.metadata().map_or(true, |found| found.len() == 0);
    if is_empty {
        return Ok(());
    }
    let damaged = |reason: String| EmbeddedError::Damaged { file: file.to_owned(), reason };
    let first_problem = || -> rusqlite::Result<String> {
        Connection::open(file)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match first_problem() {
        Ok(result) if result == "ok" => Ok(()),
        Ok(problem) => Err(damaged(problem)),
        Err(error) if is_damaged_file(&error) => Err(damaged(error.to_string())),
        // For example a full disk, or the lock of another process.
        Err(error) => Err(refused(file, error)),
    }
}

fn refused(file: &Path, reason: impl Display) -> EmbeddedError {
    EmbeddedError::Refused { what: format!("table in {}", file.display()), reason: reason.to_string() }
}

/// Opens the connection of the writes. Creates the schema in an empty file.
pub(super) fn writer(file: &Path, durability: StateDurability) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    // SQLite opens a file that it cannot write for reading.
    if connection.is_readonly("main")? {
        let reason = "this user cannot write the file. Change its owner or mode, or the options of its file system";
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), Some(reason.to_owned())));
    }
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let is_empty: bool = connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch(durability_settings(durability))?;
    connection.execute_batch("PRAGMA cache_size = -8192; PRAGMA wal_autocheckpoint = 4000; PRAGMA secure_delete = 1")?;
    if is_empty {
        connection.execute_batch(&format!("BEGIN; {SCHEMA}; PRAGMA user_version = {FORM}; COMMIT"))?;
    }
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn reader(file: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA cache_size = -4096")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Returns the items of a statement with the columns `pk`, `sk` and `item`. The page ends after the item that passes
/// [`PAGE_BYTES`], or at the limit of the query.
fn items(connection: &Connection, sql: &str, parameters: impl Params, query: &ItemQuery) -> rusqlite::Result<ReadPage> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut page = ReadPage::default();
    while let Some(row) = rows.next()? {
        if query.limit == Some(page.items.len()) || page.bytes > PAGE_BYTES {
            page.is_cut = true;
            break;
        }
        let item = if query.keeps_damaged { stored_item::read_any(row, 2)?.0 } else { stored_item::read(row, 2)? };
        page.bytes += item_size(&item);
        page.items.push(item);
    }
    Ok(page)
}

#[derive(Default)]
struct ReadPage {
    items: Vec<Item>,
    bytes: usize,
    /// True if there are further items.
    is_cut: bool,
}

/// Keeps the attributes that a request asks for.
fn project(item: &mut Item, attributes: Option<&[&str]>) {
    if let Some(attributes) = attributes {
        item.retain(|name, _| attributes.contains(&name.as_str()));
    }
}

/// The largest key, for a range without an end. Keys have no such character.
const LAST: &str = "\u{10ffff}";

fn page(connection: &Connection, query: &ItemQuery, from: Option<&ItemKey>, due: i64) -> rusqlite::Result<ReadPage> {
    let (after_pk, after_sk) = from.map_or(("", ""), |key| (key.partition.as_str(), key.sort.as_str()));
    match &query.range {
        QueryRange::Partition { partition, sort } => {
            let (least, greatest) = sort.as_ref().map_or(("", LAST), |(least, greatest)| (least, greatest));
            let sql = "SELECT pk, sk, item FROM items WHERE pk = ?1 AND sk BETWEEN ?2 AND ?3 AND sk > ?4 ORDER BY sk";
            items(connection, sql, (partition, least, greatest, after_sk), query)
        }
        QueryRange::Due { shard, until } => {
            let sql = "SELECT pk, sk, json_object('g', json_object('N', cast(g AS TEXT)), 'due', \
                       json_object('N', cast(due AS TEXT))) FROM items WHERE g = ?1 AND due <= ?2 \
                       AND (due, pk, sk) > (?3, ?4, ?5) ORDER BY due, pk, sk";
            items(connection, sql, (shard, signed(*until), due, after_pk, after_sk), query)
        }
        QueryRange::List { list, partitions } => {
            let (least, greatest) = partitions.as_ref().map_or(("", LAST), |(least, greatest)| (least, greatest));
            let sql = "SELECT pk, sk, json_object('l', json_object('S', l)) FROM items WHERE l = ?1 \
                       AND pk BETWEEN ?2 AND ?3 AND (pk, sk) > (?4, ?5) ORDER BY pk, sk";
            items(connection, sql, (list, least, greatest, after_pk, after_sk), query)
        }
    }
}

/// SQLite has no larger number, and no time is later.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[async_trait]
impl ItemTable for EmbeddedTable {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        let found = self.read("GetItem", |connection| StoredRow::find(connection, &key))?;
        let value = found.map(|row| row.item);
        Ok(TableResponse { units: capacity::read(value.as_ref().map_or(0, item_size), true), value })
    }

    async fn get_batch(
        &self,
        keys: Vec<ItemKey>,
        attributes: Option<&'static [&'static str]>,
    ) -> StoreResult<TableResponse<ItemBatch>> {
        let (mut value, mut units, mut bytes) = (ItemBatch::default(), 0.0, 0);
        self.read("BatchGetItem", |connection| {
            for key in keys {
                if bytes > BATCH_BYTES {
                    value.unprocessed.push(key);
                    continue;
                }
                let found = StoredRow::find_any(connection, &key)?;
                let size = found.as_ref().map_or(0, |row| item_size(&row.item));
                (bytes, units) = (bytes + size, units + capacity::read(size, true));
                value.items.extend(found.map(|row| row.item));
            }
            Ok(())
        })?;
        value.items.iter_mut().for_each(|item| project(item, attributes));
        Ok(TableResponse { units, value })
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        let due = from.as_ref().and_then(|item| item.get("due")?.as_n().ok()?.parse().ok()).unwrap_or(i64::MIN);
        let from = from.as_ref().and_then(ItemKey::of);
        let found = self.read("Query", |connection| page(connection, query, from.as_ref(), due))?;
        let units = capacity::read(found.bytes, query.is_consistent);
        let mut page = ItemPage { next: None, items: found.items };
        if let (true, Some(last)) = (found.is_cut, page.items.last()) {
            let mut next = last.clone();
            project(&mut next, Some(&["pk", "sk", "g", "due", "l"]));
            page.next = Some(next);
        }
        page.items.iter_mut().for_each(|item| project(item, query.attributes));
        Ok(TableResponse { units, value: page })
    }

    async fn write(&self, write: &ItemWrite) -> Result<TableResponse<WriteOutcome>, TableError> {
        let write = write.clone();
        Ok(self.queue.send("write", move |connection| evaluate::write(connection, write)).await??)
    }

    async fn transact(&self, puts: &[ItemPut], _: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let puts = puts.to_vec();
        self.queue.send("TransactWriteItems", move |connection| evaluate::transact(connection, puts)).await?
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        let deletion = move |connection: &Connection| evaluate::delete_all(connection, &keys);
        let units = self.queue.send("BatchWriteItem", deletion).await?;
        Ok(TableResponse { units, value: Vec::new() })
    }
}
