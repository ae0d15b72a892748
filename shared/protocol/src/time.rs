use ebb_engine::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Formats a time as RFC 3339 in UTC with milliseconds: `2026-11-21T09:10:02.123Z`. Times after the year 9999 become
/// its end.
pub fn rfc3339(time: Timestamp) -> String {
    let millis = i64::try_from(time.0).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

/// Parses a time of RFC 3339. Returns `None` for another text, and for a time before 1970.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok().map(Timestamp)
}

/// Serializes a time as [`rfc3339`] does. With [`deserialize`] it is the module of `#[serde(with = "…")]`.
///
/// # Errors
/// Returns the error of the serializer.
pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

/// Deserializes a time of RFC 3339.
///
/// # Errors
/// Returns an error for another text, and for a time before 1970.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_rfc3339(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a time of RFC 3339")))
}
