//! The table of one machine: DynamoDB's operations on a SQLite file.
//!
//! All writes pass one thread, which commits those that wait together. A write is answered after the commit of its
//! group. Reads see committed writes only, and use another connection, on the thread of their caller.

mod last_change;
mod row_writes;
mod sqlite_error;
mod stored_item;
pub(super) mod write_queue;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ebb_store::evaluate::{self, read_units};
use ebb_store::item_table::{
    ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemWrite, Projection, QueryRange, TableResponse,
    TransactionOutcome, WriteOutcome,
};
use ebb_store::{Item, ItemTable, StoreResult, item_size};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Params, ffi};

use self::last_change::{ChangeCount, ChangeRecord};
use self::sqlite_error::{failed, is_broken_item, is_damaged_file};
use self::stored_item::StoredRow;
use self::write_queue::WriteQueue;
use super::{EmbeddedError, StateDurability};
use crate::files::{self, StateFileError};

/// The version of the file's form, in its `user_version`.
const FORM: i64 = 3;
/// The time for which a connection waits for another process, such as a backup.
const BUSY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The indexes contain the keys of the table, so that a query of an index reads nothing else.
///
/// `digest` is the exclusive or of the checksums of all rows. It shows that a row is missing, or an old one is back.
const SCHEMA: &str = include_str!("table/schema.sql");

/// A table in a file. It is closed when it is dropped.
#[derive(Debug)]
pub struct EmbeddedTable {
    reader: Mutex<Connection>,
    queue: WriteQueue,
    _folder: Option<tempfile::TempDir>,
}

impl EmbeddedTable {
    /// Opens the table in the folder `state`. Creates both if they are missing.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written, or the thread of the writes cannot be started. Returns one,
    /// and has changed nothing, if the table is damaged, lacks changes, or is not a table of this version.
    pub fn open(state: &Path, durability: StateDurability) -> Result<Self, EmbeddedError> {
        let file = Self::file(state);
        let failed = |error| refused(&file, error);
        let (is_new, accepted) = check(state, &file)?;
        files::private_folder(&state.join("table"))?;
        let writer = writer(&file, durability).map_err(failed)?;
        let id: u64 = rand::random();
        if is_new {
            // A table without the file would be refused after a crash.
            ChangeRecord::create(state, &ChangeCount { id, changes: 0 })?;
            let first = format!("INSERT INTO state VALUES ({}, 0, 0)", id.cast_signed());
            let new = format!("BEGIN; {SCHEMA}; {first}; PRAGMA user_version = {FORM}; COMMIT");
            writer.execute_batch(&new).map_err(failed)?;
        } else if let Some(digest) = accepted {
            // Another copy may have the former id.
            writer.execute("UPDATE state SET id = ?1, digest = ?2", (id.cast_signed(), digest)).map_err(failed)?;
        }
        let record = ChangeRecord::create(state, &ChangeCount::read(&writer).map_err(failed)?)?;
        let reader = reader(&file).map_err(failed)?;
        let queue = WriteQueue::start(writer, Some(record)).map_err(|error| refused(&file, error))?;
        Ok(Self { queue, reader: Mutex::new(reader), _folder: None })
    }

    pub fn file(state: &Path) -> PathBuf {
        state.join("table/table.sqlite")
    }

