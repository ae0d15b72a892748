//! CloudEvents 1.0 over HTTP: lifecycle webhooks in, notifications out.
//!
//! Only the structured mode is accepted (`application/cloudevents+json`). The binary mode has the type in a header,
//! which Standard Webhooks does not sign: a captured `created` could be replayed as `deleted`. Batches, other formats
//! and data other than JSON are rejected. Extension attributes other than `traceparent` are ignored.
//!
//! This module does not verify signatures. Call [`crate::sign::verify`] first.

mod attributes;
mod event_error;

use http::HeaderMap;
use jiff::Timestamp as Time;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::lifecycle::{CREATED, DELETED, EVENT, FieldError, LifecycleData, UPDATED};
use attributes::{EventAttributes, is_json, structured};

pub use event_error::EventError;

/// The content type of events in structured mode.
pub const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifecycleType {
    Created,
    Updated,
    Deleted,
    /// Runs a hook of the target that is not one of its lifecycle.
    Event,
}

impl LifecycleType {
    const ALL: [Self; 4] = [Self::Created, Self::Updated, Self::Deleted, Self::Event];

    pub fn as_type(self) -> &'static str {
        match self {
            Self::Created => CREATED,
            Self::Updated => UPDATED,
            Self::Deleted => DELETED,
            Self::Event => EVENT,
        }
    }
}

/// A lifecycle webhook that is within all limits.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleEvent {
    /// Identifies the event among those of its sender.
    pub id: String,
    pub event_type: LifecycleType,
    /// The trace of the event (distributed tracing extension).
    pub traceparent: Option<String>,
    pub data: LifecycleData,
}

/// Parses a lifecycle webhook. The caller limits `body` to [`crate::limits::WEBHOOK_BODY`] bytes.
pub fn parse(headers: &HeaderMap, body: &[u8]) -> Result<LifecycleEvent, EventError> {
    check_content_type(headers)?;
    let EventAttributes { id, r#type, traceparent, data } = structured(body)?;
    let event_type = LifecycleType::ALL.into_iter().find(|event_type| event_type.as_type() == r#type);
    let event_type = event_type.ok_or_else(|| EventError::UnknownType(crate::limits::message(&r#type)))?;
    let data = read_data(data.as_deref().ok_or(EventError::NoData)?)?;
    let wrong = |FieldError { field, problem }| EventError::Data { path: format!("data.{field}"), problem };
    data.validate().map_err(wrong)?;
    if data.document.is_none() && matches!(event_type, LifecycleType::Created | LifecycleType::Updated) {
        let problem = format!("is missing: {} requires the document of the target as text", event_type.as_type());
        return Err(EventError::Data { path: "data.document".to_owned(), problem });
    }
    if data.event.is_some() != (event_type == LifecycleType::Event) {
        let problem = match data.event {
            None => format!("is missing: {EVENT} requires the name of the event"),
            Some(_) => format!("is only for {EVENT}: remove it"),
        };
        return Err(EventError::Data { path: "data.event".to_owned(), problem });
    }
    Ok(LifecycleEvent { id, event_type, traceparent, data })
}

/// Checks the content type before the body is read. All errors have the status 415.
pub fn check_content_type(headers: &HeaderMap) -> Result<(), EventError> {
    let mut values = headers.get_all(http::header::CONTENT_TYPE).iter();
    let written = values.next().map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    let refused = || EventError::ContentType(crate::limits::message(&written));
    if values.next().is_some() {
        return Err(refused());
    }
    let parsed: mime::Mime = written.parse().map_err(|_| refused())?;
    if parsed.get_param(mime::CHARSET).is_some_and(|charset| charset != "utf-8" && charset != "us-ascii") {
        return Err(refused());
    }
    match parsed.essence_str() {
        "application/cloudevents+json" => Ok(()),
        essence if essence.starts_with("application/cloudevents-batch") => Err(EventError::Batch),
        essence if essence.starts_with("application/cloudevents") => Err(refused()),
        _ if is_json(&parsed) => Err(EventError::BinaryMode(crate::limits::message(&written))),
        _ => Err(refused()),
    }
}

fn read_data(raw: &RawValue) -> Result<LifecycleData, EventError> {
    // A derived deserializer would also accept an array.
    if !raw.get().starts_with('{') {
        let problem = "is not an object: expected kind, name, uid and document".to_owned();
        return Err(EventError::Data { path: "data".to_owned(), problem });
    }
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = match error.path().to_string().as_str() {
            "." => "data".to_owned(),
            path => format!("data.{path}"),
        };
        // The position counts from the start of `data`, and the path already shows the place.
        let position = format!(" at line {} column {}", error.inner().line(), error.inner().column());
        let problem = error.inner().to_string();
        EventError::Data { path, problem: crate::limits::message(problem.trim_end_matches(&position)) }
    })
}

/// An event in structured mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent<T> {
    pub specversion: String,
    /// Identifies the event together with `source`. The same in every repetition.
    pub id: String,
    /// The sender, as a URI reference.
    pub source: String,
    pub r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub time: Time,
    pub datacontenttype: String,
    pub data: T,
}

/// Returns content type and body of a lifecycle webhook.
pub fn lifecycle(
    id: &str,
    source: &str,
    event_type: LifecycleType,
    time: ebb_engine::Timestamp,
    data: &LifecycleData,
) -> (&'static str, Vec<u8>) {
    event(id, source, event_type.as_type(), &format!("{}/{}", data.kind, data.name), time, data)
}

/// Returns content type and body of an event. The types for the platform are in [`crate::lifecycle`], `subject` is
/// `KIND/NAME`.
pub fn event<T: Serialize>(
    id: &str,
    source: &str,
    r#type: &str,
    subject: &str,
    time: ebb_engine::Timestamp,
    data: &T,
) -> (&'static str, Vec<u8>) {
    let event = CloudEvent {
        specversion: "1.0".to_owned(),
        id: id.to_owned(),
        source: source.to_owned(),
        r#type: r#type.to_owned(),
        subject: Some(subject.to_owned()),
        time: i64::try_from(time.0).ok().and_then(|ms| Time::from_millisecond(ms).ok()).unwrap_or(Time::MAX),
        datacontenttype: "application/json".to_owned(),
        data,
    };
    (CONTENT_TYPE, serde_json::to_vec(&event).expect("events have text keys only and no foreign serializer"))
}

#[cfg(test)]
mod tests;
