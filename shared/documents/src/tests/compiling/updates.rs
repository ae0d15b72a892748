//! Merged plans of changed documents.

use std::collections::BTreeMap;

use ebb_engine::{Hook, ResourceEffect};

use super::fixtures::compiled;
use crate::compile::{self, PlanUpdate, UpdateError};
use crate::plan::{PLUGIN_UPDATE, Plan, UnitRef};

pub(super) const DATABASE: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: db
params: {rows: {type: integer, default: 1}}
preStart:
  create: {webhook: {url: "https://db.example.org/create"}, outputs: {dsn: {value: "${response.body.dsn}"}}}
  seed: {webhook: {url: "https://db.example.org/seed", body: {dsn: "${units.create.outputs.dsn}", rows: "${params.rows}"}}}
preStop:
  drain: {webhook: {url: "https://db.example.org/drain"}}
postStop:
  drop: {webhook: {url: "https://db.example.org/drop", body: {dsn: "${units.create.outputs.dsn}", rows: "${params.rows}"}}}
outputs: {dsn: "${units.create.outputs.dsn}"}
"##;

const SEARCH: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: search
params: {dsn: {type: string}, size: {type: string, default: small}}
preStart:
  index: {webhook: {url: "https://search.example.org/index", body: {dsn: "${params.dsn}"}}, outputs: {url: {value: "${response.body.url}"}}}
postStart:
  warm: {webhook: {url: "https://search.example.org/warm", body: {url: "${units.index.outputs.url}"}}}
postStop:
  unindex: {webhook: {url: "https://search.example.org/unindex", body: {url: "${units.index.outputs.url}", dsn: "${params.dsn}"}}}
outputs: {url: "${units.index.outputs.url}"}
"##;

/// A database that changes its rows in place.
const RESEEDED: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: reseeded
params: {rows: {type: integer, default: 1}, of: {type: string, default: ""}}
preStart:
  create: {webhook: {url: "https://db.example.org/create", body: {of: "${params.of}"}}, outputs: {dsn: {value: "${response.body.dsn}"}}}
update:
  check: {webhook: {url: "https://db.example.org/check", body: {of: "${params.of}"}}, outputs: {n: {value: "${response.body.n}"}}}
  reseed: {webhook: {url: "https://db.example.org/reseed", body: {dsn: "${units.create.outputs.dsn}", n: "${units.check.outputs.n}", rows: "${params.rows}"}}}
postStop:
  drop: {webhook: {url: "https://db.example.org/drop", body: {dsn: "${units.create.outputs.dsn}"}}}
outputs: {dsn: "${units.create.outputs.dsn}"}
"##;

/// A resource that moves from one database to another.
const MOVED: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: moved
params: {of: {type: string}}
preStart:
  make: {webhook: {url: "https://db.example.org/make"}}
update:
  move: {webhook: {url: "https://db.example.org/move", body: {from: "${old.params.of}", to: "${params.of}"}}}
postStop:
  drop: {undoes: make, webhook: {url: "https://db.example.org/drop"}}
"##;

pub(super) fn plan(rest: &str) -> Plan {
    plan_with(rest, &[DATABASE, SEARCH, RESEEDED, MOVED])
}