    /// Returns a table in a temporary folder, which is removed with the table.
    ///
    /// # Errors
    /// Returns an error if the temporary folder of the machine cannot be written.
    pub fn temporary() -> Result<Self, EmbeddedError> {
        let folder = tempfile::tempdir().map_err(|error| StateFileError::io(&std::env::temp_dir(), error))?;
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
            let mut statement = connection.prepare_cached("SELECT pk, sk, item, sum FROM items ORDER BY pk, sk")?;
            statement.query_map([], stored_item::read)?.collect()
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

/// Reads all pages, indexes and rows. Returns the count, the stored digest and that of the rows, or `None` if the file
/// has no content. Changes nothing: a refused table keeps its log.
fn inspect(file: &Path) -> rusqlite::Result<Option<(ChangeCount, i64, i64)>> {
    if file.metadata().map_or(true, |found| found.len() == 0) {
        return Ok(None);
    }
    let connection = Connection::open(file)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let failure = |code, reason: String| rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(reason));
    let problem: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if problem != "ok" {
        return Err(failure(ffi::SQLITE_CORRUPT, problem));
    }
    if connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))? {
        return Ok(None);
    }
    let form: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if form != FORM {
        let reason = format!(
            "its form is {form}, and this version of ebb has {FORM}. Start the version that wrote it, delete the \
             sandboxes there, and then remove the folder, or choose another folder with --state"
        );
        return Err(failure(ffi::SQLITE_ERROR, reason));
    }
    let stored = connection.query_row("SELECT digest FROM state", [], |row| row.get(0))?;
    Ok(Some((ChangeCount::read(&connection)?, stored, stored_item::digest(&connection)?)))
}

/// Refuses a table that is damaged or lacks changes, because it would hide what exists. Returns true for a new table,
/// and the digest of a table whose lost changes a person has given up.
fn check(state: &Path, file: &Path) -> Result<(bool, Option<i64>), EmbeddedError> {
    let found = inspect(file).map_err(|error| match is_broken_item(&error) || is_damaged_file(&error) {
        true => EmbeddedError::Damaged { file: file.to_owned(), reason: error.to_string() },
        // For example a full disk, or the lock of another process.
        false => refused(file, error),
    })?;
    let (count, stored, rows) = found.map_or((None, 0, 0), |(count, stored, rows)| (Some(count), stored, rows));
    let lacks = last_change::expected(state, count.as_ref())?;
    let is_new = count.is_none();
    let (expected, difference) = match lacks {
        None if stored == rows => return Ok((is_new, None)),
        None => ("all rows".to_owned(), "a missing or old one".to_owned()),
        Some(text) if text == "any" && !is_new => {
            tracing::warn!(file = %file.display(), "the table may lack writes, and a person has accepted it");
            return Ok((is_new, Some(rows)));
        }
        Some(text) => (text, count.map_or_else(|| "none".to_owned(), |count| count.text().trim().to_owned())),
    };
    let way_out = match is_new {
        true => "To begin without a target, remove the folder".to_owned(),
        false => format!("To go on with what was found, run `echo any >{}`", last_change::path(state).display()),
    };
    let reason = format!(
        "it lacks acknowledged writes: expected {expected}, found {difference}. A file in {} was lost, changed or \
         replaced, or a power failure lost the last writes. Put back a copy of the whole folder. {way_out}: what lost \
         targets have created stays, and has to be removed by hand",
        state.display(),
    );
    Err(refused(file, reason))
}

fn refused(file: &Path, reason: impl Display) -> EmbeddedError {
    EmbeddedError::Refused { what: format!("table in {}", file.display()), reason: reason.to_string() }
}

pub(super) fn writer(file: &Path, durability: StateDurability) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    // SQLite opens a file that it cannot write for reading.
    if connection.is_readonly("main")? {
        let reason = "this user cannot write the file. Change its owner or mode, or the options of its file system";
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_READONLY), Some(reason.to_owned())));
    }
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch(match durability {
        StateDurability::Process => "PRAGMA synchronous = NORMAL",
        // On macOS, the disk keeps its cache without the last two.
        StateDurability::Full => "PRAGMA synchronous = FULL; PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1",
    })?;
    connection
        .execute_batch("PRAGMA cache_size = -8192; PRAGMA wal_autocheckpoint = 4000; PRAGMA secure_delete = 1")?;
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

type QueryPage = TableResponse<ItemPage>;

/// Returns a page of the items of a statement with the columns `pk`, `sk`, `item` and `sum`.
fn items(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    query: &ItemQuery,
) -> rusqlite::Result<QueryPage> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| {
        if query.keeps_damaged { Ok(stored_item::read_any(row)?.0) } else { stored_item::read(row) }
    })?;
    evaluate::page(query, rows)
}

