//! Tests plans, their edges and their digests.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::fmt::Write as _;

use ebb_engine::Hook;
use serde_json::json;

use super::fixtures::{SHARED_PG, TENANT_DB, TOPICS, WIRED, alone, compiled, pair, plan_edges, planned, plugins};
use crate::plan::ManifestConditions;
use crate::render::response_value;
use crate::tests::{repeated, rows};
use crate::{KnownOutputs, Plan, PluginDoc, TargetFacts, UnitContext, UnitRef, compile, load};

fn named(plan: &Plan, at: UnitRef) -> String {
    plan.unit(at).map(|unit| unit.key.clone()).unwrap_or_default()
}

/// Returns the units with their reads, undos and edges.
pub(super) fn outline(plan: &Plan) -> String {
    let mut text = String::new();
    for hook in &plan.hooks {
        let _ = writeln!(text, "{}", hook.hook.name());
        for unit in &hook.units {
            let _ = writeln!(text, "  {} ({})", unit.key, unit.action.kind());
            for read in &unit.reads {
                let optional = if read.optional { "?" } else { "" };
                let _ = writeln!(text, "    reads {}.{}{optional}", named(plan, read.at), read.output);
            }
            for at in &unit.undoes {
                let _ = writeln!(text, "    undoes {}", named(plan, *at));
            }
        }
    }
    for (hook, from, to, reason) in plan_edges(plan) {
        let _ = writeln!(text, "{}: {from} -> {to} {reason:?}", hook.name());
    }
    text
}

#[test]
fn a_sandbox_with_connected_resources() {
    let (plan, warnings) = compiled(WIRED, &[TENANT_DB, SHARED_PG]).unwrap();
    let warned: Vec<String> = warnings.iter().map(|warning| warning.plain()).collect();
    insta::assert_snapshot!("wired_outline", format!("{}\n{}", outline(&plan), warned.join("\n")));
    insta::assert_snapshot!("wired_plan", serde_json::to_string_pretty(&plan).unwrap());
    assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
}

#[test]
fn wrong_lists_are_refused() {
    for (changes, expected) in rows::<(Vec<(String, String)>, String)>("wrong_lists_are_refused") {
        let text = changes.iter().fold(TOPICS.to_owned(), |text, (from, to)| text.replace(from, to));
        let error = pair(&text).unwrap_err().plain();
        assert!(error.contains(&expected), "{expected}: {error}");
    }
    let refusal = "error[limit]: `preStart` has more than 1000 units over all resources";
    for (parts, count) in rows::<(Vec<(String, usize)>, Option<usize>)>("lists_make_at_most_a_thousand_units") {
        let made = pair(&repeated(&parts)).map(|plan| plan.hooks[0].units.len());
        assert_eq!(made.map_err(|errors| errors.plain().contains(refusal)), count.ok_or(true));
    }
}

#[test]
fn a_verification_shows_what_is_left() {
    let plan = alone(include_str!("../../../tests/plans/verification.yaml"));
    let (facts, known) = (TargetFacts::default(), KnownOutputs::new());
    let at = UnitRef { hook: Hook::PostStop, unit: 1 };
    let context = UnitContext { plan: &plan, at, facts: &facts, known: &known };
    let is_shown = |body| context.is_shown(&response_value(200, Default::default(), body));
    assert_eq!((is_shown(json!([])), is_shown(json!([1]))), (Ok(false), Ok(true)));
    assert!(is_shown(json!(5)).is_err());
}

