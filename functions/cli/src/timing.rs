//! Times and durations as text.

use std::time::Duration;

use ebb_protocol::words;
use jiff::{Span, SpanRelativeTo, Timestamp};

/// Parses a duration, such as `90s`, `1h30m` or `1d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: expected a form such as 90s, 1h30m or 1d");
    let signed = text.parse::<Span>().and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    Duration::try_from(signed.map_err(|_| wrong())?).map_err(|_| wrong())
}

/// Parses a time of RFC 3339, or a duration before now.
pub(crate) fn point(text: &str) -> Result<Timestamp, String> {
    let wrong =
        || format!("`{text}` is not a time: expected a duration before now such as 10m, or 2026-11-21T09:10:00Z");
    let before = || now().checked_sub(parse(text).ok()?).ok();
    text.parse().ok().or_else(before).ok_or_else(wrong)
}

/// Returns a duration as text, such as `0.4s`, `12.3s`, `2m05s` or `1h02m`.
pub(crate) fn length(duration: Duration) -> String {
    let tenths = (duration.as_millis().saturating_add(50) / 100).min(599);
    match duration.as_secs() {
        0..60 => format!("{}.{}s", tenths / 10, tenths % 10),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns the time from `earlier`, in the format of the API, to `now`. Returns zero if `earlier` is in the future,
/// because clocks differ.
pub(crate) fn since(earlier: &str, now: Timestamp) -> Option<Duration> {
    let earlier: Timestamp = earlier.parse().ok()?;
    Some(Duration::try_from(now.duration_since(earlier)).unwrap_or_default())
}

/// Returns the time from `now` to `later`, or zero if it has passed.
pub(crate) fn until(later: &str, now: Timestamp) -> Option<Duration> {
    let later: Timestamp = later.parse().ok()?;
    Some(Duration::try_from(later.duration_since(now)).unwrap_or_default())
}

/// Formats a time of the API as `2026-11-21 09:10:02Z`. Returns other text unchanged.
pub(crate) fn clock(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        Err(_) => text.to_owned(),
    }
}

/// Formats the times of the API that are words of a text as [`clock`] does.
pub(crate) fn clocks(text: &str) -> String {
    let parts = words::times(text).into_iter();
    parts.map(|(part, is_time)| if is_time { clock(part) } else { part.to_owned() }).collect()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::rows;

    #[test]
    fn durations_are_printed() {
        for (millis, text) in rows::<(u64, String)>("durations_are_printed") {
            assert_eq!(length(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn durations_are_parsed() {
        let parsed = ["3m", "1h30m", "1d12h", "3", "-3m", "1mo"].map(|text| parse(text).ok());
        let expected = [Some(180), Some(5_400), Some(129_600), None, None, None];
        assert_eq!(parsed, expected.map(|seconds| seconds.map(Duration::from_secs)));
    }

    #[test]
    fn points_are_times_or_durations_before_now() {
        assert_eq!(point("2026-11-21T10:10:00+01:00"), Ok("2026-11-21T09:10:00Z".parse().unwrap()));
        let before = point("10m").unwrap();
        let age = now().duration_since(before);
        assert!((600..660).contains(&age.as_secs()), "{age}");
        assert!(point("yesterday").unwrap_err().contains("`yesterday` is not a time"));
        assert!(point("-10m").is_err());
    }

    #[test]
    fn clocks_may_differ() {
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().unwrap();
        assert_eq!(since("2026-11-21T08:59:58.5Z", now), Some(Duration::from_millis(1500)));
        assert_eq!(since("2026-11-21T09:00:01Z", now), Some(Duration::ZERO));
        assert_eq!(until("2026-11-21T09:00:01Z", now), Some(Duration::from_secs(1)));
        assert_eq!(clock("2026-11-21T09:00:01.123Z"), "2026-11-21 09:00:01Z");
    }
}
