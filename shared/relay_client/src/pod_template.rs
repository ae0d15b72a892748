//! Parses overlays, and merges them onto pod templates by a strategic merge.
//!
//! Source: `k8s.io/apimachinery/pkg/util/strategicpatch` (`mergeMap`, `mergeSlice`, `normalizeElementOrder`). The
//! cases in `tests/merges` were run through it. No crate implements it: `DeepMerge` of k8s-openapi has no directives.

mod reserved_parts;

use ebb_kube::podspec::{PodspecViolation, ViolationList};
use serde_json::{Map, Value};

/// The maximum size of an overlay in bytes: a quarter of the limit of a cluster object.
const MAX_OVERLAY: usize = 256 << 10;
/// The directive that replaces, deletes or merges its mapping.
const DIRECTIVE: &str = "$patch";

/// Parses an overlay as YAML with the booleans of YAML 1.1, like Kubernetes. An empty text is an empty overlay. Returns
/// an error if the text is not YAML or not a mapping.
pub(crate) fn parse(text: &str) -> Result<Value, PodspecViolation> {
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

/// Merges an overlay onto Ebb's base template, like [`strategic`]. The API server rejects unknown fields.
///
/// # Errors
/// Returns a violation for each change of a reserved part: names with [`RESERVED_PREFIX`](ebb_kube::podspec::RESERVED_PREFIX), and
/// image and command of the container `main`.
pub(crate) fn merge(base: &Value, overlay: &Value) -> Result<Value, Vec<PodspecViolation>> {
    let merged = strategic(base, overlay);
    let mut report = ViolationList::default();
    reserved_parts::check(base, &merged, &mut report);
    if report.0.is_empty() { Ok(merged) } else { Err(report.0) }
}

/// Merges a patch onto a base by the rules of Kubernetes' strategic merge patch. `null` deletes a field.
///
/// Differences from the API server: `$patch: merge` is allowed and is the default. Directives and nulls in a new list
/// item are applied or omitted, never kept as fields. `$patch` is the only directive. An unknown field stays
/// in the result, and the API server rejects it.
pub(crate) fn strategic(base: &Value, patch: &Value) -> Value {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => Value::Object(merge_maps(base.clone(), patch)),
        _ => base.clone(),
    }
}

fn merge_maps(mut base: Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => return strip_map(patch, InsertContext::Whole),
        Some("delete") => return Map::new(),
        _ => {}
    }
    for (name, value) in patch.iter().filter(|(name, value)| !is_directive(name, value)) {
        let merged = match (base.get(name), value, key_of(name)) {
            _ if value.is_null() => None,
            (Some(Value::Object(old)), Value::Object(new), _) => Some(Value::Object(merge_maps(old.clone(), new))),
            (Some(Value::Array(old)), Value::Array(new), Some(key)) => Some(Value::Array(merge_lists(old, new, key))),
            _ => strip_directives(value, InsertContext::Field),
        };
        match merged {
            Some(merged) => drop(base.insert(name.clone(), merged)),
            None => drop(base.shift_remove(name)),
        }
    }
    base
}

/// Returns the key of a list of a pod template whose items are merged. All other lists are replaced.
fn key_of(list: &str) -> Option<&'static str> {
    Some(match list {
        "containers" | "env" | "imagePullSecrets" | "initContainers" | "volumes" => "name",
        "hostAliases" => "ip",
        "ports" => "containerPort",
        "topologySpreadConstraints" => "topologyKey",
        "volumeDevices" => "devicePath",
        "volumeMounts" => "mountPath",
        _ => return None,
    })
}

fn merge_lists(base: &[Value], patch: &[Value], key: &str) -> Vec<Value> {
    let added: Vec<_> = patch.iter().filter(|item| !says(item, "delete") && !says(item, "replace")).collect();
    if patch.iter().any(|item| says(item, "replace")) {
        return added.into_iter().filter_map(|item| strip_directives(item, InsertContext::Whole)).collect();
    }
    let deleted = |item: &Value| patch.iter().any(|it| says(it, "delete") && same_key(it, item, key));
    let base: Vec<Value> = base.iter().filter(|item| !deleted(item)).cloned().collect();
    let mut merged = base.clone();
    for item in &added {
        match (merged.iter_mut().find(|it| same_key(it, item, key)), item) {
            (Some(Value::Object(old)), Value::Object(new)) => *old = merge_maps(std::mem::take(old), new),
            // A new item is inserted without its directives.
            _ => merged.extend(strip_directives(item, InsertContext::Whole)),
        }
    }
    reorder(merged, &added, &base, key)
}

/// Sorts items. Named ones follow `order`. Each other one precedes the first named one that followed it in `before`.
fn reorder(items: Vec<Value>, order: &[&Value], before: &[Value], key: &str) -> Vec<Value> {
    let named_at = |item: &Value| order.iter().position(|it| same_key(it, item, key));
    let before_at = |item: &Value| before.iter().position(|it| same_key(it, item, key));
    let (mut named, mut rest): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| named_at(item).is_some());
    named.sort_by_key(|item| named_at(item));
    rest.sort_by_key(|item| before_at(item));
    let mut all = Vec::with_capacity(named.len() + rest.len());
    let mut named = named.into_iter().peekable();
    let mut rest = rest.into_iter().peekable();
    while let (Some(left), Some(right)) = (rest.peek(), named.peek()) {
        let first = matches!((before_at(left), before_at(right)), (Some(left), Some(right)) if left < right);
        all.extend(if first { rest.next() } else { named.next() });
    }
    all.extend(named);
    all.extend(rest);
    all
}

fn same_key(left: &Value, right: &Value, key: &str) -> bool {
    left.get(key).is_some_and(|it| right.get(key) == Some(it))
}

/// The context of a value that is not in the base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertContext {
    /// A field of an existing mapping. With `$patch: replace` it is omitted, as by the API server.
    Field,
    /// A part of a new or replaced value. `$patch: replace` has no effect.
    Whole,
}

/// Removes directives and nulls. Returns `None` if nothing remains.
fn strip_directives(value: &Value, new: InsertContext) -> Option<Value> {
    match value {
        Value::Object(_) if says(value, "delete") || (says(value, "replace") && new == InsertContext::Field) => None,
        Value::Object(map) => Some(Value::Object(strip_map(map, new))),
        // An item with `$patch: replace` only replaces the list.
        Value::Array(items) => Some(
            items.iter().filter(|item| !says(item, "replace")).filter_map(|item| strip_directives(item, new)).collect(),
        ),
        value => Some(value.clone()),
    }
}

fn strip_map(map: &Map<String, Value>, new: InsertContext) -> Map<String, Value> {
    let set = map.iter().filter(|(name, value)| !is_directive(name, value) && !value.is_null());
    set.filter_map(|(name, value)| Some((name.clone(), strip_directives(value, new)?))).collect()
}

fn says(item: &Value, directive: &str) -> bool {
    item.get(DIRECTIVE).is_some_and(|it| it == directive)
}

fn is_directive(name: &str, value: &Value) -> bool {
    name == DIRECTIVE && ["delete", "merge", "replace"].iter().any(|directive| value == directive)
}

#[cfg(test)]
#[path = "../../kube/src/generated.rs"]
mod generated;
#[cfg(test)]
mod tests;
