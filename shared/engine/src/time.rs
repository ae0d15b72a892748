use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Writes the duration for people: `400 ms`, `2.5 s`, `25 s` or `1 min 30 s`. From 1 s it has one decimal place, from
/// 10 s none.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_add(50) / 100;
        let seconds = self.0.saturating_add(500) / 1000;
        match self.0 {
            0 => return f.write_str("0 s"),
            1..1000 => return write!(f, "{} ms", self.0),
            _ if tenths < 100 && !tenths.is_multiple_of(10) => return write!(f, "{}.{} s", tenths / 10, tenths % 10),
            _ => {}
        }
        let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
        let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count} {unit}"));
        f.write_str(&parts.collect::<Vec<_>>().join(" "))
    }
}

/// Milliseconds since 1970-01-01T00:00:00Z. Its serialized form is that number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn plus(self, millis: Millis) -> Self {
        Self(self.0.saturating_add(millis.0))
    }

    pub fn minus(self, millis: Millis) -> Self {
        Self(self.0.saturating_sub(millis.0))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_words() {
        let rows = "0=0 s, 999=999 ms, 1000=1 s, 1497=1.5 s, 9960=10 s, 24876=25 s, 59600=1 min, 90000=1 min 30 s, \
                    179876=3 min, 86400000=24 h, 3661000=1 h 1 min 1 s";
        for (millis, words) in rows.split(", ").map(|row| row.split_once('=').unwrap()) {
            assert_eq!(Millis(millis.parse().unwrap()).to_string(), words);
        }
    }

    #[test]
    fn times_saturate() {
        assert_eq!([(5, 3), (u64::MAX - 1, 3)].map(|(at, millis)| Timestamp(at).plus(Millis(millis)).0), [8, u64::MAX]);
        assert_eq!([(8, 5), (5, 5), (5, 8)].map(|(at, earlier)| Timestamp(at).since(Timestamp(earlier)).0), [3, 0, 0]);
    }
}
