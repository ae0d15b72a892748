//! The evidence of a failed request of a webhook unit, for the people who have to find the cause.

use serde::{Deserialize, Serialize};

use crate::limits;

/// A request that failed, and what its server answered. Credentials are masked before it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The method of the request.
    pub method: String,
    /// Its URL, without user, password and the values of its query.
    pub url: String,
    /// The HTTP status; absent: no answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The content type of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The beginning of the answer's body, at most 2 KiB; absent: the body is empty, or the unit
    /// declares sensitive outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// True if the body was longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The reason why the stored evidence cannot be read. Method and URL are empty then. It is never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

impl Evidence {
    /// Returns the evidence of a record whose stored evidence cannot be read.
    pub fn damaged(reason: &str) -> Self {
        Self {
            method: String::new(),
            url: String::new(),
            status: None,
            content_type: None,
            body: None,
            truncated: false,
            damaged: Some(limits::message(reason)),
        }
    }
}
