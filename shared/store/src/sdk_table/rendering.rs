//! Renders the expressions of requests. Every attribute gets a placeholder, because DynamoDB reserves hundreds of words
//! and adds to them.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::dynamo::number;
use crate::{AttributeChange, Item, TableSpec, WriteCondition, WriteExpression};

#[derive(Default)]
pub(super) struct Placeholders<'a> {
    /// Attributes by the number of their placeholder.
    names: Vec<&'a str>,
    /// Values by the number of their placeholder.
    values: Vec<AttributeValue>,
}

impl<'a> Placeholders<'a> {
    fn name(&mut self, attribute: &'a str) -> String {
        let known = self.names.iter().position(|name| *name == attribute);
        let number = known.unwrap_or_else(|| {
            self.names.push(attribute);
            self.names.len() - 1
        });
        format!("#{number}")
    }

    fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":{}", self.values.len() - 1)
    }

    /// Returns the attributes by placeholder, or `None` if there are none.
    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        let names = self.names.iter().enumerate();
        let names: HashMap<_, _> = names.map(|(number, name)| (format!("#{number}"), (*name).to_owned())).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Returns the values by placeholder, or `None` if there are none.
    pub(super) fn values(&mut self) -> Option<Item> {
        let values = std::mem::take(&mut self.values).into_iter().enumerate();
        let values: Item = values.map(|(number, value)| (format!(":{number}"), value)).collect();
        (!values.is_empty()).then_some(values)
    }

    pub(super) fn projection(&mut self, attributes: &'a [&'a str]) -> String {
        attributes.iter().map(|attribute| self.name(attribute)).collect::<Vec<_>>().join(", ")
    }

    /// Renders the keys of one partition, between two sort keys or all.
    pub(super) fn key_range(
        &mut self,
        partition: &'a str,
        is: &str,
        sort: &'a str,
        between: Option<&(String, String)>,
    ) -> String {
        let mut text = format!("{} = {}", self.name(partition), self.value(AttributeValue::S(is.to_owned())));
        if let Some((least, greatest)) = between {
            let name = self.name(sort);
            let [least, greatest] = [least, greatest].map(|bound| self.value(AttributeValue::S(bound.clone())));
            text.push_str(&format!(" AND {name} BETWEEN {least} AND {greatest}"));
        }
        text
    }

    /// Renders the keys of an index shard that are due at `until`.
    pub(super) fn due(&mut self, shard: u8, until: u64) -> String {
        let [shard, until] = [u64::from(shard), until].map(|bound| self.value(number(bound)));
        format!("{} = {shard} AND {} <= {until}", self.name(TableSpec::DUE_SHARD), self.name(TableSpec::DUE))
    }

    pub(super) fn condition(&mut self, expression: &'a WriteExpression) -> Option<String> {
        (!expression.conditions.is_empty()).then(|| self.joined(&expression.conditions, " AND "))
    }

    fn joined(&mut self, conditions: &'a [WriteCondition], word: &str) -> String {
        conditions.iter().map(|condition| self.one(condition)).collect::<Vec<_>>().join(word)
    }

    fn one(&mut self, condition: &'a WriteCondition) -> String {
        match condition {
            WriteCondition::Present(name) => format!("attribute_exists({})", self.name(name)),
            WriteCondition::Absent(name) => format!("attribute_not_exists({})", self.name(name)),
            WriteCondition::Equal(name, value) => format!("{} = {}", self.name(name), self.value(value.clone())),
            WriteCondition::Above(name, bound) => format!("{} > {}", self.name(name), self.value(number(*bound))),
            WriteCondition::AtMost(name, bound) => format!("{} <= {}", self.name(name), self.value(number(*bound))),
            WriteCondition::Contains(name, value) => {
                format!("contains({}, {})", self.name(name), self.value(value.clone()))
            }
            WriteCondition::Lacks(name, value) => {
                format!("NOT contains({}, {})", self.name(name), self.value(value.clone()))
            }
            WriteCondition::SizeBelow(name, bound) => {
                format!("size({}) < {}", self.name(name), self.value(number(*bound)))
            }
            WriteCondition::All(parts) => format!("({})", self.joined(parts, " AND ")),
            WriteCondition::Any(parts) => format!("({})", self.joined(parts, " OR ")),
        }
    }

    /// Renders the changes of an update, or `None` if there are none.
    pub(super) fn update(&mut self, expression: &'a WriteExpression) -> Option<String> {
        let (mut set, mut remove, mut add, mut delete) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (attribute, change) in &expression.changes {
            let name = self.name(attribute);
            match change {
                AttributeChange::Set(value) => set.push(format!("{name} = {}", self.value(value.clone()))),
                AttributeChange::SetIfAbsent(value) => {
                    set.push(format!("{name} = if_not_exists({name}, {})", self.value(value.clone())));
                }
                AttributeChange::Remove => remove.push(name),
                AttributeChange::Add(value) => add.push(format!("{name} {}", self.value(value.clone()))),
                AttributeChange::Delete(value) => delete.push(format!("{name} {}", self.value(value.clone()))),
            }
        }
        let sections = [("SET", set), ("REMOVE", remove), ("ADD", add), ("DELETE", delete)];
        let sections = sections.into_iter().filter(|(_, parts)| !parts.is_empty());
        let sections: Vec<_> = sections.map(|(word, parts)| format!("{word} {}", parts.join(", "))).collect();
        (!sections.is_empty()).then(|| sections.join(" "))
    }
}
