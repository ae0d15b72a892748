//! Slots of a plugin, connection, source or owner: `slots#KIND#NAME` / `h`. `hs` is the set of their holders. Each holder is
//! also the name of an attribute with the end of its slot.

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::Timestamp;

use super::{ItemReader, Store, key, number, text};
use crate::item_table::AttributeChange::{Add, Delete, Remove, Set};
use crate::{StoreResult, UpdateImage, WriteCondition, WriteExpression, WriteOutcome};

const HOLDERS: &str = "hs";

/// Gives slots and takes them back (`UpdateItem`).
impl Store {
    /// Gives `holder` one of `slots` slots until `until`, or extends its slot. A slot that has ended at `now` is free. Returns
    /// false if none is, and the holders of the slots in use, with their ends.
    pub async fn take_slot(
        &self,
        cap: (&str, &str),
        holder: &str,
        (slots, now, until): (u32, Timestamp, Timestamp),
    ) -> StoreResult<(bool, Vec<(String, Timestamp)>)> {
        let partition = key::slots(cap);
        let is_free = WriteExpression::when(WriteCondition::Any(vec![
            WriteCondition::absent(HOLDERS),
            WriteCondition::Contains(HOLDERS.to_owned(), text(holder)),
            WriteCondition::SizeBelow(HOLDERS.to_owned(), slots.into()),
        ]));
        let own = AttributeValue::Ss(vec![holder.to_owned()]);
        let expression = is_free.with([(HOLDERS, Add(own)), (holder, Set(number(until.0)))]);
        let outcome = self.table.update((&partition, key::HEAD), expression, UpdateImage::After).await?;
        let (WriteOutcome::Written(item) | WriteOutcome::Refused(item)) = &outcome;
        let reader = ItemReader::new("UpdateItem", item);
        let holders = reader.texts(HOLDERS)?;
        let end = |holder: &String| reader.time_if_any(holder).ok().flatten().unwrap_or(Timestamp(u64::MAX));
        let held = holders.iter().map(|holder| (holder.clone(), end(holder)));
        let (ended, used): (Vec<_>, Vec<_>) = held.partition(|(_, end)| *end <= now);
        let is_free = !outcome.is_written() && used.len() < slots as usize;
        let Some((ended, _)) = ended.into_iter().next().filter(|_| is_free) else {
            return Ok((outcome.is_written(), used));
        };
        let rest = holders.iter().filter(|holder| **holder != ended).map(String::as_str);
        let members = AttributeValue::Ss(rest.chain([holder]).map(str::to_owned).collect());
        let mut is_same = WriteExpression::when(WriteCondition::AtMost(ended.clone(), now.0));
        is_same.conditions.push(WriteCondition::equal(HOLDERS, AttributeValue::Ss(holders.to_vec())));
        let expression =
            is_same.with([(HOLDERS, Set(members)), (holder, Set(number(until.0))), (ended.as_str(), Remove)]);
        Ok((self.table.update_if((&partition, key::HEAD), expression).await?, used))
    }

    /// Takes back the slot of `holder`, if it has one, or only one with this end.
    pub async fn release_slot(&self, cap: (&str, &str), holder: &str, end: Option<Timestamp>) -> StoreResult<()> {
        let mut is_held = WriteExpression::when(WriteCondition::Contains(HOLDERS.to_owned(), text(holder)));
        is_held.conditions.extend(end.map(|end| WriteCondition::equal(holder, number(end.0))));
        let own = AttributeValue::Ss(vec![holder.to_owned()]);
        let expression = is_held.with([(HOLDERS, Delete(own)), (holder, Remove)]);
        self.table.update_if((&key::slots(cap), key::HEAD), expression).await.map(drop)
    }
}
