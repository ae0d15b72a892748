//! Units with `forEach`: one unit for each entry of a list that is known when the plan is made.
//!
//! Units over one list belong together: `after`, `undoes` and reads between them mean the unit of the same entry. Other
//! units wait for all entries, and read a list of outputs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ebb_engine::{Hook, MAX_UNITS};
use serde_json::{Map, Value, json};

use super::defaults::{FEWER_UNITS, MAX_ENTRIES, UNIT_STEPS};
use super::{BoundResource, CheckedPlugin, CompiledUnit, DiagnosticCollector, ExpressionRead, TextRole};
use crate::canonical::digest;
use crate::cel::convert::{self, CelOutput};
use crate::cel::{self, MAX_COST, MAX_VALUE_BYTES, ReferenceSource, ReferenceUsage, Scope, SharedCost};
use crate::template::joinable;
use crate::{HookOwner, ListEntry, ParamKind, PluginDoc, Template, UnitDoc, UnitPlan};

pub(super) const CODE: &str = "for-each";
/// The maximum number of characters of an entry in the key of its unit.
const MAX_NAME: usize = 40;
/// The bytes of a unit that are copied in one step.
const BYTES_PER_STEP: u64 = 8;
/// The characters in the digest of an entry.
const DIGEST: std::ops::Range<usize> = 7..15;

pub(super) fn list(report: &mut DiagnosticCollector, plugin: &PluginDoc, doc: &UnitDoc) -> Option<String> {
    let text = doc.for_each.as_ref()?;
    if plugin.owner != HookOwner::Plugin {
        let wrong = report.error(CODE, text.at, format!("`{}` is not a unit of a plugin", doc.name.value));
        report.push(wrong.help("move it to a plugin with a param for the list"));
        return None;
    }
    report.role = TextRole::List;
    let first = report.reads.len();
    let list = report.expression("`forEach`", text, report.units)?;
    let fits = |found: &&ExpressionRead| match &found.source {
        ReferenceSource::Param(name) if found.usage == ReferenceUsage::Whole => {
            plugin.params.iter().all(|param| param.name.value != *name || param.kind == ParamKind::Array)
        }
        source => matches!(source, ReferenceSource::Param(_)),
    };
    if let Some(found) = report.reads[first..].iter().find(|found| !fits(found)) {
        let why = if matches!(found.source, ReferenceSource::Param(_)) { ", which is no `array`" } else { "" };
        let wrong = report.error_in(CODE, &found.spot, format!("`forEach` cannot be `{}`{why}", found.source));
        report.push(wrong.help("it is a list of params with `type: array`, known before the first unit runs"));
    }
    Some(list.trim().to_owned())
}

/// Returns the list over which a unit exists: its own, that of the undo that it verifies, or the one of all units that it
/// undoes.
pub(super) fn list_of(units: &[CompiledUnit<'_>], unit: &CompiledUnit<'_>, undoes: &[usize]) -> Option<String> {
    let undo = unit.doc.verifies.as_ref().and_then(|undo| units.iter().find(|it| it.doc.name.value == undo.value));
    match undo {
        _ if unit.list.is_some() => unit.list.clone(),
        Some(undo) => undo.list.clone(),
        None => {
            let list = units[*undoes.first()?].list.as_ref();
            list.filter(|_| undoes.iter().all(|&undone| units[undone].list.as_ref() == list)).cloned()
        }
    }
}

/// Replaces the units over lists by one for each entry.
pub(super) fn expand(report: &mut DiagnosticCollector, instances: &mut [BoundResource<'_>]) {
    let (mut counts, cost) = (BTreeMap::<Hook, usize>::new(), SharedCost::new(MAX_COST));
    for instance in instances {
        if instance.checked.units.iter().all(|unit| unit.list.is_none()) {
            continue;
        }
        let mut lists = ListEntries::new();
        for unit in &instance.checked.units {
            let mut made = 1;
            if let Some(list) = &unit.list {
                if let Entry::Vacant(place) = lists.entry(list.clone()) {
                    let Some(entries) = entries(report, instance, unit, &cost) else { return };
                    place.insert(entries);
                }
                made = lists[list].len();
            }
            let count = counts.entry(unit.hook).or_default();
            *count += made;
            if *count > MAX_UNITS {
                let message = format!("`{}` has more than {MAX_UNITS} units over all resources", unit.hook.name());
                report.push(report.error("limit", instance.at, message).help(FEWER_UNITS));
                return;
            }
            let (uses, bytes) = (unit.uses.len() as u64, json!(unit.plan).to_string().len() as u64);
            if !report.spend((UNIT_STEPS * (1 + uses) + bytes / BYTES_PER_STEP) * made as u64, instance.at) {
                return;
            }
        }
        instance.checked = Arc::new(expanded(&instance.checked, &lists));
    }
}

/// The entries of a list by its expression, each with its name in the key of its unit.
type ListEntries = BTreeMap<String, Vec<(String, Value)>>;

fn expanded<'a>(checked: &CheckedPlugin<'a>, lists: &ListEntries) -> CheckedPlugin<'a> {
    let (mut units, mut places) = (Vec::new(), Vec::new());
    for unit in &checked.units {
        let first = units.len();
        let Some(list) = &unit.list else {
            units.push(unit.clone());
            places.push(first..units.len());
            continue;
        };
        units.extend(lists[list].iter().map(|(name, item)| {
            let key = format!("{}[{name}]", unit.plan.key);
            let entry = Some(ListEntry { list: list.clone(), item: item.clone() });
            CompiledUnit { plan: UnitPlan { key, entry, ..unit.plan.clone() }, ..unit.clone() }
        }));
        places.push(first..units.len());
    }
    let at = |unit: &CompiledUnit<'_>, named: &[usize]| -> Vec<usize> {
        let all = named.iter().flat_map(|&other| places[other].clone());
        all.filter(|&other| unit.plan.meets(&units[other].plan)).collect()
    };
    let edges: Vec<_> = units.iter().map(|unit| (at(unit, &unit.after), at(unit, &unit.undoes))).collect();
    for (unit, (after, undoes)) in units.iter_mut().zip(edges) {
        (unit.after, unit.undoes) = (after, undoes);
    }
    let mut by_name = HashMap::new();
    for (at, unit) in units.iter().enumerate() {
        by_name.entry(unit.doc.name.value.as_str()).or_insert(at);
    }
    CheckedPlugin { units, by_name, ..checked.clone() }
}

