//! Parses the attributes of an event.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp as Time;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::event_error::EventError;
use crate::unit::TRACEPARENT;

const MAX_ATTRIBUTE: usize = 1024;
/// Attributes of the specification. All of them are strings, while extensions may be numbers and booleans.
const TEXTS: [&str; 8] = ["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"];

pub(super) struct EventAttributes {
    pub(super) id: String,
    pub(super) r#type: String,
    pub(super) traceparent: Option<String>,
    pub(super) data: Option<Box<RawValue>>,
}

pub(super) fn structured(body: &[u8]) -> Result<EventAttributes, EventError> {
    let EventMembers(mut members) = serde_json::from_slice(body).map_err(json)?;
    let data = members.remove("data").filter(|raw| raw.get() != "null");
    if members.remove("data_base64").is_some_and(|raw| raw.get() != "null") {
        return Err(wrong("data_base64", "is not supported: send JSON in data"));
    }
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for (name, raw) in members {
        let text = match serde_json::from_str(raw.get()).map_err(json)? {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text,
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) if !TEXTS.contains(&name.as_str()) => {
                continue;
            }
            _ => return Err(wrong(&name, "is not a string: write it in double quotes")),
        };
        texts.insert(name, text);
    }
    for (name, text) in &texts {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
            return Err(wrong(name, "has an invalid name: expected a-z and 0-9"));
        }
        if text.len() > MAX_ATTRIBUTE {
            return Err(wrong(name, &format!("is longer than {MAX_ATTRIBUTE} bytes")));
        }
        if text.is_empty() {
            return Err(wrong(name, "is empty: leave it out or give it a value"));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong(name, "has control characters"));
        }
    }
    let mut required = |name: &'static str| texts.remove(name).ok_or(EventError::Missing(name));
    let version = required("specversion")?;
    if version != "1.0" {
        return Err(wrong("specversion", &format!("is {version:?}: expected \"1.0\"")));
    }
    let (id, _, r#type) = (required("id")?, required("source")?, required("type")?);
    if let Some(media) = texts.get("datacontenttype")
        && !media.parse().is_ok_and(|media| is_json(&media))
    {
        return Err(EventError::DataContentType(crate::limits::message(media)));
    }
    if let Some(text) = texts.get("time").filter(|text| text.parse::<Time>().is_err()) {
        return Err(wrong("time", &format!("is {text:?}: expected RFC 3339, such as 2026-01-31T12:00:00Z")));
    }
    Ok(EventAttributes { id, r#type, traceparent: texts.remove(TRACEPARENT), data })
}

pub(super) fn is_json(media: &mime::Mime) -> bool {
    media.subtype() == mime::JSON || media.suffix() == Some(mime::JSON)
}

fn wrong(name: &str, problem: &str) -> EventError {
    EventError::Attribute { name: crate::limits::message(name), problem: crate::limits::message(problem) }
}

fn json(error: serde_json::Error) -> EventError {
    EventError::Json(crate::limits::message(&error.to_string()))
}

/// The members of a JSON object with their raw values. Duplicates are rejected.
struct EventMembers(BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for EventMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = EventMembers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the event's attributes and data")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EventMembers, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("{name:?} is given twice")));
                    }
                    members.insert(name, value);
                }
                Ok(EventMembers(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}
