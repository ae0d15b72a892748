//! The effect of a write on an item, and the extent of a page or a batch, as DynamoDB has them. The tables of one process
//! call it, and store what it returns.

use std::collections::HashSet;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::{
    AttributeChange, BATCH_BYTES, Item, ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery, ItemWrite, MAX_ITEM_BYTES,
    PAGE_BYTES, StoreError, StoreResult, TableResponse, TableSpec, TransactionOutcome, UpdateImage, WriteAction,
    WriteCondition, WriteExpression, WriteOutcome, item_size,
};

/// What a table stores after a write.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemChange {
    /// A condition does not hold.
    Nothing,
    Removed,
    Replaced(Item),
}

/// Returns the change of an item by a write, and the response. `before` is the present item.
///
/// # Errors
/// Returns [`StoreError::Broken`] if the item is larger than [`MAX_ITEM_BYTES`].
pub fn write(before: Option<&Item>, write: ItemWrite) -> StoreResult<(ItemChange, TableResponse<WriteOutcome>)> {
    if !holds(&write.expression, before) {
        let shown = before.filter(|_| write.action != WriteAction::Delete);
        let value = WriteOutcome::Refused(shown.cloned().unwrap_or_default());
        return Ok((ItemChange::Nothing, TableResponse { units: 0.0, value }));
    }
    let image = || before.cloned().unwrap_or_default();
    let (change, returned) = match write.action {
        WriteAction::Delete => (ItemChange::Removed, image()),
        WriteAction::Put(item) => (ItemChange::Replaced(item), Item::new()),
        WriteAction::Update(returned) => {
            let after = updated(before, &write.key, write.expression);
            let returned = if returned == UpdateImage::After { after.clone() } else { image() };
            (ItemChange::Replaced(after), returned)
        }
    };
    let after = match &change {
        ItemChange::Replaced(item) => Some(item),
        ItemChange::Nothing | ItemChange::Removed => None,
    };
    after.map_or(Ok(()), |item| check_size("UpdateItem", item))?;
    let (own, entries) = write_units(before, after);
    Ok((change, TableResponse { units: own + entries, value: WriteOutcome::Written(returned) }))
}

/// Returns the keys of the puts of a transaction.
///
/// # Errors
/// Returns [`StoreError::Broken`] if an item has no key, or is larger than [`MAX_ITEM_BYTES`].
pub fn transaction_keys(puts: &[ItemPut]) -> StoreResult<Vec<ItemKey>> {
    const TRANSACT: &str = "TransactWriteItems";
    let broken = || StoreError::Broken { operation: TRANSACT, reason: "an item has no key".to_owned() };
    let key = |put: &ItemPut| {
        let key = ItemKey::of(&put.item).ok_or_else(broken)?;
        check_size(TRANSACT, &put.item).map(|()| key)
    };
    puts.iter().map(key).collect()
}

/// Returns the response to a transaction. `before` are the present items of its puts. All are replaced, or none.
pub fn transaction(puts: &[ItemPut], before: &[Option<&Item>]) -> TableResponse<TransactionOutcome> {
    let refused = puts.iter().zip(before).map(|(put, image)| {
        let is_refused = !holds(&put.expression, *image);
        is_refused.then(|| image.cloned().unwrap_or_default())
    });
    let refused: Vec<Option<Item>> = refused.collect();
    if refused.iter().any(Option::is_some) {
        return TableResponse { units: 0.0, value: TransactionOutcome::Refused(refused) };
    }
    // A transaction writes each item twice.
    let units = puts.iter().zip(before).map(|(put, image)| {
        let (own, entries) = write_units(*image, Some(&put.item));
        2.0 * own + entries
    });
    TableResponse { units: units.sum(), value: TransactionOutcome::Written }
}

/// Returns a page of the items of a range after its beginning, which `items` reads in order. An item behind the page may be
/// an error.
///
/// # Errors
/// Returns the first error of an item of the page.
pub fn page<E>(
    query: &ItemQuery,
    items: impl IntoIterator<Item = Result<Item, E>>,
) -> Result<TableResponse<ItemPage>, E> {
    let (mut page, mut bytes) = (ItemPage::default(), 0);
    for item in items {
        if query.limit == Some(page.items.len()) || bytes > PAGE_BYTES {
            page.next = page.items.last().cloned();
            break;
        }
        let item = item?;
        bytes += item_size(&item);
        page.items.push(item);
    }
    page.next.iter_mut().for_each(|next| project(next, Some(&NEXT)));
    page.items.iter_mut().for_each(|item| project(item, query.attributes));
    Ok(TableResponse { units: read_units(bytes, query.is_consistent), value: page })
}

