//! Reads the wait that a server requests.

use std::time::Duration;

use ebb_protocol::engine::Timestamp;

/// The longest `retry-after` that is respected.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

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
