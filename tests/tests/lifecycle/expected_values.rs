//! Values that rows expect, by JSON pointer.

use ebb_protocol::time::parse_rfc3339;

use crate::harness::*;

/// Returns the values of a list, or the value itself.
pub(super) fn options(value: &Value) -> &[Value] {
    value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice)
}

pub(super) fn part(value: &Value, pointer: &str) -> Value {
    let found = pointer.split('/').skip(1).try_fold(value, |value, key| {
        let key = key.replace("~1", "/");
        let is_named = |entry: &&Value| {
            ["name", "unit", "hook", "path", "to", "code"].iter().any(|field| entry[field] == key.as_str())
        };
        match value {
            Value::Array(entries) => match key.parse::<usize>() {
                Ok(at) => entries.get(at),
                Err(_) => entries.iter().find(is_named),
            },
            value => value.get(&key),
        }
    });
    found.cloned().unwrap_or_default()
}

pub(super) fn later(time: &str, seconds: &str) -> Timestamp {
    let seconds: i64 = seconds.parse().unwrap();
    Timestamp(parse_rfc3339(time).unwrap().0.saturating_add_signed(seconds * 1_000))
}

/// Returns true for the expected value. `*` is any value, and `>= TIME + SECONDS` any time from this one on.
fn is_expected(found: &Value, expected: &Value) -> bool {
    let Some(least) = expected.as_str().and_then(|expected| expected.strip_prefix(">= ")) else {
        return found == expected || (expected == "*" && !found.is_null());
    };
    let (least, seconds) = least.split_once(" + ").unwrap_or((least, "0"));
    found.as_str().is_some_and(|found| later(found, "0") >= later(least, seconds))
}

/// Fails with the first value that differs or has no parent.
pub(super) fn differs(value: &Value, expected: &BTreeMap<String, Value>) -> anyhow::Result<()> {
    for (pointer, expected) in expected {
        let (parent, found) = (pointer.rsplit_once('/').map_or("", |(parent, _)| parent), part(value, pointer));
        ensure!(is_expected(&found, expected), "{pointer} is {found}");
        let parent = part(value, parent);
        ensure!(parent.is_object() || parent.is_array(), "{pointer} has no parent");
    }
    Ok(())
}
