//! Durations of documents: a whole number and a unit.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected};
use serde_json::Value;

/// The maximum duration: ten years in milliseconds.
const MAX_DURATION: u64 = 10 * 366 * DAY;

const DAY: u64 = 24 * 60 * 60 * 1000;

pub const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", DAY)];

/// The units of a duration in Signadot's documents in milliseconds.
pub(crate) const SIGNADOT_UNITS: [(&str, u64); 4] = [("m", 60_000), ("h", 3_600_000), ("d", DAY), ("w", 7 * DAY)];

/// Parses a whole number above 0 with one of the units. Returns milliseconds.
pub fn duration(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok().filter(|n| *n > 0)?;
    let (_, factor) = units.iter().find(|(unit, _)| *unit == &text[end..])?;
    number.checked_mul(*factor).filter(|total| *total <= MAX_DURATION)
}

/// Returns a duration in milliseconds as a document writes it, in the largest unit without a fraction.
pub fn shown(ms: u64) -> String {
    let (unit, length) =
        UNITS.into_iter().rev().find(|(_, length)| ms >= *length && ms.is_multiple_of(*length)).unwrap_or(UNITS[0]);
    format!("{}{unit}", ms / length)
}

/// Deserializes a duration in milliseconds. `help` describes its form.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
    units: &[(&str, u64)],
    help: &str,
) -> Result<u64, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => {
            duration(&text, units).ok_or_else(|| D::Error::custom(format_args!("is not a duration above 0\n{help}")))
        }
        Value::Number(number) => {
            Err(D::Error::custom(format_args!("is {number}, without a unit\n{help}; {number}s if seconds are meant")))
        }
        _ => Err(D::Error::invalid_type(Unexpected::Other("no text"), &"a duration")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn durations_need_a_unit_and_stay_in_bounds() {
        let units = [("ms", 1), ("s", 1000)];
        for (text, expected) in rows::<(String, Option<u64>)>("durations_need_a_unit_and_stay_in_bounds") {
            assert_eq!(duration(&text, &units), expected, "{text}");
        }
    }
}
