//! Plans: `p#DIGEST` / `h`, their text in `b`, compressed in `z`, or in an object whose key is in `o`.
//!
//! `lv` is the set of lives that hold a plan, which several lives may share. A life holds its plan before a target names
//! it. A plan without `lv` stays for good: more than [`HOLDERS`] lives have shared it, or it was lost and restored.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use super::attribute::{Item, Reader, item_size, number, text};
use super::document::{Body, PACKED};
use super::expression::Expression;
use super::failure::failure;
use super::packed::pack;
use super::{Dynamo, key};
use crate::error::StoreError;
use crate::meter::Direction;
use crate::ops::Stored;
use crate::store::PLAN_INLINE;
use crate::table::TableSpec;

/// Lives that are counted; the item stays within one write unit.
const HOLDERS: usize = 16;
/// The set of lives that hold a plan.
const LIVES: &str = "lv";
/// Writes against those of others who hold or release the same plan.
const TRIES: usize = 8;

/// The outcome of a conditional write: the item after it, or as it is.
enum Changed {
    Yes(Item),
    No(Option<Item>),
}

/// The outcome of a released hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Others held the plan beside the life and still do, or it stays for good.
    Kept,
    /// Others hold the plan, and the life does not. They may have stored it after an earlier release had removed its item
    /// and not its object.
    Foreign,
    /// The plan was removed; its place.
    Removed(Body),
    /// There is no such plan. An earlier release may have removed its item and not its object.
    Missing,
}

fn one(life: &str) -> AttributeValue {
    AttributeValue::Ss(vec![life.to_owned()])
}

/// The attribute of a plan's text or object. A text is compressed where the item would need more than one write unit.
fn attribute(body: &Body) -> (String, AttributeValue) {
    match body {
        Body::Inline(text) if text.len() > PLAN_INLINE => {
            (PACKED.to_owned(), AttributeValue::B(Blob::new(pack(text))))
        }
        Body::Inline(_) | Body::Object(_) => body.attribute(),
    }
}

fn lives(operation: &'static str, item: &Item) -> Stored<Vec<String>> {
    Reader::new(operation, item).texts(LIVES).map(|lives| lives.to_vec())
}

fn contended(operation: &'static str) -> StoreError {
    StoreError::Retryable { operation, reason: "others hold and release the same plan".to_owned() }
}

impl Dynamo {
    /// Keeps a plan for good.
    pub(crate) async fn put_plan_item(&self, plan: &str, body: &Body) -> Stored<()> {
        let mut expression = Expression::default();
        let (name, value) = attribute(body);
        for attribute in ["b", "o", PACKED, LIVES] {
            expression.remove(attribute);
        }
        expression.set(&name, value);
        self.change_plan(plan, expression).await.map(drop)
    }

    /// Keeps a plan for `life`, and returns where it is: in `body`, or where it was before.
    pub(crate) async fn hold_plan_item(&self, plan: &str, body: &Body, life: &str) -> Stored<Body> {
        for _ in 0..TRIES {
            let mut hold = Expression::default();
            let (held, own, most) = (hold.name(LIVES), hold.value(text(life)), hold.value(number(HOLDERS)));
            hold.require(format!(
                "(attribute_not_exists(pk) OR contains({held}, {own}) OR \
                 (attribute_exists({held}) AND size({held}) < {most}))"
            ));
            let (name, value) = attribute(body);
            match body {
                Body::Inline(_) => hold.set(&name, value),
                Body::Object(_) => hold.set_if_absent(&name, value),
            }
            hold.add(LIVES, one(life));
            let item = match self.change_plan(plan, hold).await? {
                Changed::Yes(item) => return Body::read(&Reader::new("UpdateItem", &item)),
                Changed::No(Some(item)) => item,
                Changed::No(None) => continue,
            };
            if lives("UpdateItem", &item)?.is_empty() {
                return Body::read(&Reader::new("UpdateItem", &item));
            }
            let mut share = Expression::default();
            let (held, most) = (share.name(LIVES), share.value(number(HOLDERS)));
            share.require(format!("attribute_exists({held}) AND size({held}) >= {most}"));
            share.remove(LIVES);
            if let Changed::Yes(item) = self.change_plan(plan, share).await? {
                return Body::read(&Reader::new("UpdateItem", &item));
            }
        }
        Err(contended("UpdateItem"))
    }