/// Returns the plan of a document with these plugins.
pub(super) fn plan_with(rest: &str, plugins: &[&str]) -> Plan {
    compiled(&format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\n{rest}"), plugins).unwrap().0
}

pub(super) fn resources(text: &str) -> Plan {
    plan(&format!("resources: {{{text}}}\n"))
}

pub(super) fn update(current: &Plan, wanted: &Plan) -> PlanUpdate {
    let made = compile::update(current, wanted, |_| true).unwrap().expect("the documents differ");
    assert!(made.plan.hooks.iter().all(|hook| hook.graph().is_ok()));
    made
}

/// Returns the units of a hook with the units that they wait for, undo and read.
pub(super) fn units(plan: &Plan, hook: Hook) -> Vec<String> {
    let Some(of) = plan.hook_plan(hook) else { return Vec::new() };
    let named = |at: UnitRef| format!("{}:{}", at.hook, plan.unit(at).unwrap().key);
    let line = |unit: &crate::plan::UnitPlan| {
        let mut line = unit.key.clone();
        let after: Vec<&str> = unit.dependencies.iter().map(|&at| of.units[at as usize].key.as_str()).collect();
        for (word, list) in [
            ("after", after.join(" ")),
            ("undoes", unit.undoes.iter().map(|&at| named(at)).collect::<Vec<_>>().join(" ")),
            ("reads", unit.reads.iter().map(|read| named(read.at)).collect::<Vec<_>>().join(" ")),
            ("unless", unit.unless.iter().map(|&at| named(at)).collect::<Vec<_>>().join(" ")),
        ] {
            if !list.is_empty() {
                line += &format!(" {word} {list}");
            }
        }
        line
    };
    of.units.iter().map(line).collect()
}

const WIRED: &str = "db: {plugin: db}, search: {plugin: search, params: {dsn: \"${resources.db.outputs.dsn}\"}}";

#[test]
fn order_and_positions_change_nothing() {
    let one = plan("resources:\n  x: {plugin: db}\n  y: {plugin: db, params: {rows: 2}}\n");
    let other = plan(
        "# again\nresources:\n  y:\n    plugin: db\n    params: {rows: 2}\n\n  x: {plugin: db, params: {rows: 1}}\n",
    );
    assert_eq!(compile::update(&one, &other, |_| true), Ok(None));
    assert_eq!(compile::update(&one, &other, |_| false), Ok(None));
}

#[test]
fn labels_environment_and_ttl_change_without_units() {
    let one = plan("resources: {x: {plugin: db}}\n");
    let other =
        plan("labels: {team: a}\nttl: 2h\nenv: {DSN: \"${resources.x.outputs.dsn}\"}\nresources: {x: {plugin: db}}\n");
    let made = update(&one, &other);
    assert_eq!((made.number, made.resources.len()), (None, 0));
    assert_eq!(made.plan.target, other.target);
    assert_eq!(made.plan.hooks, one.hooks);
    assert_eq!(made.plan.env, other.env);
    // The next update compares with this one.
    assert_eq!(compile::update(&made.plan, &other, |_| true), Ok(None));
    assert_eq!(update(&made.plan, &one).number, None);
}

/// Each commit changes the label `sha` of a pull request.
#[test]
fn a_resource_depends_on_the_labels_that_it_reads() {
    let made = |labels: &str, rows: &str| {
        plan(&format!("labels: {{{labels}}}\nresources: {{x: {{plugin: db, params: {{rows: {rows:?}}}}}}}\n"))
    };
    for (read, is_replaced) in [
        ("${size('sha')}", false),
        ("${size(target.labels.repository)}", false),
        ("${size(target.labels.sha-of-base)}", false),
        ("${size(target.labels.sha2)}", false),
        ("${size(target.labels[\"repository\"])}", false),
        ("${size(target.labels.sha)}", true),
        ("${size(target.labels.?sha.orValue(\"\"))}", true),
        ("${size(target.labels[\"sha\"])}", true),
        ("${size(target.labels['sha'])}", true),
        ("${size(target.labels)}", true),
        ("${size('target.labels.sha')}", false),
        ("${size(target['labels'].team)}", false),
        ("${size(target[\"labels\"][\"sha\"])}", true),
        ("${size(target['labels'].sha)}", true),
        ("${size(target . labels . sha)}", true),
        ("${has(target['labels'].sha) ? 1 : 2}", true),
        ("${size(target.labels[target.name])}", true),
        ("${target['labels'].all(key, key != '') ? 1 : 2}", true),
    ] {
        let rest = "repository: r, sha2: s, sha-of-base: b";
        let (one, other) = (made(&format!("sha: aa, {rest}"), read), made(&format!("sha: bbb, {rest}"), read));
        assert_eq!(!update(&one, &other).resources.is_empty(), is_replaced, "{read}");
    }
    let when = |sha: &str, condition: &str| {
        let unit = "webhook: {url: \"https://a.example.org/\"}, cleanup: none";
        plan(&format!(
            "labels: {{sha: {sha}}}\nresources: {{}}\npreStart: {{check: {{when: \"{condition}\", {unit}}}}}\n"
        ))
    };
    for (condition, is_replaced) in [("${target['labels'].sha == 'aa'}", true), ("${target.name == 'aa'}", false)] {
        let made = update(&when("aa", condition), &when("bbb", condition));
        assert_eq!(!made.resources.is_empty(), is_replaced, "{condition}");
    }
}

#[test]
fn a_changed_resource_is_undone_and_made_with_its_readers() {
    let one = resources(WIRED);
    let made = update(&one, &resources(&WIRED.replace("{plugin: db}", "{plugin: db, params: {rows: 2}}")));
    assert_eq!(made.number, Some(1));
    let replaced = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), ResourceEffect::Replaced)).collect();
    assert_eq!(made.resources, replaced(&["db", "search"]));
    let hook = Hook::Update(1);
    assert_eq!(
        units(&made.plan, hook),
        [
            "db~1/drain",
            "db~1/drop after search~1/unindex undoes preStart:db~1/create reads preStart:db~1/create",
            "search~1/unindex after db~1/drain undoes preStart:search~1/index reads preStart:db~1/create preStart:search~1/index",
            "db/create after db~1/drain db~1/drop",
            "db/seed after db/create reads update-1:db/create",
            "search/index after search~1/unindex db/create reads update-1:db/create",
            "search/warm after search~1/unindex db/seed search/index reads update-1:search/index",
        ]
    );
    assert_eq!(
        units(&made.plan, Hook::PostStop),
        [
            "db/drop after search/unindex undoes update-1:db/create reads update-1:db/create",
            "search/unindex undoes update-1:search/index reads update-1:db/create update-1:search/index",
            "db~1/drop after search~1/unindex undoes preStart:db~1/create reads preStart:db~1/create unless update-1:db~1/drop",
            "search~1/unindex undoes preStart:search~1/index reads preStart:db~1/create preStart:search~1/index unless update-1:search~1/unindex",
        ]
    );
    assert_eq!(made.plan.resources["search"].outputs["url"].reads[0].at.hook, hook);
    let former = |name: &str| made.plan.resource(name).unwrap().params["rows"].clone();
    assert_ne!(former("db"), former("db~1"));
    assert_eq!(made.plan.resource_read("search~1", "db").unwrap().0, "db~1");
    assert_eq!(made.plan.resource_read("search", "db").unwrap().0, "db");
}

