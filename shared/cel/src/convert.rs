//! Conversions between JSON and CEL.

use std::collections::HashMap;

use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use cel::objects::OptionalValue;
use serde_json::Value as Json;

use crate::{CelValue, Expression, walk};

/// The operator that selects a field, as the errors of an evaluation name it.
const SELECTION: &str = "_._";

/// The function whose error names a position.
pub(crate) const JSON_PARSE: &str = "json.parse";

/// Converts JSON to CEL. Integers become `int` if they fit, so that `+ 1` works. Texts are borrowed.
pub fn from_json(value: &Json) -> CelValue<'_> {
    match value {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(*value)),
        Json::Number(number) => from_number(number),
        Json::String(text) => from_text(text),
        Json::Array(items) => Box::new(CelList::from(items.iter().map(from_json).collect::<Vec<_>>())),
        Json::Object(map) => from_map(map.iter().map(|(key, value)| (key.as_str(), from_json(value)))),
    }
}

fn from_number(number: &serde_json::Number) -> CelValue<'static> {
    match (number.as_i64(), number.as_u64()) {
        (Some(value), _) => Box::new(CelInt::from(value)),
        (None, Some(value)) => Box::new(CelUInt::from(value)),
        _ => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
    }
}

/// Converts JSON like [`from_json`]. The result borrows nothing.
pub fn from_owned_json(value: Json) -> CelValue<'static> {
    match value {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(value)),
        Json::Number(number) => from_number(&number),
        Json::String(text) => Box::new(CelString::from(text)),
        Json::Array(items) => Box::new(CelList::from(items.into_iter().map(from_owned_json).collect::<Vec<_>>())),
        Json::Object(map) => {
            let entries = map.into_iter().map(|(key, value)| (CelMapKey::from(key), from_owned_json(value)));
            Box::new(CelMap::from(entries.collect::<HashMap<_, _>>()))
        }
    }
}

/// Returns where a text is not JSON, without a part of the text.
pub fn json_position(error: &serde_json::Error) -> String {
    format!("the text is not JSON at line {}, column {}", error.line(), error.column())
}

pub fn from_text(text: &str) -> CelValue<'_> {
    Box::new(CelString::from(text))
}

pub fn from_bytes(bytes: &[u8]) -> CelValue<'_> {
    Box::new(CelBytes::from(bytes))
}

pub fn from_map<'v>(entries: impl IntoIterator<Item = (&'v str, CelValue<'v>)>) -> CelValue<'v> {
    let map: HashMap<CelMapKey<'v>, CelValue<'v>> =
        entries.into_iter().map(|(key, value)| (CelMapKey::from(key), value)).collect();
    Box::new(CelMap::from(map))
}

#[derive(Clone, Debug, PartialEq)]
pub enum CelOutput {
    Json(Json),
    /// Bytes that are not UTF-8.
    Bytes(Vec<u8>),
    /// An optional without a value, or one of `null`.
    Nothing,
}

/// Converts a result, or returns the description of a type that has no JSON form.
pub(crate) fn to_value(value: &cel::Value) -> Result<CelOutput, &'static str> {
    match value {
        cel::Value::Bytes(bytes) => Ok(match String::from_utf8(bytes.to_vec()) {
            Ok(text) => CelOutput::Json(text.into()),
            Err(error) => CelOutput::Bytes(error.into_bytes()),
        }),
        cel::Value::Opaque(_) => match optional(value)?.value() {
            None | Some(cel::Value::Null) => Ok(CelOutput::Nothing),
            Some(value) => to_value(value),
        },
        other => to_json(other).map(|json| json.map_or(CelOutput::Nothing, CelOutput::Json)),
    }
}

