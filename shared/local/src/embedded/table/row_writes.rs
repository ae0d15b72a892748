//! Writes the items of one request. The caller commits.
//!
//! A request reads and encodes all its items before it writes one. If that fails, the rest of the group is committed.

use ebb_store::evaluate::{self, ItemChange};
use ebb_store::item_table::{
    ItemKey, ItemPut, ItemWrite, TableResponse, TransactionOutcome, WriteAction, WriteOutcome,
};
use ebb_store::{Item, StoreResult};
use rusqlite::Connection;

use super::stored_item::{EncodedItem, StoredRow};

/// The result of a request, or the problem of the file that fails its group.
type RowResult<T> = rusqlite::Result<StoreResult<TableResponse<T>>>;

pub(super) fn write(connection: &Connection, write: ItemWrite) -> RowResult<WriteOutcome> {
    let key = write.key.clone();
    let is_update = matches!(write.action, WriteAction::Update(_));
    let before = match write.expression.conditions.is_empty() && !is_update {
        true => StoredRow::find_any(connection, &key)?,
        false => StoredRow::find(connection, &key)?,
    };
    let (change, response) = match evaluate::write(before.as_ref().map(|row| &row.item), write) {
        Ok(evaluated) => evaluated,
        Err(error) => return Ok(Err(error)),
    };
    match (change, &before) {
        (ItemChange::Removed, Some(row)) => row.delete(connection)?,
        (ItemChange::Replaced(item), _) => {
            StoredRow::replace(connection, &key, before.as_ref(), EncodedItem::of(&item)?)?;
        }
        (ItemChange::Nothing, _) | (ItemChange::Removed, None) => {}
    }
    Ok(Ok(response))
}

/// Writes all items, or none if a condition does not hold.
pub(super) fn transact(connection: &Connection, puts: &[ItemPut]) -> RowResult<TransactionOutcome> {
    let keys = match evaluate::transaction_keys(puts) {
        Ok(keys) => keys,
        Err(error) => return Ok(Err(error)),
    };
    let rows =
        keys.iter().zip(puts).map(|(key, put)| Ok((StoredRow::find(connection, key)?, EncodedItem::of(&put.item)?)));
    let rows: Vec<(Option<StoredRow>, EncodedItem)> = rows.collect::<rusqlite::Result<_>>()?;
    let before: Vec<Option<&Item>> = rows.iter().map(|(row, _)| row.as_ref().map(|row| &row.item)).collect();
    let response = evaluate::transaction(puts, &before);
    if response.value == TransactionOutcome::Written {
        for (key, (before, item)) in keys.iter().zip(rows) {
            StoredRow::replace(connection, key, before.as_ref(), item)?;
        }
    }
    Ok(Ok(response))
}

/// Deletes items and returns the consumed units.
pub(super) fn delete_all(connection: &Connection, keys: &[ItemKey]) -> rusqlite::Result<f64> {
    let found: Vec<Option<StoredRow>> =
        keys.iter().map(|key| StoredRow::find_any(connection, key)).collect::<rusqlite::Result<_>>()?;
    let mut units = 0.0;
    for row in found {
        let (own, entries) = evaluate::write_units(row.as_ref().map(|row| &row.item), None);
        units += own + entries;
        if let Some(row) = row {
            row.delete(connection)?;
        }
    }
    Ok(units)
}