#[test]
fn units_of_unchanged_resources_keep_their_places() {
    let one = resources("x: {plugin: db}, y: {plugin: db}");
    let made = update(&one, &resources("z: {plugin: db}, y: {plugin: db}"));
    let expected = [("x".to_owned(), ResourceEffect::Removed), ("z".to_owned(), ResourceEffect::Added)];
    assert_eq!(made.resources, BTreeMap::from(expected));
    let keys = |plan: &Plan| {
        plan.hook_plan(Hook::PreStart).unwrap().units.iter().map(|unit| unit.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&made.plan), ["x~1/create", "x~1/seed", "y/create", "y/seed"]);
    assert_eq!(units(&made.plan, Hook::Update(1))[2], "z/create", "nothing of the name is undone before");
    let undo = units(&made.plan, Hook::PostStop).into_iter().find(|unit| unit.starts_with("y/")).unwrap();
    assert_eq!(undo, "y/drop undoes preStart:y/create reads preStart:y/create");

    // A second update, back to the first document.
    let again = update(&made.plan, &one);
    assert_eq!(again.number, Some(2));
    assert_eq!(again.resources["x"], ResourceEffect::Added);
    assert_eq!(again.resources["z"], ResourceEffect::Removed);
    let undos: Vec<String> =
        units(&again.plan, Hook::PostStop).into_iter().filter(|unit| unit.starts_with("x")).collect();
    assert_eq!(
        undos,
        [
            "x/drop undoes update-2:x/create reads update-2:x/create",
            "x~1/drop undoes preStart:x~1/create reads preStart:x~1/create unless update-1:x~1/drop"
        ]
    );
    assert!(units(&again.plan, Hook::Update(2)).iter().all(|unit| !unit.contains("x~1")), "it is undone already");
}

