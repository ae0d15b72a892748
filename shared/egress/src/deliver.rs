//! Delivery of signed messages to platforms and webhook servers.

use std::time::Duration;

use ebb_protocol::engine::Timestamp;
use ebb_protocol::limits;
use ebb_protocol::sign::{MessageId, WebhookKeys, sign_with};

use crate::{ByteBudget, CallError, CallResult, HttpCall, HttpRequest, HttpResponse};

/// The time in which a server must accept a message (Standard Webhooks: 15 to 30 seconds).
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest `retry-after` that is respected.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug)]
pub struct WebhookMessage<'a> {
    pub url: &'a str,
    /// The id. It is the same in every repetition.
    pub id: &'a MessageId,
    pub content_type: &'a str,
    pub body: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Accepted,
    /// The server rejects all further messages (410). This is final.
    Gone,
    /// The address or the request is not allowed. A repetition is pointless until the URL or the policy changes.
    Refused(String),
    /// The message was not accepted, or no response arrived. The message is repeated with the same id.
    Retry {
        /// The wait that the server requests, at most [`MAX_RETRY_AFTER`].
        after: Option<Duration>,
        /// The status of the response, if there was one.
        status: Option<u16>,
        reason: String,
    },
}

/// Sends a message once, signed with each of `keys`, and classifies the response.
pub async fn deliver(
    (call, budget): (&dyn HttpCall, &ByteBudget),
    keys: &WebhookKeys,
    message: WebhookMessage<'_>,
    now: Timestamp,
) -> DeliveryOutcome {
    let mut headers = vec![("content-type".to_owned(), message.content_type.to_owned())];
    let signed = sign_with(keys, message.id, now, message.body);
    headers.extend(signed.map(|(name, value)| (name.to_owned(), value)));
    let request = HttpRequest {
        method: "POST".to_owned(),
        url: message.url.to_owned(),
        headers,
        body: message.body.to_vec(),
        timeout: DELIVERY_TIMEOUT,
    };
    classify(call.call_within(request, budget).await.map(|(response, _)| response), now)
}

fn classify(result: CallResult<HttpResponse>, now: Timestamp) -> DeliveryOutcome {
    let response = match result {
        Ok(response) => response,
        Err(CallError::Refused(reason)) => return DeliveryOutcome::Refused(reason),
        Err(error @ (CallError::Connect(_) | CallError::Timeout(_) | CallError::TooLarge(_))) => {
            return DeliveryOutcome::Retry { after: None, status: None, reason: error.to_string() };
        }
    };
    match response.status {
        200..=299 => DeliveryOutcome::Accepted,
        410 => DeliveryOutcome::Gone,
        status => {
            let hint = match status {
                300..=399 => ": redirects are not followed; use the final URL",
                401 | 403 => ": check the secret of the server",
                404 => ": check the URL",
                _ => "",
            };
            let reason = limits::message(&format!("the server answered {status}{hint}"));
            DeliveryOutcome::Retry { after: retry_after(&response.headers, now), status: Some(status), reason }
        }
    }
}

/// Parses `retry-after`, in seconds or as a date, limited to [`MAX_RETRY_AFTER`]. A date before `now` is zero. Returns
/// `None` if the header is missing or malformed.
pub fn retry_after(headers: &[(String, String)], now: Timestamp) -> Option<Duration> {
    let (_, value) = headers.iter().find(|(name, _)| name == "retry-after")?;
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is a long wait.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let until = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        until.saturating_sub(Duration::from_millis(now.0))
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests;