    pub(crate) async fn get_plan_item(&self, plan: &str) -> Stored<Option<Body>> {
        let item = self.get(&key::plan(plan), key::HEAD).await?;
        item.map(|item| Body::read(&Reader::new("GetItem", &item))).transpose()
    }

    /// Ends the hold of `life`.
    pub(crate) async fn release_plan_item(&self, plan: &str, life: &str) -> Stored<Release> {
        for _ in 0..TRIES {
            let item = match self.delete_plan_of(plan, life).await? {
                Changed::Yes(item) => {
                    return Body::read(&Reader::new("DeleteItem", &item)).map(Release::Removed);
                }
                Changed::No(None) => return Ok(Release::Missing),
                Changed::No(Some(item)) => item,
            };
            let holders = lives("DeleteItem", &item)?;
            if !holders.iter().any(|of| of == life) {
                return Ok(if holders.is_empty() { Release::Kept } else { Release::Foreign });
            }
            let mut release = Expression::default();
            let (held, own, one_life) =
                (release.name(LIVES), release.value(text(life)), release.value(number(1)));
            release.require(format!("contains({held}, {own}) AND size({held}) > {one_life}"));
            release.delete(LIVES, one(life));
            if let Changed::Yes(_) = self.change_plan(plan, release).await? {
                return Ok(Release::Kept);
            }
        }
        Err(contended("DeleteItem"))
    }

    async fn change_plan(&self, plan: &str, expression: Expression) -> Stored<Changed> {
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, text(key::plan(plan)))
            .key(TableSpec::SORT, text(key::HEAD))
            .set_condition_expression(expression.condition())
            .set_update_expression(expression.update())
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match request.send().await {
            Ok(answer) => {
                self.answered("UpdateItem", Direction::Write, answer.consumed_capacity.as_slice());
                let item = answer.attributes.unwrap_or_default();
                self.written(item_size(&item), 0);
                Ok(Changed::Yes(item))
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.answered("UpdateItem", Direction::Write, &[]);
                let item = match error.into_err() {
                    UpdateItemError::ConditionalCheckFailedException(refused) => refused.item,
                    _ => None,
                };
                self.refused(item.as_ref().map_or(0, item_size));
                Ok(Changed::No(item))
            }
            Err(error) => Err(failure("UpdateItem", &error)),
        }
    }

    /// Removes a plan that only `life` holds.
    async fn delete_plan_of(&self, plan: &str, life: &str) -> Stored<Changed> {
        let mut expression = Expression::default();
        expression.require_equal(LIVES, one(life));
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key(TableSpec::PARTITION, text(key::plan(plan)))
            .key(TableSpec::SORT, text(key::HEAD))
            .set_condition_expression(expression.condition())
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .set_return_consumed_capacity(self.report());
        match request.send().await {
            Ok(answer) => {
                self.answered("DeleteItem", Direction::Write, answer.consumed_capacity.as_slice());
                let item = answer.attributes.unwrap_or_default();
                self.written(item_size(&item), 0);
                Ok(Changed::Yes(item))
            }
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                self.answered("DeleteItem", Direction::Write, &[]);
                let item = match error.into_err() {
                    DeleteItemError::ConditionalCheckFailedException(refused) => refused.item,
                    _ => None,
                };
                self.refused(item.as_ref().map_or(0, item_size));
                Ok(Changed::No(item))
            }
            Err(error) => Err(failure("DeleteItem", &error)),
        }
    }
}