#[test]
fn the_next_update_completes_a_failed_one() {
    let one = resources("x: {plugin: db}");
    let failed = update(&one, &resources("x: {plugin: db, params: {rows: 2}}"));
    let is_open = |at: UnitRef| {
        let unit = failed.plan.unit(at).unwrap();
        at.hook != Hook::Update(1) || unit.key == "x~1/drain"
    };
    let wanted = resources("x: {plugin: db, params: {rows: 3}}");
    let made = compile::update(&failed.plan, &wanted, is_open).unwrap().unwrap();
    assert_eq!(
        units(&made.plan, Hook::Update(2)),
        [
            "x~2/drain",
            "x~2/drop after x~2/drain undoes update-1:x~2/create reads update-1:x~2/create",
            "x~1/drop after x~2/drain undoes preStart:x~1/create reads preStart:x~1/create",
            "x/create after x~2/drop x~1/drop",
            "x/seed after x/create reads update-2:x/create",
        ]
    );
    let last =
        "x~1/drop undoes preStart:x~1/create reads preStart:x~1/create unless update-1:x~1/drop update-2:x~1/drop";
    assert_eq!(units(&made.plan, Hook::PostStop).pop().as_deref(), Some(last));
    // A unit of the setup that is not done makes its resource again, without any change of the resource.
    let wanted = plan("ttl: 1h\nresources: {x: {plugin: db}}\n");
    let made = compile::update(&one, &wanted, |at| at.unit == 0).unwrap().unwrap();
    assert_eq!(made.resources["x"], ResourceEffect::Replaced);
}

#[test]
fn the_place_of_a_target_is_fixed() {
    let one = plan("cluster: eu\nnamespace: a\nresources: {x: {plugin: db}}\n");
    for (field, other) in [("cluster", "namespace: a\n"), ("namespace", "cluster: eu\nnamespace: b\n")] {
        let other = plan(&format!("{other}resources: {{x: {{plugin: db}}}}\n"));
        assert_eq!(compile::update(&one, &other, |_| true), Err(UpdateError::Fixed(field)));
    }
}

#[test]
fn update_units_change_a_resource_in_place() {
    let text = |rows: u32| {
        let db = format!("{{plugin: reseeded, params: {{rows: {rows}}}}}");
        format!("resources: {{{}}}\n", WIRED.replace("{plugin: db}", &db))
    };
    let document = |rows: u32| plan(&text(rows));
    let one = document(1);
    assert_eq!(one.hook_plan(PLUGIN_UPDATE), None, "a creation has no update units");
    let made = update(&one, &document(2));
    assert_eq!(made.resources, BTreeMap::from([("db".to_owned(), ResourceEffect::Updated)]), "the reader stays");
    let hook = Hook::Update(1);
    let expected = ["db/check", "db/reseed after db/check reads update-1:db/check preStart:db/create"];
    let mut found = units(&made.plan, hook);
    found[1] = found[1].replace("preStart:db/create update-1:db/check", "update-1:db/check preStart:db/create");
    assert_eq!(found, expected);
    assert_eq!(units(&made.plan, Hook::PostStop), units(&one, Hook::PostStop));
    // An update that failed runs again, even without another change.
    let failed = |at: UnitRef| at.hook != hook || at.unit == 0;
    let again = compile::update(&made.plan, &plan(&format!("ttl: 1h\n{}", text(2))), failed).unwrap().unwrap();
    assert_eq!(again.resources["db"], ResourceEffect::Updated);
    assert_eq!(units(&again.plan, Hook::Update(2)).len(), 2);
    // A resource whose setup is incomplete is made again.
    let replaced = compile::update(&one, &document(2), |at: UnitRef| at.hook != Hook::PreStart).unwrap().unwrap();
    assert_eq!(replaced.resources["db"], ResourceEffect::Replaced);
    // Without the undo of the new version, the present one runs.
    for rows in [1, 2] {
        let mut kept = document(rows);
        for undo in kept.hooks.iter_mut().filter(|hook| hook.hook == Hook::PostStop).flat_map(|hook| &mut hook.units) {
            if undo.resource() == "db" {
                undo.undoes.clear();
            }
        }
        assert_eq!(update(&one, &kept).resources["db"], ResourceEffect::Replaced, "{rows}");
    }
}