/// The largest key, for a range without an end. Keys have no such character.
const LAST: &str = "\u{10ffff}";

fn page(connection: &Connection, query: &ItemQuery, from: Option<&ItemKey>, due: i64) -> rusqlite::Result<QueryPage> {
    let (after_pk, after_sk) = from.map_or(("", ""), |key| (key.partition.as_str(), key.sort.as_str()));
    match &query.range {
        QueryRange::Partition { partition, sort } => {
            let (least, greatest) = sort.as_ref().map_or(("", LAST), |(least, greatest)| (least, greatest));
            let sql = "SELECT pk, sk, item, sum FROM items WHERE pk = ?1 AND sk BETWEEN ?2 AND ?3 AND sk > ?4 \
                       ORDER BY sk";
            items(connection, sql, (partition, least, greatest, after_sk), query)
        }
        QueryRange::Due { shard, until } => {
            let sql = "SELECT pk, sk, json_object('g', json_object('N', cast(g AS TEXT)), 'due', \
                       json_object('N', cast(due AS TEXT))), NULL FROM items WHERE g = ?1 AND due <= ?2 \
                       AND (due, pk, sk) > (?3, ?4, ?5) ORDER BY due, pk, sk";
            items(connection, sql, (shard, stored_item::signed(*until), due, after_pk, after_sk), query)
        }
        QueryRange::List { list, partitions } => {
            let (least, greatest) = partitions.as_ref().map_or(("", LAST), |(least, greatest)| (least, greatest));
            let sql = "SELECT pk, sk, json_object('l', json_object('S', l)), NULL FROM items WHERE l = ?1 \
                       AND pk BETWEEN ?2 AND ?3 AND (pk, sk) > (?4, ?5) ORDER BY pk, sk";
            items(connection, sql, (list, least, greatest, after_pk, after_sk), query)
        }
    }
}

#[async_trait]
impl ItemTable for EmbeddedTable {
    async fn get(&self, key: ItemKey) -> StoreResult<TableResponse<Option<Item>>> {
        let found = self.read("GetItem", |connection| StoredRow::find(connection, &key))?;
        let value = found.map(|row| row.item);
        Ok(TableResponse { units: read_units(value.as_ref().map_or(0, item_size), true), value })
    }

    async fn get_batch(&self, keys: Vec<ItemKey>, attributes: Projection) -> StoreResult<TableResponse<ItemBatch>> {
        self.read("BatchGetItem", |connection| {
            evaluate::batch(keys, attributes, |key| Ok(StoredRow::find_any(connection, key)?.map(|row| row.item)))
        })
    }

    async fn query(&self, query: &ItemQuery, from: Option<Item>) -> StoreResult<TableResponse<ItemPage>> {
        let due = from.as_ref().and_then(|item| item.get("due")?.as_n().ok()?.parse().ok()).unwrap_or(i64::MIN);
        let from = from.as_ref().and_then(ItemKey::of);
        self.read("Query", |connection| page(connection, query, from.as_ref(), due))
    }

    async fn write(&self, write: &ItemWrite) -> StoreResult<TableResponse<WriteOutcome>> {
        let write = write.clone();
        self.queue.send("write", move |connection| row_writes::write(connection, write)).await?
    }

    async fn transact(&self, puts: &[ItemPut], _: &str) -> StoreResult<TableResponse<TransactionOutcome>> {
        let puts = puts.to_vec();
        self.queue.send("TransactWriteItems", move |connection| row_writes::transact(connection, &puts)).await?
    }

    async fn delete_batch(&self, keys: Vec<ItemKey>) -> StoreResult<TableResponse<Vec<ItemKey>>> {
        let deletion = move |connection: &Connection| row_writes::delete_all(connection, &keys);
        let units = self.queue.send("BatchWriteItem", deletion).await?;
        Ok(TableResponse { units, value: Vec::new() })
    }
}
