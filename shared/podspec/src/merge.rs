//! Strategic merge of values that have passed `patch_schema`.
//!
//! Source: `k8s.io/apimachinery/pkg/util/strategicpatch` (`mergeMap`, `mergeSlice`, `normalizeElementOrder`). The
//! cases in `tests/merges` were run through it. No crate implements it: `DeepMerge` of k8s-openapi has no directives.

use serde_json::{Map, Value};

use crate::fields::{self, FieldType};

/// The directive that replaces, deletes or merges its mapping.
pub(crate) const DIRECTIVE: &str = "$patch";
/// The directive with the only fields that stay.
pub(crate) const RETAIN: &str = "$retainKeys";
/// The directive with the order of a merged list.
pub(crate) const ORDER: &str = "$setElementOrder/";
/// The directive with texts to remove from a list.
pub(crate) const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Applies a patch to a base. Both are pod templates.
pub(crate) fn apply_patch(base: &Value, patch: &Value) -> Value {
    let (Value::Object(base), Value::Object(patch)) = (base, patch) else { return base.clone() };
    Value::Object(merge_maps(base.clone(), patch, Some(fields::ROOT)))
}

fn merge_maps(mut base: Map<String, Value>, patch: &Map<String, Value>, owner: Option<&str>) -> Map<String, Value> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => return strip_map(patch, InsertContext::Whole),
        Some("delete") => return Map::new(),
        _ => {}
    }
    if let Some(kept) = patch.get(RETAIN).and_then(Value::as_array) {
        base.retain(|name, _| kept.iter().any(|it| it == name));
    }
    let before = base.clone();
    for (name, value) in patch {
        if name == DIRECTIVE || name == RETAIN || name.starts_with(ORDER) {
            continue;
        }
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(items)), Some(deleted)) = (base.get_mut(list), value.as_array()) {
                items.retain(|item| !deleted.contains(item));
            }
            continue;
        }
        merge_field(&mut base, name, value, owner);
    }
    for (name, order) in patch {
        if let (Some(list), Some(order)) = (name.strip_prefix(ORDER), order.as_array())
            && let Some(key) = owner.and_then(|owner| fields::field(owner, list)).and_then(|field| field.key)
            && let Some(Value::Array(items)) = base.get_mut(list)
        {
            let before = before.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            *items = reorder(std::mem::take(items), order, before, key);
        }
    }
    base
}

fn merge_field(base: &mut Map<String, Value>, name: &str, value: &Value, owner: Option<&str>) {
    if value.is_null() {
        base.shift_remove(name);
        return;
    }
    let field = owner.and_then(|owner| fields::field(owner, name));
    let merged = match (base.get(name), value, field.map(|field| (&field.field_type, field.key))) {
        (Some(Value::Object(old)), Value::Object(new), shape) => {
            let owner = match shape {
                Some((FieldType::Fields(owner), _)) => Some(*owner),
                _ => None,
            };
            Some(Value::Object(merge_maps(old.clone(), new, owner)))
        }
        (Some(Value::Array(old)), Value::Array(new), Some((FieldType::List(inner), Some(key)))) => {
            let owner = match &**inner {
                FieldType::Fields(owner) => Some(*owner),
                _ => None,
            };
            Some(Value::Array(merge_lists(old, new, key, owner)))
        }
        _ => strip_directives(value, InsertContext::Field),
    };
    match merged {
        Some(merged) => drop(base.insert(name.to_owned(), merged)),
        None => drop(base.shift_remove(name)),
    }
}

/// Merges items with the same key, and adds the others.
fn merge_lists(base: &[Value], patch: &[Value], key: &str, owner: Option<&str>) -> Vec<Value> {
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    let added: Vec<_> =
        patch.iter().filter(|item| matches!(directive(item).as_deref(), None | Some("merge"))).collect();
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        return added.into_iter().filter_map(|item| strip_directives(item, InsertContext::Whole)).collect();
    }
    let deleted =
        |item: &Value| patch.iter().any(|it| directive(it).as_deref() == Some("delete") && same_key(it, item, key));
    let base: Vec<Value> = base.iter().filter(|item| !deleted(item)).cloned().collect();
    let mut merged = base.clone();
    for item in &added {
        match merged.iter_mut().find(|it| same_key(it, item, key)) {
            Some(Value::Object(old)) => {
                if let Value::Object(new) = item {
                    *old = merge_maps(std::mem::take(old), new, owner);
                }
            }
            Some(_) => {}
            // A new item is inserted without its directives.
            None => merged.extend(strip_directives(item, InsertContext::Whole)),
        }
    }
    let order: Vec<Value> = added.into_iter().cloned().collect();
    reorder(merged, &order, &base, key)
}

/// Sorts items. Named ones follow `order`. The others keep their order from `before`, each in front of the first named
/// item that followed it there.
fn reorder(items: Vec<Value>, order: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let position = |list: &[Value], item: &Value| list.iter().position(|it| same_key(it, item, key));
    let (mut named, mut rest): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| position(order, item).is_some());
    named.sort_by_key(|item| position(order, item));
    rest.sort_by_key(|item| position(before, item));
    let mut all = Vec::with_capacity(named.len() + rest.len());
    let mut named = named.into_iter().peekable();
    let mut rest = rest.into_iter().peekable();
    while let (Some(left), Some(right)) = (rest.peek(), named.peek()) {
        let first =
            matches!((position(before, left), position(before, right)), (Some(left), Some(right)) if left < right);
        all.extend(if first { rest.next() } else { named.next() });
    }
    all.extend(named);
    all.extend(rest);
    all
}

/// Returns true if two items have the same key, or are the same text.
pub(crate) fn same_key(left: &Value, right: &Value, key: &str) -> bool {
    if key.is_empty() { left == right } else { left.get(key).is_some_and(|it| right.get(key) == Some(it)) }
}

/// The context of a value that is not in the base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertContext {
    /// A field of an existing mapping. With `$patch: replace` it is omitted, as by the API server.
    Field,
    /// A part of something new or replaced. `$patch: replace` has no effect.
    Whole,
}

/// Removes directives and nulls. Returns `None` if nothing remains.
fn strip_directives(value: &Value, new: InsertContext) -> Option<Value> {
    let says = |item: &Value, directive: &str| item.get(DIRECTIVE).is_some_and(|it| it == directive);
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
    let set = map.iter().filter(|(name, value)| !is_directive(name) && !value.is_null());
    set.filter_map(|(name, value)| Some((name.clone(), strip_directives(value, new)?))).collect()
}

fn is_directive(name: &str) -> bool {
    name == DIRECTIVE || name == RETAIN || name.starts_with(ORDER) || name.starts_with(DELETE_FROM)
}