#[test]
fn an_update_runs_between_what_it_reads_now_and_what_it_read() {
    let read = |name: &str| format!("params: {{of: \"${{resources.{name}.outputs.dsn}}\"}}");
    let one = resources(&format!("a: {{plugin: db}}, r: {{plugin: reseeded, {}}}", read("a")));
    let made = update(&one, &resources(&format!("c: {{plugin: db}}, r: {{plugin: reseeded, {}}}", read("c"))));
    assert_eq!(made.resources["r"], ResourceEffect::Updated);
    let found = units(&made.plan, Hook::Update(1));
    let of = |key: &str| found.iter().find(|unit| unit.split(' ').next() == Some(key)).unwrap();
    assert!(of("a~1/drop").contains("after a~1/drain r/reseed"), "{found:?}");
    assert!(of("r/check").starts_with("r/check after c/create "), "{found:?}");
    // If the resource that it reads now has the name of the one that it read, everything is replaced.
    let one = resources(&format!("a: {{plugin: db}}, r: {{plugin: reseeded, {}}}", read("a")));
    let other = resources(&format!("a: {{plugin: db, params: {{rows: 2}}}}, r: {{plugin: reseeded, {}}}", read("a")));
    assert_eq!(update(&one, &other).resources["r"], ResourceEffect::Replaced);
    let x = format!(
        "a: {{plugin: db}}, c: {{plugin: search, params: {{dsn: \"${{resources.a.outputs.dsn}}\"}}}}, r: {{plugin: reseeded, {}}}",
        read("a")
    );
    let y = x
        .replace("a: {plugin: db}", "a: {plugin: db, params: {rows: 2}}")
        .replace(&read("a"), "params: {of: \"${resources.c.outputs.url}\"}");
    let made = update(&resources(&x), &resources(&y));
    assert_eq!(made.resources["r"], ResourceEffect::Replaced, "it would wait for what waits for it");
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
    assert_eq!(made.resources["r"], ResourceEffect::Updated);
    let check = |plan: &Plan, number: u32, expected: &str| {
        let found = units(plan, Hook::Update(number));
        assert!(found.iter().any(|unit| unit == expected), "{found:?}");
    };
    check(&made.plan, 1, "r/move after b/create reads update-1:b/create preStart:a~1/create");
    let undo = "a~1/drop after a~1/drain r/move undoes preStart:a~1/create reads preStart:a~1/create";
    check(&made.plan, 1, undo);
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
    check(&next.plan, 2, "r/move after c/create reads update-2:c/create preStart:a~1/create");
    // A resource whose units do not read them keeps no earlier params.
    let text = |rows: u32| resources(&format!("x: {{plugin: reseeded, params: {{rows: {rows}}}}}"));
    assert_eq!(update(&text(1), &text(2)).plan.update.unwrap().former, BTreeMap::new());
}

