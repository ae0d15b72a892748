//! Evaluates conditions and changes, and writes the items of one request. The caller commits.
//!
//! A request reads and encodes all its items before it writes one. If that fails, the rest of the group is committed.

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_store::item_table::{
    AttributeChange, ItemKey, ItemPut, ItemWrite, MAX_ITEM_BYTES, PutRefusal, TableResponse, TransactionOutcome,
    UpdateImage, WriteAction, WriteCondition, WriteExpression, WriteOutcome,
};
use ebb_store::{Item, StoreError, StoreResult, item_size};
use rusqlite::Connection;

use super::capacity;
use super::stored_item::{EncodedItem, StoredRow};

/// The result of a request, or the problem of the file that fails its group.
type Evaluated<T> = rusqlite::Result<StoreResult<TableResponse<T>>>;

pub(super) fn write(connection: &Connection, write: ItemWrite) -> Evaluated<WriteOutcome> {
    let is_update = matches!(write.action, WriteAction::Update(_));
    let before = match write.expression.conditions.is_empty() && !is_update {
        true => StoredRow::find_any(connection, &write.key)?,
        false => StoredRow::find(connection, &write.key)?,
    };
    let image = before.as_ref().map(|row| &row.item);
    let respond = |units, value| Ok(Ok(TableResponse { units, value }));
    if !holds(&write.expression, image) {
        let shown = image.filter(|_| write.action != WriteAction::Delete);
        return respond(0.0, WriteOutcome::Refused(shown.cloned().unwrap_or_default()));
    }
    let (after, image_after) = match write.action {
        WriteAction::Delete => {
            if let Some(row) = &before {
                row.delete(connection)?;
            }
            let (own, entries) = capacity::write(image, None);
            return respond(own + entries, WriteOutcome::Written(image.cloned().unwrap_or_default()));
        }
        WriteAction::Put(item) => (item, None),
        WriteAction::Update(image) => (updated(before.as_ref(), &write.key, write.expression), Some(image)),
    };
    if let Err(error) = check_size("UpdateItem", &after) {
        return Ok(Err(error));
    }
    StoredRow::replace(connection, &write.key, before.as_ref(), EncodedItem::of(&after)?)?;
    let (own, entries) = capacity::write(image, Some(&after));
    let returned = match image_after {
        None => Item::new(),
        Some(UpdateImage::After) => after,
        Some(UpdateImage::Before) => before.map(|row| row.item).unwrap_or_default(),
    };
    respond(own + entries, WriteOutcome::Written(returned))
}

/// Writes all items, or none if a condition does not hold.
pub(super) fn transact(connection: &Connection, puts: Vec<ItemPut>) -> Evaluated<TransactionOutcome> {
    const TRANSACT: &str = "TransactWriteItems";
    let (mut found, mut refusals) = (Vec::new(), Vec::new());
    for put in &puts {
        let key = ItemKey::of(&put.item);
        let Some(key) = key else {
            let reason = "an item has no key".to_owned();
            return Ok(Err(StoreError::Broken { operation: TRANSACT, reason }));
        };
        if let Err(error) = check_size(TRANSACT, &put.item) {
            return Ok(Err(error));
        }
        let before = StoredRow::find(connection, &key)?;
        let image = before.as_ref().map(|row| &row.item);
        refusals.push(match holds(&put.expression, image) {
            true => PutRefusal { code: PutRefusal::NONE.to_owned(), item: None },
            false => PutRefusal { code: PutRefusal::CONDITION.to_owned(), item: image.cloned() },
        });
        found.push((key, before, EncodedItem::of(&put.item)?));
    }
    if refusals.iter().any(|refusal| refusal.code != PutRefusal::NONE) {
        return Ok(Ok(TableResponse { units: 0.0, value: TransactionOutcome::Cancelled(refusals) }));
    }
    let mut units = 0.0;
    for (put, (key, before, item)) in puts.iter().zip(found) {
        StoredRow::replace(connection, &key, before.as_ref(), item)?;
        let (own, entries) = capacity::write(before.as_ref().map(|row| &row.item), Some(&put.item));
        // A transaction writes each item twice.
        units += 2.0 * own + entries;
    }
    Ok(Ok(TableResponse { units, value: TransactionOutcome::Written }))
}

/// Deletes items and returns the consumed units.
pub(super) fn delete_all(connection: &Connection, keys: &[ItemKey]) -> rusqlite::Result<f64> {
    let found: Vec<Option<StoredRow>> =
        keys.iter().map(|key| StoredRow::find_any(connection, key)).collect::<rusqlite::Result<_>>()?;
    let mut units = 0.0;
    for row in found {
        let (own, entries) = capacity::write(row.as_ref().map(|row| &row.item), None);
        units += own + entries;
        if let Some(row) = row {
            row.delete(connection)?;
        }
    }
    Ok(units)
}

