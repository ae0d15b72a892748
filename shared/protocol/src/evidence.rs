//! Evidence of a failed request of a webhook unit.

use serde::{Deserialize, Serialize};

use crate::limits;

/// A failed request with its response. Credentials are masked before it is stored.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub method: String,
    /// The URL without user, password and values of the query.
    pub url: String,
    /// The HTTP status. Absent without a response.
    pub status: Option<u16>,
    /// The content type of the response.
    pub content_type: Option<String>,
    /// The headers of the response about a limit of requests, such as `retry-after: 30; x-ratelimit-remaining: 0`. Absent
    /// without one.
    pub limits: Option<String>,
    /// The beginning of the response body, at most 2 KiB. Absent if the body is empty or the unit declares sensitive
    /// outputs.
    pub body: Option<String>,
    /// True if the body was longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The reason why the stored evidence cannot be read. Method and URL are then empty. Never stored.
    pub damaged: Option<String>,
}

impl Evidence {
    /// Returns a placeholder for unreadable evidence.
    pub fn damaged(reason: &str) -> Self {
        Self { damaged: Some(limits::message(reason)), ..Self::default() }
    }
}
