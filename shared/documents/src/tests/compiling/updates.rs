//! Merged plans of changed documents.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::{Hook, ResourceEffect};
use serde::Deserialize;
use serde_json::Value;

use super::fixtures::compiled;
use crate::compile::{self, PlanUpdate, UpdateError};
use crate::{Plan, TargetFacts, UnitPlan, UnitRef};

/// A database with an undo.
pub(super) const DATABASE: &str = include_str!("../../../tests/updates/db.yaml");

pub(super) fn plan(rest: &str) -> Plan {
    let [others, late] =
        [include_str!("../../../tests/updates/plugins.yaml"), include_str!("../../../tests/updates/late.yaml")];
    plan_with(rest, &[DATABASE, others, late])
}

fn plan_with(rest: &str, plugins: &[&str]) -> Plan {
    compiled(&format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\n{rest}"), plugins).unwrap().0
}

fn resources(text: &str) -> Plan {
    plan(&format!("resources: {{{text}}}\n"))
}

fn update(current: &Plan, wanted: &Plan) -> PlanUpdate {
    let made = compile::update(current, wanted, |_| true).unwrap().expect("the documents differ");
    assert!(made.plan.hooks.iter().all(|hook| hook.graph().is_ok()));
    made
}

/// Returns the units of a hook with the units that they wait for, undo and read, and their clusters.
fn units(plan: &Plan, hook: Hook) -> Vec<String> {
    let Some(of) = plan.hook_plan(hook) else { return Vec::new() };
    let named = |at: UnitRef| named(plan, at);
    let line = |unit: &UnitPlan| {
        let mut line = unit.key.clone();
        let after: Vec<&str> = unit.dependencies.iter().map(|&at| of.units[at as usize].key.as_str()).collect();
        for (word, list) in [
            ("after", after.join(" ")),
            ("undoes", unit.undoes.iter().map(|&at| named(at)).collect::<Vec<_>>().join(" ")),
            ("reads", unit.reads.iter().map(|read| named(read.at)).collect::<Vec<_>>().join(" ")),
            ("unless", unit.unless.iter().map(|&at| named(at)).collect::<Vec<_>>().join(" ")),
            ("in", unit.cluster.clone().unwrap_or_default()),
        ] {
            if !list.is_empty() {
                line += &format!(" {word} {list}");
            }
        }
        line
    };
    of.units.iter().map(line).collect()
}

/// Returns the hook and the key of a unit.
fn named(plan: &Plan, at: UnitRef) -> String {
    format!("{}:{}", at.hook, plan.unit(at).unwrap().key)
}

/// A change of a document. The file describes its keys.
#[serde_with::apply(bool => #[serde(default)], BTreeMap => #[serde(default)], Vec => #[serde(default)])]
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UpdateStep {
    document: String,
    plugin: BTreeMap<String, Value>,
    from: Option<usize>,
    open: Vec<String>,
    is_same: bool,
    fixed: Option<String>,
    effects: BTreeMap<String, ResourceEffect>,
    units: BTreeMap<String, Vec<String>>,
    some: BTreeMap<String, Vec<String>>,
    secret_clusters: Option<Vec<String>>,
    stores_clusters: Option<bool>,
}

#[derive(Deserialize)]
struct UpdateCase {
    case: String,
    steps: Vec<UpdateStep>,
}

impl UpdateStep {
    fn wanted(&self) -> Plan {
        if self.plugin.is_empty() {
            return plan(&self.document);
        }
        let hooks: String = self.plugin.iter().map(|(hook, units)| format!("{hook}: {units}\n")).collect();
        plan_with(&self.document, &[&format!("{}{hooks}", include_str!("../../../tests/updates/touched.yaml"))])
    }

    /// Returns the plan after the step, or `None` without a change.
    fn taken(&self, plans: &[Option<Plan>], case: &str) -> Option<Plan> {
        let wanted = self.wanted();
        let Some(last) = plans.len().checked_sub(1) else {
            let is_change = self.from.is_some() || self.is_same || self.fixed.is_some();
            assert!(!is_change && self.open.is_empty() && self.effects.is_empty(), "{case}: {}", self.document);
            return Some(wanted);
        };
        let current = plans[self.from.unwrap_or(last)].as_ref().unwrap();
        let is_done = |at: UnitRef| !self.open.contains(&named(current, at));
        match (compile::update(current, &wanted, is_done), self.fixed.as_deref()) {
            (Err(UpdateError::Fixed(field)), Some(fixed)) => assert_eq!(field, fixed, "{case}"),
            (Ok(None), None) => assert!(self.is_same, "{case}: {}", self.document),
            (Ok(Some(made)), None) if !self.is_same => {
                assert_eq!(made.resources, self.effects, "{case}: {}", self.document);
                assert_eq!((&made.plan.target, &made.plan.env), (&wanted.target, &wanted.env), "{case}");
                let key = |plan: &Plan, name: &str| TargetFacts::default().own(plan, name, "key");
                for name in made.plan.resources.keys().filter(|name| current.resources.contains_key(*name)) {
                    let is_replaced = self.effects.get(name) == Some(&ResourceEffect::Replaced);
                    assert_eq!(key(&made.plan, name) != key(current, name), is_replaced, "{case}: {}", self.document);
                }
                return Some(Plan::from_json(&made.plan.to_json()).unwrap());
            }
            (other, _) => panic!("{case}: {}: {other:?}", self.document),
        }
        let has_plan = !self.effects.is_empty() || !self.units.is_empty() || !self.some.is_empty();
        let has_clusters = self.secret_clusters.is_some() || self.stores_clusters.is_some();
        assert!(!has_plan && !has_clusters, "{case}: {}", self.document);
        None
    }
}

#[test]
fn changes_have_these_effects_and_units() {
    let cases: Vec<UpdateCase> = serde_saphyr::from_str(include_str!("../../../tests/updates/cases.yaml")).unwrap();
    for UpdateCase { case, steps } in &cases {
        let mut plans: Vec<Option<Plan>> = Vec::new();
        for step in steps {
            let taken = step.taken(&plans, case);
            if let Some(plan) = &taken {
                assert!(plan.hooks.iter().all(|hook| hook.graph().is_ok()), "{case}");
                let all: BTreeMap<String, Vec<String>> =
                    plan.hooks.iter().map(|hook| (hook.hook.to_string(), units(plan, hook.hook))).collect();
                for (hook, expected) in &step.units {
                    assert_eq!(all.get(hook).unwrap_or(&Vec::new()), expected, "{case}: {hook}");
                }
                for (hook, expected) in &step.some {
                    assert!(expected.iter().all(|unit| all[hook].contains(unit)), "{case}: {hook}: {all:#?}");
                }
                if let Some(expected) = &step.secret_clusters {
                    let expected: BTreeSet<_> = expected.iter().map(|cluster| Some(cluster.as_str())).collect();
                    assert_eq!(plan.secret_clusters(), expected, "{case}: {}", step.document);
                }
                if let Some(expected) = step.stores_clusters {
                    assert_eq!(plan.to_json().contains("formerSecretClusters"), expected, "{case}: {}", step.document);
                }
            }
            plans.push(taken);
        }
    }
}

const WIRED: &str = "db: {plugin: db}, search: {plugin: search, params: {dsn: \"${resources.db.outputs.dsn}\"}}";

#[test]
fn a_former_resource_reads_what_it_was_made_with() {
    let one = resources(WIRED);
    let made = update(&one, &resources(&WIRED.replace("{plugin: db}", "{plugin: db, params: {rows: 2}}")));
    assert_eq!(made.plan.resources["search"].outputs["url"].reads[0].at.hook, Hook::Update(1));
    let former = |name: &str| made.plan.resource(name).unwrap().params["rows"].clone();
    assert_ne!(former("db"), former("db~1"));
    assert_eq!(made.plan.resource_read("search~1", "db").unwrap().0, "db~1");
    assert_eq!(made.plan.resource_read("search", "db").unwrap().0, "db");
}

#[test]
fn an_update_reads_the_params_before_it() {
    let document = |database: &str| {
        resources(&format!(
            "{database}: {{plugin: db}}, r: {{plugin: moved, params: {{of: \"${{resources.{database}.outputs.dsn}}\"}}}}"
        ))
    };
    let one = document("a");
    let made = update(&one, &document("b"));
    // Neither former resources nor units of `update` are in the content of the plan.
    assert_eq!(compile::content(&made.plan), compile::content(&document("b")));
    let before = |plan: &Plan, number: u32| {
        let (reader, resource) = plan.resource_before("r", number).unwrap();
        let database = if resource.params["of"] == one.resources["r"].params["of"] { "a" } else { "b" };
        plan.resource_read(reader, database).unwrap().0.to_owned()
    };
    assert_eq!(before(&made.plan, 1), "a~1");
    let next = update(&made.plan, &document("c"));
    assert_eq!(before(&next.plan, 2), "b~2");
    // After a failed update, the params are those before it.
    let failed = |at: UnitRef| made.plan.unit(at).unwrap().key != "r/move";
    let next = compile::update(&made.plan, &document("c"), failed).unwrap().unwrap();
    assert_eq!(before(&next.plan, 2), "a~1");
    // A resource whose units do not read them keeps no earlier params.
    let text = |rows: u32| resources(&format!("x: {{plugin: reseeded, params: {{rows: {rows}}}}}"));
    assert_eq!(update(&text(1), &text(2)).plan.update.unwrap().former, BTreeMap::new());
}
