//! Encodes, decodes and sizes attribute values.

use std::str::FromStr;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use ebb_protocol::engine::Timestamp;
use serde_json::Value;

pub(crate) use crate::item_table::Item;
use crate::{ItemKey, StoreError, StoreResult};

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Returns those attributes that have a value.
pub(crate) fn item<Name: Into<String>, Value: Into<Option<AttributeValue>>>(
    attributes: impl IntoIterator<Item = (Name, Value)>,
) -> Item {
    attributes.into_iter().filter_map(|(name, value)| Some((name.into(), value.into()?))).collect()
}

pub(crate) fn item_at<Name: Into<String>, Value: Into<Option<AttributeValue>>>(
    (partition, sort): (impl Into<String>, &str),
    attributes: impl IntoIterator<Item = (Name, Value)>,
) -> Item {
    ItemKey::new(partition, sort).into_item().into_iter().chain(item(attributes)).collect()
}

/// Encodes `sha256:HEX` as 32 bytes, and any other digest as text.
pub(crate) fn digest(value: &str) -> AttributeValue {
    match hex_bytes(value) {
        Some(bytes) => AttributeValue::B(Blob::new(bytes)),
        None => text(value),
    }
}

fn hex_bytes(value: &str) -> Option<Vec<u8>> {
    // Upper case would be read as lower case.
    let hex = value.strip_prefix("sha256:").filter(|hex| !hex.contains(|one: char| one.is_ascii_uppercase()))?;
    hex::decode(hex).ok().filter(|bytes| bytes.len() == 32)
}

/// Reads attributes of an item. A missing or malformed attribute is [`StoreError::Broken`].
#[derive(Clone, Copy)]
pub(crate) struct ItemReader<'a> {
    operation: &'static str,
    pub(super) item: &'a Item,
}

impl<'a> ItemReader<'a> {
    pub(crate) fn new(operation: &'static str, item: &'a Item) -> Self {
        Self { operation, item }
    }

    pub(crate) fn broken(&self, reason: impl std::fmt::Display) -> StoreError {
        let part = |name| self.item.get(name).and_then(|value| value.as_s().ok()).map_or("?", String::as_str);
        let reason = format!("item {} / {}: {reason}", part("pk"), part("sk"));
        StoreError::Broken { operation: self.operation, reason }
    }

    pub(super) fn required<T>(&self, name: &str, value: Option<T>) -> StoreResult<T> {
        value.ok_or_else(|| self.broken(format!("attribute {name} is missing")))
    }

    pub(crate) fn text_if_any(&self, name: &str) -> StoreResult<Option<&'a str>> {
        let wrong = |_| self.broken(format!("attribute {name} is not a string"));
        self.item.get(name).map(|value| value.as_s().map(String::as_str).map_err(wrong)).transpose()
    }

    pub(crate) fn text(&self, name: &str) -> StoreResult<&'a str> {
        self.required(name, self.text_if_any(name)?)
    }

    pub(crate) fn number_if_any<T: FromStr>(&self, name: &str) -> StoreResult<Option<T>> {
        let Some(value) = self.item.get(name) else { return Ok(None) };
        let number = value.as_n().ok().and_then(|number| number.parse().ok());
        number.map(Some).ok_or_else(|| self.broken(format!("attribute {name} is not a number in range")))
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> StoreResult<T> {
        self.required(name, self.number_if_any(name)?)
    }

    pub(crate) fn time_if_any(&self, name: &str) -> StoreResult<Option<Timestamp>> {
        Ok(self.number_if_any(name)?.map(Timestamp))
    }

    pub(crate) fn time(&self, name: &str) -> StoreResult<Timestamp> {
        self.required(name, self.time_if_any(name)?)
    }

    pub(crate) fn digest_if_any(&self, name: &str) -> StoreResult<Option<String>> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text.clone())),
            Some(AttributeValue::B(bytes)) => Ok(Some(format!("sha256:{}", hex::encode(bytes)))),
            Some(_) => Err(self.broken(format!("attribute {name} is not a digest"))),
        }
    }

    pub(crate) fn digest(&self, name: &str) -> StoreResult<String> {
        self.required(name, self.digest_if_any(name)?)
    }

    pub(crate) fn bytes_if_any(&self, name: &str) -> StoreResult<Option<&'a [u8]>> {
        let wrong = |_| self.broken(format!("attribute {name} is not binary"));
        self.item.get(name).map(|value| value.as_b().map(AsRef::as_ref).map_err(wrong)).transpose()
    }

    /// Returns the members of a string set, or none if the attribute does not exist.
    pub(crate) fn texts(&self, name: &str) -> StoreResult<&'a [String]> {
        let wrong = |_| self.broken(format!("attribute {name} is not a set of strings"));
        self.item.get(name).map_or(Ok(&[] as &[String]), |value| value.as_ss().map(Vec::as_slice).map_err(wrong))
    }

    pub(crate) fn json_if_any<T: serde::de::DeserializeOwned>(&self, name: &str) -> StoreResult<Option<T>> {
        let parse = |text| serde_json::from_str(text).map_err(|error| self.broken(format!("{name}: {error}")));
        self.text_if_any(name)?.map(parse).transpose()
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> StoreResult<T> {
        self.required(name, self.json_if_any(name)?)
    }
}