fn check_size(operation: &'static str, item: &Item) -> StoreResult<()> {
    if item_size(item) <= MAX_ITEM_BYTES {
        return Ok(());
    }
    let reason = format!("the item size has exceeded the maximum of {MAX_ITEM_BYTES} bytes: {}", item_size(item));
    Err(StoreError::Broken { operation, reason })
}

fn holds(expression: &WriteExpression, item: Option<&Item>) -> bool {
    expression.conditions.iter().all(|condition| condition_holds(condition, item))
}

fn condition_holds(condition: &WriteCondition, item: Option<&Item>) -> bool {
    let value = |name: &String| item.and_then(|item| item.get(name));
    let number = |name| value(name).and_then(|value| value.as_n().ok()?.parse::<u64>().ok());
    match condition {
        WriteCondition::Present(name) => value(name).is_some(),
        WriteCondition::Absent(name) => value(name).is_none(),
        WriteCondition::Equal(name, expected) => value(name) == Some(expected),
        WriteCondition::Above(name, bound) => number(name).is_some_and(|number| number > *bound),
        WriteCondition::AtMost(name, bound) => number(name).is_some_and(|number| number <= *bound),
        WriteCondition::Contains(name, member) => contains(value(name), member),
        WriteCondition::Lacks(name, member) => !contains(value(name), member),
        WriteCondition::SizeBelow(name, bound) => {
            value(name).and_then(members).is_some_and(|members| (members.len() as u64) < *bound)
        }
        WriteCondition::All(parts) => parts.iter().all(|part| condition_holds(part, item)),
        WriteCondition::Any(parts) => parts.iter().any(|part| condition_holds(part, item)),
    }
}

fn members(set: &AttributeValue) -> Option<&Vec<String>> {
    set.as_ns().or_else(|_| set.as_ss()).ok()
}

fn contains(set: Option<&AttributeValue>, member: &AttributeValue) -> bool {
    match (set, member) {
        (Some(AttributeValue::Ns(members)), AttributeValue::N(member))
        | (Some(AttributeValue::Ss(members)), AttributeValue::S(member)) => members.contains(member),
        _ => false,
    }
}

/// Returns the item after the changes.
fn updated(before: Option<&StoredRow>, key: &ItemKey, expression: WriteExpression) -> Item {
    let mut item = before.map_or_else(|| key.clone().into_item(), |row| row.item.clone());
    for (name, change) in expression.changes {
        let present = item.remove(&name);
        let changed = match change {
            AttributeChange::Set(value) => Some(value),
            AttributeChange::SetIfAbsent(value) => present.or(Some(value)),
            AttributeChange::Remove => None,
            AttributeChange::Add(value) => Some(added(present, value)),
            AttributeChange::Delete(value) => present.and_then(|present| without(present, &value)),
        };
        item.extend(changed.map(|value| (name, value)));
    }
    item
}

/// Adds a number, or the members of a set of the same type.
fn added(present: Option<AttributeValue>, value: AttributeValue) -> AttributeValue {
    let union = |mut members: Vec<String>, more: Vec<String>| {
        let new: Vec<String> = more.into_iter().filter(|member| !members.contains(member)).collect();
        members.extend(new);
        members
    };
    match (present, value) {
        (Some(AttributeValue::N(present)), AttributeValue::N(more)) => {
            let number = |text: String| text.parse::<u64>().unwrap_or(0);
            AttributeValue::N(number(present).saturating_add(number(more)).to_string())
        }
        (Some(AttributeValue::Ns(members)), AttributeValue::Ns(more)) => AttributeValue::Ns(union(members, more)),
        (Some(AttributeValue::Ss(members)), AttributeValue::Ss(more)) => AttributeValue::Ss(union(members, more)),
        (_, value) => value,
    }
}

/// Deletes members of a set. Returns `None` if none is left.
fn without(present: AttributeValue, deleted: &AttributeValue) -> Option<AttributeValue> {
    let deleted = members(deleted);
    let left = |members: Vec<String>| {
        let is_deleted = |member: &String| deleted.is_some_and(|deleted| deleted.contains(member));
        let left: Vec<String> = members.into_iter().filter(|member| !is_deleted(member)).collect();
        (!left.is_empty()).then_some(left)
    };
    match present {
        AttributeValue::Ns(members) => left(members).map(AttributeValue::Ns),
        AttributeValue::Ss(members) => left(members).map(AttributeValue::Ss),
        other => Some(other),
    }
}
