//! Parses an overlay and merges it onto a template.

use serde_json::{Map, Value};

use crate::podspec::merge::strategic;
use crate::podspec::reserved;
use crate::podspec::violation::{PodspecViolation, ViolationList};

/// The maximum size of an overlay in bytes: a quarter of the limit of a cluster object.
const MAX_OVERLAY: usize = 256 << 10;

/// Parses an overlay as YAML with the booleans of YAML 1.1, like Kubernetes. An empty text is an empty overlay. Returns
/// an error if the text is not YAML or not a mapping.
pub fn parse(text: &str) -> Result<Value, PodspecViolation> {
    let refusal = |why: String, help: &str| PodspecViolation { path: String::new(), why, help: help.to_owned() };
    if text.len() > MAX_OVERLAY {
        let why = format!("the pod template has {} bytes, more than {MAX_OVERLAY}", text.len());
        return Err(refusal(why, "put large data into a ConfigMap"));
    }
    let value: Value = if text.trim().is_empty() {
        Value::Null
    } else {
        serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
            let why = format!("the pod template is not YAML: {}", error.without_snippet());
            refusal(why, "write YAML with `metadata` and `spec`")
        })?
    };
    match value {
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Object(mut map) => {
            // Some authors write the header of a PodTemplate.
            map.retain(|key, _| !["apiVersion", "kind"].contains(&key.as_str()));
            Ok(Value::Object(map))
        }
        _ => Err(refusal("the pod template is not a mapping".to_owned(), "write a mapping with `metadata` and `spec`")),
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_documents: 1,
            max_aliases: 1_000,
            max_nodes: 100_000,
            max_total_scalar_bytes: MAX_OVERLAY,
        },
        with_snippet: false,
    }
}

/// Merges an overlay onto Ebb's base template, like [`strategic`](crate::podspec::strategic). The API server rejects unknown
/// fields.
///
/// # Errors
/// Returns a violation for each change of a reserved part: names with [`RESERVED_PREFIX`](crate::podspec::RESERVED_PREFIX), and
/// image and command of the container `main`.
pub fn merge(base: &Value, overlay: &Value) -> Result<Value, Vec<PodspecViolation>> {
    let merged = strategic(base, overlay);
    let mut report = ViolationList::default();
    reserved::check(base, &merged, &mut report);
    if report.0.is_empty() { Ok(merged) } else { Err(report.0) }
}