/// Returns the entries of the list of a unit with the params of a resource, or `None` after it has reported an error.
fn entries(
    report: &mut DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    cost: &SharedCost,
) -> Option<Vec<(String, Value)>> {
    // The check of the plugin has parsed it.
    let parsed = cel::parse(unit.list.as_ref()?, Scope::Plan).ok()?;
    let unit = format!("{}/{}", instance.name, unit.doc.name.value);
    let (mut params, mut at) = (Map::new(), instance.at);
    for reference in &parsed.references {
        let ReferenceSource::Param(name) = &reference.source else { continue };
        let given = instance.params.get(name.as_str());
        at = given.map_or(at, |given| given.at);
        let value = match given.map(|given| &given.value) {
            None => Value::Null,
            Some(Template::Literal(value)) => value.clone(),
            Some(_) => {
                let message = format!("param `{name}` decides which units `{unit}` has, so it cannot be computed");
                report.push(
                    report.error(CODE, at, message).help("write its value: the plan has one unit for each entry"),
                );
                return None;
            }
        };
        if !report.spend(value.to_string().len() as u64, at) {
            return None;
        }
        params.insert(name.clone(), value);
    }
    let params = Value::Object(params);
    let mut refuse = |why: String, help: &str| {
        report.push(report.error(CODE, at, format!("`forEach` of `{unit}` {why}")).help(help));
        None
    };
    let help = "such as `[orders, payments]`";
    let variables = BTreeMap::from([("params", convert::from_json(&params))]);
    let items = match cel::evaluate_within(&parsed, &variables, cost, MAX_VALUE_BYTES) {
        Ok(CelOutput::Json(Value::Array(items))) => items,
        Ok(CelOutput::Json(Value::Null) | CelOutput::Nothing) => Vec::new(),
        Ok(_) => return refuse("gives no list".to_owned(), help),
        Err(error) => return refuse(format!("fails: {error}"), help),
    };
    if items.len() > MAX_ENTRIES {
        let why = format!("gives {} entries; the limit is {MAX_ENTRIES}", items.len());
        return refuse(why, "use several resources, or let one unit do the work of several");
    }
    let mut entries: Vec<(String, Value)> = Vec::with_capacity(items.len());
    for (number, item) in (1..).zip(items) {
        let name = entry_name(&item);
        if !matches!(item, Value::String(_) | Value::Number(_) | Value::Bool(_)) {
            return refuse(format!("gives the entry {number}, which is not a text, number or boolean"), help);
        }
        if entries.iter().any(|(other, _)| *other == name) {
            return refuse(format!("gives the entry `{name}` twice"), "leave one of them out");
        }
        entries.push((name, item));
    }
    Some(entries)
}

/// Returns an entry as a part of a key: letters, digits, `-`, `_` and `.`. One that differs from its text has a digest.
fn entry_name(item: &Value) -> String {
    let text = joinable(item.clone());
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = text.chars().map(plain).take(MAX_NAME).collect();
    if name == text && !name.is_empty() { name } else { format!("{name}-{}", &digest(&text)[DIGEST]) }
}
