//! Builds the expressions of conditional writes. Every attribute gets a placeholder, because DynamoDB reserves
//! hundreds of words and adds to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;

use super::attribute::Item;

#[derive(Default)]
pub(super) struct WriteExpression {
    /// Placeholders by attribute.
    names: HashMap<String, String>,
    values: Item,
    conditions: Vec<String>,
    /// Assignments by attribute. The last one counts.
    set: BTreeMap<String, String>,
    remove: BTreeSet<String>,
    add: BTreeMap<String, String>,
    delete: BTreeMap<String, String>,
}

impl WriteExpression {
    /// Returns the placeholder of an attribute.
    pub(super) fn name(&mut self, attribute: &str) -> String {
        let next = self.names.len();
        self.names.entry(attribute.to_owned()).or_insert_with(|| format!("#{next}")).clone()
    }

    /// Returns the placeholder of a value.
    pub(super) fn value(&mut self, value: AttributeValue) -> String {
        let placeholder = format!(":{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }

    /// Adds a condition. All conditions must hold.
    pub(super) fn require(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    /// Requires `attribute = value`.
    pub(super) fn require_equal(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.require(format!("{name} = {value}"));
    }

    /// Requires that the attribute exists.
    pub(super) fn require_present(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.require(format!("attribute_exists({name})"));
    }

    /// Requires that the attribute does not exist.
    pub(super) fn require_absent(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.require(format!("attribute_not_exists({name})"));
    }

    pub(super) fn set(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.remove.remove(&name);
        self.set.insert(name, value);
    }

    pub(super) fn set_if_absent(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.set.insert(name.clone(), format!("if_not_exists({name}, {value})"));
    }

    pub(super) fn remove(&mut self, attribute: &str) {
        let name = self.name(attribute);
        self.set.remove(&name);
        self.remove.insert(name);
    }

    pub(super) fn add(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.add.insert(name, value);
    }

    pub(super) fn delete(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.delete.insert(name, value);
    }

    pub(super) fn condition(&self) -> Option<String> {
        (!self.conditions.is_empty()).then(|| self.conditions.join(" AND "))
    }

    pub(super) fn update(&self) -> Option<String> {
        let list = |word: &str, parts: Vec<String>| match parts.is_empty() {
            true => None,
            false => Some(format!("{word} {}", parts.join(", "))),
        };
        let pairs = |map: &BTreeMap<String, String>, between: &str| {
            map.iter().map(|(name, value)| format!("{name}{between}{value}")).collect()
        };
        let sections = [
            list("SET", pairs(&self.set, " = ")),
            list("REMOVE", self.remove.iter().cloned().collect()),
            list("ADD", pairs(&self.add, " ")),
            list("DELETE", pairs(&self.delete, " ")),
        ];
        let sections: Vec<String> = sections.into_iter().flatten().collect();
        (!sections.is_empty()).then(|| sections.join(" "))
    }

    /// Returns the placeholders of attributes, or `None` if there are none. DynamoDB rejects unused ones.
    pub(super) fn names(&self) -> Option<HashMap<String, String>> {
        let names: HashMap<_, _> =
            self.names.iter().map(|(name, placeholder)| (placeholder.clone(), name.clone())).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Returns the placeholders of values, without those of overwritten assignments.
    pub(super) fn values(&self) -> Option<Item> {
        let text = [self.condition(), self.update()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let used: BTreeSet<&str> = text
            .split(|c: char| !(c == ':' || c.is_ascii_alphanumeric()))
            .filter(|word| word.starts_with(':'))
            .collect();
        let values: Item = self
            .values
            .iter()
            .filter(|(name, _)| used.contains(name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        (!values.is_empty()).then_some(values)
    }
}