/// Returns `None` for an optional without a value, whose entry is omitted.
fn to_json(value: &cel::Value) -> Result<Option<Json>, &'static str> {
    Ok(Some(match value {
        cel::Value::Null => Json::Null,
        cel::Value::Bool(value) => (*value).into(),
        cel::Value::Int(value) => (*value).into(),
        cel::Value::UInt(value) => (*value).into(),
        cel::Value::Float(value) => {
            serde_json::Number::from_f64(*value).map(Json::Number).ok_or("a number that is not finite")?
        }
        cel::Value::String(text) => text.as_str().into(),
        cel::Value::List(items) => {
            let items: Result<Vec<Option<Json>>, _> = items.iter().map(to_json).collect();
            items?.into_iter().flatten().collect()
        }
        cel::Value::Map(map) => {
            let mut entries: Vec<(String, Json)> = Vec::with_capacity(map.map.len());
            for (key, value) in map.map.iter() {
                if let Some(value) = to_json(value)? {
                    entries.push((key.to_string(), value));
                }
            }
            // CEL maps have no order, and equal values must produce equal bytes.
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Json::Object(entries.into_iter().collect())
        }
        cel::Value::Timestamp(time) => time.to_rfc3339().into(),
        cel::Value::Duration(span) => {
            let nanos = span.num_nanoseconds().ok_or("a duration that is too long")?;
            format!("{}s", nanos as f64 / 1e9).into()
        }
        cel::Value::Opaque(_) => return optional(value)?.value().map_or(Ok(None), to_json),
        cel::Value::Bytes(_) => return Err("bytes"),
        cel::Value::Function(..) | cel::Value::Struct(_) => return Err(NO_JSON),
    }))
}

const NO_JSON: &str = "a value without a JSON form";

fn optional(value: &cel::Value) -> Result<&OptionalValue, &'static str> {
    <&OptionalValue>::try_from(value).map_err(|_| NO_JSON)
}

pub fn json_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "text",
        Json::Array(_) => "a list",
        Json::Object(_) => "a mapping",
    }
}

/// Returns true if an evaluation failed because an operand is null.
pub(crate) fn is_about_null(error: &cel::ExecutionError) -> bool {
    const NULL: &str = "null_type";
    match error {
        cel::ExecutionError::NoSuchOverload(overload) => overload.argument_types().iter().any(|of| of == NULL),
        // A function of this crate gets the debug form.
        cel::ExecutionError::UnexpectedType { got, .. } => got == NULL || got == "Null",
        cel::ExecutionError::UnsupportedBinaryOperator(_, left, right) => {
            [left, right].into_iter().any(|operand| matches!(operand, cel::Value::Null))
        }
        _ => false,
    }
}

/// Describes an evaluation error without values. A key is named only if the expression contains it.
pub(crate) fn reason(expression: &Expression, error: &cel::ExecutionError) -> String {
    use cel::ExecutionError as E;
    match error {
        E::NoSuchKey(key) if walk::writes(&expression.tree, key) => {
            format!("there is no key `{}`", key.chars().take(60).collect::<String>())
        }
        E::NoSuchKey(_) => "a computed key does not exist".to_owned(),
        E::NoSuchOverload(overload) => {
            let (function, types) = (overload.function(), overload.argument_types());
            match (function, types.first().map(String::as_str)) {
                (SELECTION, Some("string")) => "a text has no fields".to_owned(),
                (SELECTION, Some(of)) => format!("a value of type {of} has no fields"),
                // CEL writes the places of operands.
                _ => format!("`{}` is not defined for {}", function.replace('_', ""), types.join(", ")),
            }
        }
        E::FunctionError { function, message } if function == JSON_PARSE => format!("`{JSON_PARSE}` failed: {message}"),
        E::FunctionError { function, .. } if function == "base64.decode" => {
            "`base64.decode` failed: the text is not base64".to_owned()
        }
        E::InvalidArgumentCount { expected, actual } => {
            format!("{actual} arguments where {expected} are needed")
        }
        E::DivisionByZero(_) | E::RemainderByZero(_) => "division by zero".to_owned(),
        E::Overflow(..) => "a number is too large".to_owned(),
        E::IndexOutOfBounds(_) => "the list is shorter than the index".to_owned(),
        E::UnsupportedBinaryOperator(operator, ..) => format!("`{operator}` is not defined for these types"),
        E::UnexpectedType { want, .. } => format!("expected a value of type {want}"),
        E::UndeclaredReference(name) => format!("`{name}` is not known"),
        E::DuplicateKey(_) => "a map has a duplicate key".to_owned(),
        _ => "the types do not fit".to_owned(),
    }
}
