//! From an overlay's text to the merged template.

use serde_json::{Map, Value};

use crate::merge::apply_patch;
use crate::violation::{PodspecViolation, ViolationList};
use crate::{fields, patch_schema, reserved};

/// The most bytes of an overlay: 256 KiB, a quarter of what an object in a cluster may have.
pub const MAX_OVERLAY: usize = 256 << 10;

/// An overlay's text as a value. YAML with the booleans of YAML 1.1, as Kubernetes reads it; nothing is an empty overlay.
///
/// # Errors
/// What is no YAML, or no mapping.
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
            let why = format!("the pod template is no YAML: {}", error.without_snippet());
            refusal(why, "it is YAML with `metadata` and `spec`")
        })?
    };
    match value {
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Object(mut map) => {
            // Some write the header of a PodTemplate.
            map.retain(|key, _| !["apiVersion", "kind"].contains(&key.as_str()));
            Ok(Value::Object(map))
        }
        _ => Err(refusal("the pod template is no mapping".to_owned(), "it has `metadata` and `spec`")),
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

/// The overlay laid onto the base by the rules of Kubernetes' strategic merge patch (`$patch`, `$retainKeys`,
/// `$setElementOrder/…`, `$deleteFromPrimitiveList/…`, `null` deletes).
///
/// What differs from the Go code of `k8s.io/apimachinery`: `$patch: merge` is what happens anyway rather than an error;
/// directives and `null`s inside of an item that is new to a list are followed or left out, never kept as fields; and
/// the order of a list from which one patch both deletes and that it orders, where the Go code reads a list that it has
/// already changed.
///
/// # Errors
/// All refusals: fields that do not exist, values of another type, directives that do not fit.
pub fn strategic(base: &Value, patch: &Value) -> Result<Value, Vec<PodspecViolation>> {
    let mut report = ViolationList::default();
    patch_schema::check(patch, fields::ROOT, "", &mut report);
    if report.0.is_empty() { Ok(apply_patch(base, patch)) } else { Err(report.0) }
}

/// As [`strategic`], onto a template that we made.
///
/// # Errors
/// Also what the base has of ours (names that begin with [`RESERVED_PREFIX`](crate::RESERVED_PREFIX), the container `main` with its image and
/// command) and the overlay changes. What a cluster does not allow is not asked here: see
/// [`template_violations`](crate::template_violations).
pub fn merge(base: &Value, overlay: &Value) -> Result<Value, Vec<PodspecViolation>> {
    let merged = strategic(base, overlay)?;
    let mut report = ViolationList::default();
    reserved::check(base, &merged, &mut report);
    if report.0.is_empty() { Ok(merged) } else { Err(report.0) }
}
