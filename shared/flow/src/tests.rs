//! Rows of unit tests.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns rows of `tests/rows.json` by their name.
pub(crate) fn rows<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, Vec<Value>> = serde_json::from_str(include_str!("../tests/rows.json")).unwrap();
    let rows = parts.remove(name).filter(|rows| !rows.is_empty()).unwrap_or_else(|| panic!("no rows of {name}"));
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}
