//! Why a request is not a lifecycle webhook.

use crate::lifecycle::{CREATED, DELETED, EVENT, UPDATED};

/// A request that is not a lifecycle webhook. The text is for the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("content type {0:?} is not supported: send application/cloudevents+json")]
    ContentType(String),
    /// JSON content without attributes: the binary mode.
    #[error(
        "content type {0:?} is not supported: the signature does not cover the type of an event in binary mode. Send the \
         event in structured mode, as application/cloudevents+json with all attributes in the body"
    )]
    BinaryMode(String),
    #[error("batches of events are not supported: send each event in its own request")]
    Batch,
    #[error("datacontenttype {0:?} is not supported: data must be JSON")]
    DataContentType(String),
    /// The body is not a JSON object. The text has the position.
    #[error("the body is not a CloudEvent in JSON: {0}")]
    Json(String),
    #[error("the attribute {0} is missing: CloudEvents 1.0 requires specversion, id, source and type")]
    Missing(&'static str),
    /// `problem` has the error and the expected value.
    #[error("the attribute {name} {problem}")]
    Attribute { name: String, problem: String },
    #[error("unknown event type {0:?}: expected {CREATED}, {UPDATED}, {DELETED} or {EVENT}")]
    UnknownType(String),
    #[error("the event has no data: expected an object with kind, name, uid and document")]
    NoData,
    /// `path` is that of the field, such as `data.kind`. `problem` has the error and the expected value.
    #[error("{path}: {problem}")]
    Data { path: String, problem: String },
}

impl EventError {
    /// Returns the status of the response: 415 for unsupported formats, 422 for valid events that cannot be processed,
    /// 400 otherwise.
    pub fn status(&self) -> u16 {
        match self {
            Self::ContentType(_) | Self::BinaryMode(_) | Self::Batch | Self::DataContentType(_) => 415,
            Self::UnknownType(_) | Self::NoData | Self::Data { .. } => 422,
            Self::Json(_) | Self::Missing(_) | Self::Attribute { .. } => 400,
        }
    }
}
