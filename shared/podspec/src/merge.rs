//! Strategic merge, over values that have passed `shape`.
//!
//! Source: `k8s.io/apimachinery/pkg/util/strategicpatch` (`mergeMap`, `mergeSlice`, `normalizeElementOrder`), which the
//! cases in `tests/merges` were run through. No crate has it: k8s-openapi's `DeepMerge` knows no directives.

use serde_json::{Map, Value};

use crate::fields::{self, FieldType};

/// Replaces, deletes or merges what it stands in.
pub(crate) const DIRECTIVE: &str = "$patch";
/// The only fields that stay.
pub(crate) const RETAIN: &str = "$retainKeys";
/// The order of a merged list.
pub(crate) const ORDER: &str = "$setElementOrder/";
/// Texts that go from a list.
pub(crate) const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// The patch laid onto the base, both pod templates.
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
            if let (Some(Value::Array(items)), Some(gone)) = (base.get_mut(list), value.as_array()) {
                items.retain(|item| !gone.contains(item));
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

/// Items of the patch are merged into those of the same key, or added.
fn merge_lists(base: &[Value], patch: &[Value], key: &str, owner: Option<&str>) -> Vec<Value> {
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    let added: Vec<_> =
        patch.iter().filter(|item| matches!(directive(item).as_deref(), None | Some("merge"))).collect();
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        return added.into_iter().filter_map(|item| strip_directives(item, InsertContext::Whole)).collect();
    }
    let gone =
        |item: &Value| patch.iter().any(|it| directive(it).as_deref() == Some("delete") && same_key(it, item, key));
    let base: Vec<Value> = base.iter().filter(|item| !gone(item)).cloned().collect();
    let mut merged = base.clone();
    for item in &added {
        match merged.iter_mut().find(|it| same_key(it, item, key)) {
            Some(Value::Object(old)) => {
                if let Value::Object(new) = item {
                    *old = merge_maps(std::mem::take(old), new, owner);
                }
            }
            Some(_) => {}
            // Into nothing rather than as it is: its own directives do not stay.
            None => merged.extend(strip_directives(item, InsertContext::Whole)),
        }
    }
    let order: Vec<Value> = added.into_iter().cloned().collect();
    reorder(merged, &order, &base, key)
}

/// What `order` names comes in its order; the rest comes in the order it had in `before`, each in front of the first
/// named one that it stood in front of there.
fn reorder(items: Vec<Value>, order: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|it| same_key(it, item, key));
    let (mut named, mut rest): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    rest.sort_by_key(|item| place(before, item));
    let mut all = Vec::with_capacity(named.len() + rest.len());
    let mut named = named.into_iter().peekable();
    let mut rest = rest.into_iter().peekable();
    while let (Some(left), Some(right)) = (rest.peek(), named.peek()) {
        let first = matches!((place(before, left), place(before, right)), (Some(left), Some(right)) if left < right);
        all.extend(if first { rest.next() } else { named.next() });
    }
    all.extend(named);
    all.extend(rest);
    all
}

/// Returns true if two items are the same one: by their key, or for texts by themselves.
pub(crate) fn same_key(left: &Value, right: &Value, key: &str) -> bool {
    if key.is_empty() { left == right } else { left.get(key).is_some_and(|it| right.get(key) == Some(it)) }
}

/// Where something is that the base does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertContext {
    /// It is a field of something known: with `$patch: replace` it is nothing, as the API server has it.
    Field,
    /// It is, or is in, something that is new or replaces what was there: with `$patch: replace` it is what it says.
    Whole,
}

/// A value without directives and without what is null; nothing if it is to be nothing.
fn strip_directives(value: &Value, new: InsertContext) -> Option<Value> {
    let says = |item: &Value, directive: &str| item.get(DIRECTIVE).is_some_and(|it| it == directive);
    match value {
        Value::Object(_) if says(value, "delete") || (says(value, "replace") && new == InsertContext::Field) => None,
        Value::Object(map) => Some(Value::Object(strip_map(map, new))),
        // An item that replaces its list is no item.
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