/// The outputs of Signadot's steps stay in the cluster unless the document opens them. A param of such a plugin can get
/// a sensitive value. An update to a document that closes or opens outputs replaces nothing.
#[test]
fn outputs_of_signadot_plugins_are_sensitive() {
    let plugin = "name: db\nspec:\n  runner: {image: alpine}\n  create:\n  - name: make\n    script: \"#!/bin/sh\"\n    outputs: [{name: url, valueFromPath: /url}, {name: name, valueFromPath: /name}]\n  - name: seed\n    script: \"#!/bin/sh\"\n    inputs: [{name: url, valueFromStep: {name: make, output: url}}, {name: from, valueFromSandbox: true}]\n";
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  a: {plugin: db}\n  b: {plugin: db, params: {from: '${resources.a.outputs[\"make.url\"]}'}}\nenv: {URL: '${resources.a.outputs[\"make.url\"]}'}\n";
    let planned = |ebb: &str| compiled(sandbox, &[&format!("{plugin}{ebb}")]).unwrap().0;
    let closed = planned("");
    for (ebb, expected) in [
        ("", [true, true]),
        ("ebb: {outputs: [make.name]}\n", [true, false]),
        ("ebb: {outputs: open}\n", [false, false]),
    ] {
        let plan = planned(ebb);
        let outputs = &plan.hooks[0].units[0].outputs;
        assert_eq!(["url", "name"].map(|name| outputs[name].sensitive), expected, "{ebb}");
        let public = &plan.resources["a"].outputs;
        assert_eq!(["make.url", "make.name"].map(|name| public[name].sensitive), expected, "{ebb}");
        assert_eq!(compile::update(&plan, &closed, |_| true), Ok(None), "{ebb}");
    }
    // A cluster can open the outputs as well.
    let opened: Vec<PluginDoc> = plugins(&[plugin]).unwrap().iter().map(PluginDoc::with_open_outputs).collect();
    let document = load::sandbox("sandbox.yaml", sandbox, &load::NoFiles, &load::DocumentVars::none()).unwrap();
    assert_eq!(super::fixtures::planned(&document, &opened).unwrap().0, planned("ebb: {outputs: open}\n"));
}

#[test]
fn each_manifest_has_its_conditions() {
    let each = ManifestConditions::Each(vec![None, Some("object.a".to_owned())]);
    assert_eq!([each.of(0), each.of(1), each.of(2)], [None, Some("object.a"), None]);
    let first = ManifestConditions::First("object.b".to_owned());
    assert_eq!([first.of(0), first.of(1)], [Some("object.b"), None]);
}

/// Collections of InfraKit are plugins whose units refer to each other.
#[test]
fn collections() {
    let text = |name: &str| std::fs::read_to_string(format!("{}/{name}", super::super::loading::folder())).unwrap();
    let (plan, warnings) = compiled(&text("collection.yaml"), &[]).unwrap();
    assert_eq!(warnings, []);
    let public: Vec<&str> = plan.resources["collection"].outputs.keys().map(String::as_str).collect();
    insta::assert_snapshot!(format!(
        "{}\n{}\n{public:#?}",
        outline(&plan),
        serde_json::to_string_pretty(&plan.hooks[0].units).unwrap()
    ));
    let (documents, _) =
        load::documents("x.yaml", &text("unrendered.yaml"), &load::NoFiles, &load::DocumentVars::none()).unwrap();
    let outlines = documents.iter().map(|document| {
        let load::Document::Sandbox(sandbox) = document else { panic!("{document:?}") };
        let (plan, _) = planned(sandbox, &[]).unwrap();
        format!("{}\n{}", sandbox.name.value, outline(&plan))
    });
    insta::assert_snapshot!("unrendered_collections", outlines.collect::<String>());
    let ignored = "kind: resource\nmetadata: {name: n}\nproperties: {a: {plugin: p, KeySelector: '\\{\\{.ID\\}\\}'}}\n";
    let (_, warnings) = load::documents("x.yaml", ignored, &load::NoFiles, &load::DocumentVars::none()).unwrap();
    assert!(warnings.plain().starts_with("x.yaml:3:42: warning[no-effect]"), "{warnings}");
}

/// The numbers of edges and of steps are linear: a chain has one edge per resource in each direction.
#[test]
fn the_longest_chain_of_resources() {
    let link = |n: usize| format!("  r{n}: {{plugin: net, properties: {{up: \"@depend('r{}/ID')@\"}}}}\n", n - 1);
    let links: String = (1..1_000).map(link).collect();
    let text = format!("kind: resource\nmetadata: {{name: chain}}\nproperties:\n  r0: {{plugin: net}}\n{links}");
    let (plan, _) = compiled(&text, &[]).unwrap();
    for hook in &plan.hooks {
        let edges: usize = hook.units.iter().map(|unit| unit.dependencies.len()).sum();
        assert_eq!(edges, 999, "{:?}", hook.hook);
    }
}
