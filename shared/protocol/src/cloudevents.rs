//! CloudEvents 1.0 over HTTP: lifecycle webhooks in, notifications out.
//!
//! Only the structured mode is read (`application/cloudevents+json`). In the binary mode the type of the event is a
//! header, which Standard Webhooks does not sign: a captured `created` could be sent again as `deleted`.
//! Batches, other formats and other data than JSON are refused. Extension attributes are taken and not looked at, but for `traceparent`.
//! Nothing here is verified: [`crate::sign::verify`] comes first.

mod attributes;

use http::HeaderMap;
use jiff::Timestamp as Time;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::lifecycle::{CREATED, DELETED, FieldError, LifecycleData, OutcomeData, UPDATED};
use attributes::{EventAttributes, structured};

/// Content type of events in structured mode.
pub const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

pub const MAX_ATTRIBUTE: usize = 1024;

/// What a lifecycle webhook asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LifecycleType {
    /// A target is to be there.
    Created,
    Updated,
    Deleted,
}

impl LifecycleType {
    const ALL: [Self; 3] = [Self::Created, Self::Updated, Self::Deleted];

    /// The event's `type`.
    pub fn as_type(self) -> &'static str {
        match self {
            Self::Created => CREATED,
            Self::Updated => UPDATED,
            Self::Deleted => DELETED,
        }
    }
}

/// A lifecycle webhook as its sender has written it, checked against its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleEvent {
    /// With `source` the identity of the event.
    pub id: String,
    pub source: String,
    pub event_type: LifecycleType,
    /// When it happened, by the sender's clock.
    pub time: Option<Time>,
    /// The trace in which it happened, as its sender has written it: the extension for distributed tracing.
    pub traceparent: Option<String>,
    pub data: LifecycleData,
}

/// Why a request is no lifecycle webhook. Its text is for the sender, its status is [`EventError::status`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// The content type is none that is read.
    #[error("content type {0:?} is not read here: send application/cloudevents+json")]
    ContentType(String),
    /// Content in JSON without its attributes: the binary mode.
    #[error(
        "content type {0:?} is not read here: the signature does not cover the type of an event in binary mode. Send the \
         event in structured mode, as application/cloudevents+json with all attributes in the body"
    )]
    BinaryMode(String),
    #[error("batches of events are not read here: send each event in a request of its own")]
    Batch,
    /// The data of the event is something else than JSON.
    #[error("datacontenttype {0:?} is not read here: data has to be JSON")]
    DataContentType(String),
    /// The body is not JSON, or not an object; with the position.
    #[error("the body is not a CloudEvent in JSON: {0}")]
    Json(String),
    #[error("the attribute {0} is missing: CloudEvents 1.0 requires specversion, id, source and type")]
    Missing(&'static str),
    /// An attribute has a value that it cannot have.
    #[error("the attribute {name} {problem}")]
    Attribute {
        name: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// An event that is no lifecycle webhook.
    #[error("events of type {0:?} are not known here: expected {CREATED}, {UPDATED} or {DELETED}")]
    UnknownType(String),
    /// There is no data.
    #[error("the event has no data: expected an object with kind, name, uid and document")]
    NoData,
    /// The data is not that of a lifecycle webhook.
    #[error("{path}: {problem}")]
    Data {
        /// The path to the field, such as `data.kind`.
        path: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl EventError {
    /// The status to answer with: 415 for what is not read at all, 422 for an event that is well written and cannot
    /// be taken, 400 for the rest.
    pub fn status(&self) -> u16 {
        match self {
            Self::ContentType(_) | Self::BinaryMode(_) | Self::Batch | Self::DataContentType(_) => 415,
            Self::UnknownType(_) | Self::NoData | Self::Data { .. } => 422,
            Self::Json(_) | Self::Missing(_) | Self::Attribute { .. } => 400,
        }
    }
}

/// Reads a lifecycle webhook. `body` is at most [`crate::limits::WEBHOOK_BODY`] bytes, which the caller has seen to.
pub fn parse(headers: &HeaderMap, body: &[u8]) -> Result<LifecycleEvent, EventError> {
    check_content_type(headers)?;
    let EventAttributes { id, source, r#type, time, traceparent, data } = structured(body)?;
    let asked = LifecycleType::ALL.into_iter().find(|asked| asked.as_type() == r#type);
    let asked = asked.ok_or_else(|| EventError::UnknownType(crate::limits::message(&r#type)))?;
    let data: LifecycleData = read_data(data.as_deref().ok_or(EventError::NoData)?)?;
    let wrong = |FieldError { field, problem }| EventError::Data { path: format!("data.{field}"), problem };
    data.validate().map_err(wrong)?;
    if data.document.is_none() && asked != LifecycleType::Deleted {
        let problem = format!("is missing: {} needs the target's document as text", asked.as_type());
        return Err(EventError::Data { path: "data.document".to_owned(), problem });
    }
    Ok(LifecycleEvent { id, source, event_type: asked, time, traceparent, data })
}

/// Checks before there is a body that an event in structured mode follows.
///
/// # Errors
/// The refusals with status 415.
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

fn is_json(media: &mime::Mime) -> bool {
    media.subtype() == mime::JSON || media.suffix() == Some(mime::JSON)
}

fn read_data<T: DeserializeOwned>(raw: &RawValue) -> Result<T, EventError> {
    // A derived reader would take the fields as an array too.
    if !raw.get().starts_with('{') {
        let problem = "is no object: expected kind, name, uid and document".to_owned();
        return Err(EventError::Data { path: "data".to_owned(), problem });
    }
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = match error.path().to_string().as_str() {
            "." => "data".to_owned(),
            path => format!("data.{path}"),
        };
        // Positions count from the start of data, which helps nobody who has the path.
        let position = format!(" at line {} column {}", error.inner().line(), error.inner().column());
        let problem = error.inner().to_string();
        EventError::Data { path, problem: crate::limits::message(problem.trim_end_matches(&position)) }
    })
}

/// An event in structured mode, written by us.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent<T> {
    /// `1.0`.
    pub specversion: String,
    /// With `source` the identity of the event; the same for every repetition.
    pub id: String,
    /// Who sends it, a URI reference.
    pub source: String,
    pub r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub time: Time,
    /// `application/json`.
    pub datacontenttype: String,
    pub data: T,
}

/// A lifecycle webhook as a platform sends it: content type and body.
pub fn lifecycle(
    id: &str,
    source: &str,
    asked: LifecycleType,
    time: ebb_engine::Timestamp,
    data: &LifecycleData,
) -> (&'static str, Vec<u8>) {
    let subject = format!("{}/{}", data.kind, data.name);
    event(id, source, asked.as_type(), &subject, time, data)
}

/// A notification: content type and body. `type` is one of [`crate::lifecycle`]'s, `subject` is `KIND/NAME`.
pub fn outcome(
    id: &str,
    source: &str,
    r#type: &str,
    subject: &str,
    time: ebb_engine::Timestamp,
    data: &OutcomeData,
) -> (&'static str, Vec<u8>) {
    event(id, source, r#type, subject, time, data)
}

fn event<T: Serialize>(
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
    let body = serde_json::to_vec(&event).expect("events have text keys only and no foreign serializer");
    (CONTENT_TYPE, body)
}

#[cfg(test)]
mod tests;
