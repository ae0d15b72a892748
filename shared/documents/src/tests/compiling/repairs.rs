//! Teardowns in plans that another version of a plugin repairs.

use std::collections::BTreeSet;

use ebb_engine::Hook;

use super::fixtures::{TOPICS, pair, plugins};
use super::updates::{DATABASE, plan};
use crate::compile::{self, BoundPlugin, PlanRepair, RepairError, RepairedUnit};
use crate::plan::{Action, Plan, RequiredEvidence, UnitPlan};
use crate::tests::rows;

fn repair(plan: &Plan, text: &str) -> Result<PlanRepair, RepairError> {
    let plugin = plugins(&[text]).unwrap().remove(0);
    let version = semver::Version::new(1, 0, 1);
    compile::repair(plan, &BoundPlugin { plugin: &plugin, version: &version, digest: "sha256:e" })
}

fn url(unit: &UnitPlan) -> String {
    let Action::Webhook(webhook) = &unit.action else { panic!("{unit:?}") };
    format!("{:?}", webhook.url)
}

#[test]
fn a_repair_changes_the_content_of_undos_only() {
    let current = plan(
        "resources: {x: {plugin: db}, y: {plugin: db}, s: {plugin: search, params: {dsn: \"${resources.x.outputs.dsn}\"}}}\n",
    );
    let fixed = DATABASE
        .replace("example.org/drop", "example.org/remove")
        .replace("example.org/create", "example.org/make")
        .replace(
            "params: {rows: {type: integer, default: 1}}",
            "params: {rows: {type: integer, default: 1}, force: {type: boolean, default: true}}",
        )
        .replace("postStop:\n", "postStop:\n  audit: {webhook: {url: \"https://db.example.org/audit\"}}\n");
    let PlanRepair { plan: repaired, changes, ignored } = repair(&current, &fixed).unwrap();
    let changed: Vec<(&str, &str)> =
        changes.iter().map(|change| (change.after.key.as_str(), change.from.as_str())).collect();
    assert_eq!(changed, [("x/drop", "db@0.0.0"), ("y/drop", "db@0.0.0")]);
    assert_eq!(ignored, ["x/audit", "y/audit"]);
    assert!(
        changes.iter().all(|change| url(&change.after).contains("/remove") && url(&change.before).contains("/drop"))
    );
    // The setup, the positions and the edges stay.
    for (before, after) in current.hooks.iter().zip(&repaired.hooks) {
        assert_eq!(before.hook, after.hook);
        for (before, after) in before.units.iter().zip(&after.units) {
            let edges = |unit: &UnitPlan| {
                (unit.key.clone(), unit.dependencies.clone(), unit.undoes.clone(), unit.reads.clone())
            };
            assert_eq!(edges(before), edges(after));
        }
    }
    assert_eq!(current.hook_plan(Hook::PreStart), repaired.hook_plan(Hook::PreStart));
    let resource = &repaired.resources["x"];
    assert_eq!((resource.plugin.as_str(), resource.repaired_by.as_deref()), ("db@0.0.0", Some("db@1.0.1")));
    assert!(resource.params.contains_key("force") && repaired.resources["s"] == current.resources["s"]);
    // A repetition changes nothing.
    let again = repair(&repaired, &fixed).unwrap();
    assert_eq!((again.plan.digest(), again.changes.len()), (repaired.digest(), 0));
}

#[test]
fn a_repair_changes_the_required_evidence() {
    let current = plan("resources: {x: {plugin: db}}\n");
    let evidence = |plan: &Plan| {
        let undos = plan.hooks.iter().flat_map(|hook| &hook.units).filter(|unit| !unit.undoes.is_empty());
        undos.map(|unit| unit.evidence).collect::<Vec<_>>()
    };
    let strict = repair(&current, &DATABASE.replace("name: db\n", "name: db\nevidence: confirmed\n")).unwrap();
    assert_eq!(evidence(&strict.plan), [Some(RequiredEvidence::Confirmed)]);
    assert_eq!(strict.changes.len(), 1);
    assert_eq!(evidence(&repair(&strict.plan, DATABASE).unwrap().plan), [None]);
}

#[test]
fn the_undos_of_entries_are_repaired() {
    let (plugin, _) = TOPICS.split_once("---\n").unwrap();
    let current = pair(TOPICS).unwrap();
    let fixed = plugin.replace("method: DELETE, url: \"https://kafka.", "method: DELETE, url: \"https://mq.");
    let PlanRepair { plan: repaired, changes, ignored } = repair(&current, &fixed).unwrap();
    let keys: Vec<&str> = changes.iter().map(|change| change.after.key.as_str()).collect();
    assert_eq!(keys, ["t/delete[orders]", "t/delete[a-b-c14cddc0]"]);
    assert_eq!(ignored, ["none/delete", "none/delete-verify"]);
    for RepairedUnit { before, after, .. } in &changes {
        assert!(url(after).contains("https://mq."));
        assert_eq!((&before.entry, &before.reads, &before.undoes), (&after.entry, &after.reads, &after.undoes));
    }
    assert_eq!(repaired.hook_plan(Hook::PreStart), current.hook_plan(Hook::PreStart));
    let other = plugin.replace("forEach: ${params.topics}", "forEach: ${params.topics.filter(x, true)}");
    let error = repair(&current, &other).unwrap_err().to_string();
    assert!(error.contains("has forEach `params.topics.filter(x, true)`, the plan of the target has"), "{error}");
}

#[test]
fn a_version_that_does_not_fit_is_refused() {
    let current = plan("resources: {x: {plugin: db}}\n");
    for (changes, expected) in rows::<(Vec<(String, String)>, String)>("a_version_that_does_not_fit_is_refused") {
        let text = changes.iter().fold(DATABASE.to_owned(), |text, (from, to)| text.replace(from, to));
        let error = repair(&current, &text).unwrap_err().to_string();
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn clusters_with_sensitive_outputs_of_a_repaired_teardown_stay_known() {
    let with_token = DATABASE.replace("name: db\n", "name: db\nrunners: {sh: {image: alpine}}\n").replace(
        "drain: {webhook: {url: \"https://db.example.org/drain\"}}",
        "drain: {pod: {script: '#!/bin/sh'}, outputs: {token: {file: /token, sensitive: true}}}",
    );
    let current = repair(&plan("resources: {x: {plugin: db}}\n"), &with_token).unwrap().plan;
    assert_eq!(current.secret_clusters(), BTreeSet::from([None]));
    let repaired = repair(&current, DATABASE).unwrap();
    assert_eq!(repaired.changes.len(), 1);
    assert_eq!(repaired.plan.secret_clusters(), BTreeSet::from([None]));
}