/// A relay keeps a sensitive output until the instance ends, also if an update removes the unit.
#[test]
fn clusters_with_sensitive_outputs_of_earlier_plans_stay_known() {
    let token = |cluster: &str, sensitive: bool| {
        let unit = format!(
            "cluster: {cluster}, pod: {{script: '#!/bin/sh'}}, outputs: {{t: {{file: /t, sensitive: {sensitive}}}}}"
        );
        plan(&format!(
            "runners: {{sh: {{image: alpine}}}}\nresources: {{x: {{plugin: db}}}}\nhooks: {{wake: {{token: {{{unit}}}}}}}\n"
        ))
    };
    let without = resources("x: {plugin: db}");
    let present = token("eu", true);
    let is_stored = |plan: &Plan| plan.to_json().contains("formerSecretClusters");
    for (changed, expected, stored) in [
        (update(&present, &token("eu", false)).plan, vec![Some("eu")], true),
        (update(&present, &without).plan, vec![Some("eu")], true),
        (update(&present, &token("us", true)).plan, vec![Some("eu"), Some("us")], true),
        (update(&token("eu", false), &present).plan, vec![Some("eu")], false),
        (update(&token("eu", false), &without).plan, vec![], false),
    ] {
        assert_eq!(changed.secret_clusters().into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(is_stored(&changed), stored);
        // Later updates remove the unit, add it again and remove it again.
        let mut last = Plan::from_json(&changed.to_json()).unwrap();
        for wanted in [&resources("y: {plugin: db}"), &present, &without] {
            last = update(&last, wanted).plan;
        }
        let mut all = changed.secret_clusters();
        all.insert(Some("eu"));
        assert_eq!(last.secret_clusters(), all);
    }
}

/// Returns the plan of the resource `r`, whose plugin has these units and one of `update`.
fn updatable(units: &str, site: &str, id: &str) -> Plan {
    let head = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {sh: {image: alpine}}\n\
        params: {site: {type: string}, id: {type: string}}\n\
        update: {touch: {webhook: {url: \"https://a.example.org/touch\"}}}\n";
    let rest = format!("labels: {{id: {id}}}\nresources: {{r: {{plugin: p, params: {{site: {site}, id: {id}}}}}}}\n");
    plan_with(&rest, &[&format!("{head}{units}")])
}

/// Returns the effect of other units, another `site` and another `id` on a resource.
fn change(before: &str, after: &str, site: &str, id: &str) -> ResourceEffect {
    update(&updatable(before, "eu", "a"), &updatable(after, site, id)).resources["r"]
}

fn object(more: &str) -> String {
    let manifest = "{apiVersion: v1, kind: A, metadata: {name: \"a-${params.id}\"}}";
    format!("preStart: {{make: {{object: {{manifest: {manifest}}}{more}}}}}\n")
}

fn infrakit(interface: &str, properties: &str) -> String {
    format!("preStart: {{make: {{infrakit: {{plugin: files, interface: {interface}, properties: {properties}}}}}}}\n")
}

fn pod(more_of_undo: &str) -> String {
    let script = "pod: {script: '#!/bin/sh'}";
    format!("preStart: {{make: {{{script}}}}}\npostStop: {{drop: {{undoes: make, {script}{more_of_undo}}}}}\n")
}

const PARAM: &str = ", cluster: \"${params.site}\"";

#[test]
fn a_resource_in_another_cluster_is_undone_where_it_is() {
    let made = update(&updatable(&object(PARAM), "eu", "a"), &updatable(&object(PARAM), "us", "a"));
    assert_eq!(made.resources["r"], ResourceEffect::Replaced);
    let clusters = |hook| {
        let units = &made.plan.hook_plan(hook).unwrap().units;
        units.iter().map(|unit| (unit.key.as_str(), unit.cluster.as_deref())).collect::<Vec<_>>()
    };
    assert_eq!(clusters(Hook::Update(1)), [("r~1/make.removal", Some("eu")), ("r/make", Some("us"))]);
    assert_eq!(clusters(Hook::PostStop), [("r/make.removal", Some("us")), ("r~1/make.removal", Some("eu"))]);
    let (none, eu, us) = (object(""), object(", cluster: eu"), object(", cluster: us"));
    for (before, after, expected) in [
        (&eu, &us, ResourceEffect::Replaced),
        (&none, &eu, ResourceEffect::Replaced),
        (&eu, &none, ResourceEffect::Replaced),
        (&eu, &object(PARAM), ResourceEffect::Updated),
        (&none, &object(", cluster: default"), ResourceEffect::Updated),
        (&pod(""), &pod(", cluster: us"), ResourceEffect::Replaced),
        (&pod(", cluster: eu"), &pod(PARAM).replace("drop:", "erase:"), ResourceEffect::Updated),
        (&pod(", cluster: eu"), &pod(", cluster: us").replace("drop:", "erase:"), ResourceEffect::Replaced),
    ] {
        assert_eq!(change(before, after, "eu", "b"), expected, "{before}{after}");
    }
    assert_eq!(change(&pod(PARAM), &pod(PARAM), "us", "a"), ResourceEffect::Replaced);
    // Also if the setup is the same.
    assert_eq!(change(&pod(", cluster: eu"), &pod(", cluster: us"), "eu", "a"), ResourceEffect::Replaced);
}

#[test]
fn a_unit_with_another_kind_of_action_is_replaced() {
    let all = [object(""), infrakit("instance", "{}"), pod("")];
    for (number, before) in all.iter().enumerate() {
        for (other, after) in all.iter().enumerate() {
            let expected = if number == other { ResourceEffect::Updated } else { ResourceEffect::Replaced };
            assert_eq!(change(before, after, "eu", "b"), expected, "{before}{after}");
        }
    }
}

/// A plugin finds an instance by the key of its unit, and other resources by their properties.
#[test]
fn a_resource_that_its_properties_identify_is_replaced_with_them() {
    let named = |id: &str| format!("{{kind: group, metadata: {{name: \"{id}\"}}}}");
    let (param, label) = (named("${params.id}"), named("${target.labels.id}"));
    for interface in ["controller", "resource"] {
        for properties in [&param, &label] {
            let units = infrakit(interface, properties);
            assert_eq!(change(&units, &units, "eu", "b"), ResourceEffect::Replaced, "{units}");
            assert_eq!(change(&units, &units, "us", "a"), ResourceEffect::Updated, "{units}");
        }
        let (before, after) = (infrakit(interface, &named("x")), infrakit(interface, &named("y")));
        assert_eq!(change(&before, &after, "eu", "a"), ResourceEffect::Replaced, "{before}");
    }
    let instance = infrakit("instance", &param);
    assert_eq!(change(&instance, &instance, "eu", "b"), ResourceEffect::Updated);
}

/// A skipped unit skips its readers. What the earlier version has made is destroyed nevertheless.
#[test]
fn what_destroys_a_resource_reads_what_its_maker_read() {
    let net = "  net: {when: \"${params.site == 'us'}\", webhook: {url: \"https://a.example.org/net\"}, outputs: {id: {value: \"${response.body.id}\"}}}\n";
    let plugin = |properties: &str| {
        format!("preStart:\n{net}  make: {{infrakit: {{plugin: files, properties: {{{properties}}}}}}}\n")
    };
    let (before, after) = (plugin(""), plugin("net: \"${units.net.outputs.id}\""));
    let made = update(&updatable(&before, "eu", "a"), &updatable(&after, "eu", "a"));
    assert_eq!(made.resources["r"], ResourceEffect::Updated);
    assert_eq!(units(&made.plan, Hook::PostStop), ["r/make.removal undoes preStart:r/make"]);
    let again = update(&made.plan, &updatable(&after, "eu", "b"));
    assert_eq!(again.resources["r"], ResourceEffect::Updated);
    assert_eq!(units(&again.plan, Hook::PostStop), ["r/make.removal undoes preStart:r/make"]);
}