pub(crate) fn json<T: serde::Serialize>(value: &T) -> StoreResult<AttributeValue> {
    serde_json::to_string(value).map(AttributeValue::S).map_err(|error| unencoded(&error))
}

/// Encodes a struct as JSON without its fields that are null, false or empty lists and maps, because a write costs by the
/// size of its item. The struct must have these values where a field is missing.
pub(crate) fn sparse_json<T: serde::Serialize>(value: &T) -> StoreResult<AttributeValue> {
    let mut value = serde_json::to_value(value).map_err(|error| unencoded(&error))?;
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| match field {
            Value::Null | Value::Bool(false) => false,
            Value::Array(values) => !values.is_empty(),
            Value::Object(values) => !values.is_empty(),
            Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
        });
    }
    json(&value)
}

fn unencoded(error: &serde_json::Error) -> StoreError {
    StoreError::Broken { operation: "encode", reason: error.to_string() }
}

/// Returns the size of an item by DynamoDB's rules: UTF-8 bytes of names and values, and significant digits of
/// numbers.
pub fn item_size(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number_size(number),
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::Ss(texts) => texts.iter().map(String::len).sum(),
        AttributeValue::L(values) => 3 + values.iter().map(|value| 1 + value_size(value)).sum::<usize>(),
        AttributeValue::M(map) => 3 + map.len() + item_size(map),
        _ => 1,
    }
}

fn number_size(number: &str) -> usize {
    let digits = || number.bytes().filter(u8::is_ascii_digit);
    let zeros = |digits: &mut dyn Iterator<Item = u8>| digits.take_while(|digit| *digit == b'0').count();
    let outer = zeros(&mut digits()) + zeros(&mut number.bytes().rev().filter(u8::is_ascii_digit));
    let significant = digits().count().saturating_sub(outer);
    1 + significant.div_ceil(2) + usize::from(number.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_parsed_and_items_have_their_sizes() {
        for value in [ebb_protocol::id::digest(b"x"), "sha256:zz".into(), "other".into(), String::new()] {
            let item = Item::from([("d".to_owned(), digest(&value))]);
            assert_eq!(ItemReader::new("test", &item).digest("d").unwrap(), value);
        }
        assert!(digest(&ebb_protocol::id::digest(b"x")).is_b());
        let size = |value| item_size(&Item::from([("ab".to_owned(), value)]));
        assert_eq!(size(text("xyz")), 5);
        assert_eq!(size(number(0)), 3);
        assert_eq!(size(number(7)), 4);
        assert_eq!(size(number(255)), 5);
        assert_eq!(size(number(1000)), 4);
        assert_eq!(size(AttributeValue::L(vec![text("a")])), 7);
    }
}
