//! Slots of a plugin or connection: `slots#KIND#NAME` / `h`. `hs` is the set of their holders. Each holder is also the name of
//! an attribute with the end of its slot.

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::Timestamp;

use super::{ItemReader, Store, key, number, text};
use crate::item_table::AttributeChange::{Add, Delete, Remove, Set};
use crate::{StoreResult, UpdateImage, WriteCondition, WriteExpression, WriteOutcome};

const HOLDERS: &str = "hs";

/// Gives slots and takes them back (`UpdateItem`).
impl Store {
    /// Gives `holder` one of `slots` slots until `until`, or extends its slot. A slot that has ended at `now` is free. Otherwise,
    /// returns the number of slots in use.
    pub async fn take_slot(
        &self,
        cap: (&str, &str),
        holder: &str,
        (slots, now, until): (u32, Timestamp, Timestamp),
    ) -> StoreResult<Result<(), usize>> {
        let partition = key::slots(cap);
        let is_free = WriteExpression::when(WriteCondition::Any(vec![
            WriteCondition::absent(HOLDERS),
            WriteCondition::Contains(HOLDERS.to_owned(), text(holder)),
            WriteCondition::SizeBelow(HOLDERS.to_owned(), slots.into()),
        ]));
        let own = AttributeValue::Ss(vec![holder.to_owned()]);
        let expression = is_free.with([(HOLDERS, Add(own)), (holder, Set(number(until.0)))]);
        let WriteOutcome::Refused(item) =
            self.table.update((&partition, key::HEAD), expression, UpdateImage::After).await?
        else {
            return Ok(Ok(()));
        };
        let reader = ItemReader::new("UpdateItem", &item);
        let holders = reader.texts(HOLDERS)?;
        let has_ended =
            |holder: &&String| reader.time_if_any(holder).is_ok_and(|end| end.is_some_and(|end| end <= now));
        let used = holders.iter().filter(|holder| !has_ended(holder)).count();
        let Some(ended) = holders.iter().find(has_ended).filter(|_| used < slots as usize) else {
            return Ok(Err(used));
        };
        let rest = holders.iter().filter(|holder| *holder != ended).map(String::as_str);
        let members = AttributeValue::Ss(rest.chain([holder]).map(str::to_owned).collect());
        let mut is_same = WriteExpression::when(WriteCondition::AtMost(ended.clone(), now.0));
        is_same.conditions.push(WriteCondition::equal(HOLDERS, AttributeValue::Ss(holders.to_vec())));
        let expression =
            is_same.with([(HOLDERS, Set(members)), (holder, Set(number(until.0))), (ended.as_str(), Remove)]);
        let is_taken = self.table.update_if((&partition, key::HEAD), expression).await?;
        Ok(if is_taken { Ok(()) } else { Err(used) })
    }

    /// Takes back the slot of `holder`, if it has one.
    pub async fn release_slot(&self, cap: (&str, &str), holder: &str) -> StoreResult<()> {
        let is_held = WriteExpression::when(WriteCondition::Contains(HOLDERS.to_owned(), text(holder)));
        let own = AttributeValue::Ss(vec![holder.to_owned()]);
        let expression = is_held.with([(HOLDERS, Delete(own)), (holder, Remove)]);
        self.table.update_if((&key::slots(cap), key::HEAD), expression).await.map(drop)
    }
}
