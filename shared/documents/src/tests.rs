//! Documents from the outside: loaded, refused, compiled, rendered.

mod compiling;
mod listed_pages;
mod loading;
mod policy_requests;
mod presets;
mod rejections;
mod sources;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Returns the rows of a test in `tests/texts.yaml`.
pub(crate) fn rows<T: DeserializeOwned>(test: &str) -> Vec<T> {
    let mut parts: BTreeMap<String, Vec<Value>> = serde_saphyr::from_str(include_str!("../tests/texts.yaml")).unwrap();
    let rows = parts.remove(test).filter(|rows| !rows.is_empty()).unwrap_or_else(|| panic!("no rows of {test}"));
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}

/// Returns a text of parts with the numbers of their repetitions. `<n>` in a part is the number of the repetition, and
/// `<blanks>` as many blanks.
pub(crate) fn repeated(parts: &[(String, usize)]) -> String {
    let text = |(part, times): &(String, usize)| match part.contains('<') {
        true => (0..*times).map(|n| part.replace("<n>", &n.to_string()).replace("<blanks>", &" ".repeat(n))).collect(),
        false => part.repeat(*times),
    };
    parts.iter().map(text).collect()
}
