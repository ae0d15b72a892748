//! Signed messages to a platform or a unit's server, and what their answers mean.

use std::time::Duration;

use ebb_protocol::engine::Timestamp;
use ebb_protocol::limits;
use ebb_protocol::sign::{MessageId, WebhookKeys, sign_with};

use crate::{CallError, HttpCall, HttpRequest, HttpResponse};

/// How long a server may take to accept a message (Standard Webhooks: 15 to 30 seconds).
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait that a server can ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A message to deliver.
#[derive(Clone, Copy, Debug)]
pub struct WebhookMessage<'a> {
    pub url: &'a str,
    /// Its id: the same for every repetition.
    pub id: &'a MessageId,
    /// The content type of `body`.
    pub content_type: &'a str,
    pub body: &'a [u8],
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Accepted,
    /// The server wants no messages any more (410). Final.
    Gone,
    /// The address or the request is not allowed, with why. Trying again is pointless until the URL or our policy
    /// changes.
    Refused(String),
    /// Not accepted, or not known to be: deliver it again under the same id.
    Retry {
        /// The shortest wait that the server asks for, at most [`MAX_RETRY_AFTER`].
        after: Option<Duration>,
        reason: String,
    },
}

/// Sends `message` once, signed with each of `keys` as of `now`, and says what the answer means.
pub async fn deliver(
    call: &dyn HttpCall,
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
    classify(call.call(request).await, now)
}

fn classify(answer: Result<HttpResponse, CallError>, now: Timestamp) -> DeliveryOutcome {
    let response = match answer {
        Ok(response) => response,
        Err(CallError::Refused(reason)) => return DeliveryOutcome::Refused(reason),
        Err(error @ (CallError::Connect(_) | CallError::Timeout(_) | CallError::TooLarge(_))) => {
            return DeliveryOutcome::Retry { after: None, reason: error.to_string() };
        }
    };
    match response.status {
        200..=299 => DeliveryOutcome::Accepted,
        410 => DeliveryOutcome::Gone,
        status => {
            let hint = match status {
                300..=399 => ": redirects are not followed, the URL has to be changed",
                401 | 403 => ": does the server know the secret?",
                404 => ": is the URL right?",
                _ => "",
            };
            let reason = limits::message(&format!("the server answered {status}{hint}"));
            DeliveryOutcome::Retry { after: retry_after(&response.headers, now), reason }
        }
    }
}

/// The wait that `retry-after` asks for, in seconds or until a date, at most [`MAX_RETRY_AFTER`]; zero for a date
/// that has passed by `now`. `None` without the header, or if it cannot be read.
pub fn retry_after(headers: &[(String, String)], now: Timestamp) -> Option<Duration> {
    let (_, value) = headers.iter().find(|(name, _)| name == "retry-after")?;
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long wait, not an error.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let until = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        until.saturating_sub(Duration::from_millis(now.0))
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests;