/// Returns the items of these keys, which `read` reads.
///
/// # Errors
/// Returns the first error of `read`.
pub fn batch<E>(
    keys: Vec<ItemKey>,
    attributes: Option<&[&str]>,
    read: impl Fn(&ItemKey) -> Result<Option<Item>, E>,
) -> Result<TableResponse<ItemBatch>, E> {
    let (mut value, mut units, mut bytes) = (ItemBatch::default(), 0.0, 0);
    for key in keys {
        if bytes > BATCH_BYTES {
            value.unprocessed.push(key);
            continue;
        }
        let mut item = read(&key)?;
        let size = item.as_ref().map_or(0, item_size);
        (bytes, units) = (bytes + size, units + read_units(size, true));
        item.iter_mut().for_each(|item| project(item, attributes));
        value.items.extend(item);
    }
    Ok(TableResponse { units, value })
}

/// The attributes of a key after which a page begins.
const NEXT: [&str; 5] = [TableSpec::PARTITION, TableSpec::SORT, TableSpec::DUE_SHARD, TableSpec::DUE, TableSpec::LIST];

fn project(item: &mut Item, attributes: Option<&[&str]>) {
    if let Some(attributes) = attributes {
        item.retain(|name, _| attributes.contains(&name.as_str()));
    }
}

/// Returns the units of a read of so many bytes: 4 KiB of a strongly consistent read, half of it for another one.
pub fn read_units(bytes: usize, is_consistent: bool) -> f64 {
    let units = bytes.div_ceil(4 << 10).max(1) as f64;
    if is_consistent { units } else { units / 2.0 }
}

/// Returns the units of a write of an item, 1 KiB by the larger of both images, and those of its index entries, one for each
/// that is created or removed.
pub fn write_units(before: Option<&Item>, after: Option<&Item>) -> (f64, f64) {
    let bytes = [before, after].into_iter().flatten().map(item_size).max().unwrap_or(0);
    let entries = [&["g", "due"][..], &["l"]].map(|key| {
        let entry = |item: Option<&Item>| {
            let values = key.iter().map(|name| item?.get(*name).cloned()).collect::<Option<Vec<_>>>()?;
            Some((values, item.and_then(ItemKey::of)))
        };
        match (entry(before), entry(after)) {
            (old, new) if old == new => 0.0,
            (Some(_), Some(_)) => 2.0,
            _ => 1.0,
        }
    });
    (bytes.div_ceil(1 << 10).max(1) as f64, entries.iter().sum())
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
            value(name).and_then(|set| set.as_ss().ok()).is_some_and(|members| (members.len() as u64) < *bound)
        }
        WriteCondition::All(parts) => parts.iter().all(|part| condition_holds(part, item)),
        WriteCondition::Any(parts) => parts.iter().any(|part| condition_holds(part, item)),
    }
}

fn contains(set: Option<&AttributeValue>, member: &AttributeValue) -> bool {
    match (set, member) {
        (Some(AttributeValue::Ss(members)), AttributeValue::S(member)) => members.contains(member),
        _ => false,
    }
}

fn updated(before: Option<&Item>, key: &ItemKey, expression: WriteExpression) -> Item {
    let mut item = before.cloned().unwrap_or_else(|| key.clone().into_item());
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

/// Adds a number, or the members of a set of strings. The store has no other sets.
fn added(present: Option<AttributeValue>, value: AttributeValue) -> AttributeValue {
    match (present, value) {
        (Some(AttributeValue::N(present)), AttributeValue::N(more)) => {
            let number = |text: String| text.parse::<u64>().unwrap_or(0);
            AttributeValue::N(number(present).saturating_add(number(more)).to_string())
        }
        (Some(AttributeValue::Ss(mut members)), AttributeValue::Ss(more)) => {
            let known: HashSet<String> = members.iter().cloned().collect();
            members.extend(more.into_iter().filter(|member| !known.contains(member)));
            AttributeValue::Ss(members)
        }
        (_, value) => value,
    }
}

/// Deletes members of a set of strings. Returns `None` if none is left.
fn without(present: AttributeValue, deleted: &AttributeValue) -> Option<AttributeValue> {
    match (present, deleted) {
        (AttributeValue::Ss(mut members), AttributeValue::Ss(deleted)) => {
            members.retain(|member| !deleted.contains(member));
            (!members.is_empty()).then_some(AttributeValue::Ss(members))
        }
        (other, _) => Some(other),
    }
}
