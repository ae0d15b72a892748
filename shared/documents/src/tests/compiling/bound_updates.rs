//! Merged plans of changed documents with `bind`.

use std::collections::BTreeMap;

use ebb_engine::{Hook, ResourceEffect};

use super::updates::{plan, plan_with, resources, units, update};
use crate::plan::Plan;

fn changes(names: &[(&str, ResourceEffect)]) -> BTreeMap<String, ResourceEffect> {
    names.iter().map(|(name, change)| ((*name).to_owned(), *change)).collect()
}

/// The new objects of `bind` come first, and take over the former ones. What remains of these is removed afterwards.
#[test]
fn bound_objects_change_in_place() {
    let document = |rows: u32, key: &str| {
        let data = format!("{{{key}: \"${{resources.db.outputs.dsn}}\"}}");
        let bind = format!("bind: [{{secret: {{namespace: web, name: db}}, data: {data}}}]\n");
        plan(&format!("resources: {{db: {{plugin: db, params: {{rows: {rows}}}}}}}\n{bind}"))
    };
    let current = document(1, "URL");
    let first = "bind/secret-1 after db/create reads preStart:db/create";
    assert_eq!(units(&current, Hook::PreStart)[2], first);
    let renamed = update(&current, &document(1, "DSN"));
    assert_eq!(renamed.resources, changes(&[("bind", ResourceEffect::Updated)]));
    assert_eq!(
        units(&renamed.plan, Hook::Update(1)),
        [
            "bind~1/secret-1.removal after bind/secret-1 undoes preStart:bind~1/secret-1",
            "bind/secret-1 reads preStart:db/create",
        ]
    );
    let replaced = update(&current, &document(2, "URL"));
    let expected = [("bind", ResourceEffect::Updated), ("db", ResourceEffect::Replaced)];
    assert_eq!(replaced.resources, changes(&expected));
    assert_eq!(
        units(&replaced.plan, Hook::Update(1)),
        [
            "db~1/drain",
            "db~1/drop after db~1/drain undoes preStart:db~1/create reads preStart:db~1/create",
            "bind~1/secret-1.removal after db~1/drain bind/secret-1 undoes preStart:bind~1/secret-1",
            "db/create after db~1/drop",
            "db/seed after db/create reads update-1:db/create",
            "bind/secret-1 after db/create reads update-1:db/create",
        ]
    );
    for plan in [&renamed.plan, &replaced.plan] {
        let undo = units(plan, Hook::PostStop).into_iter().find(|unit| unit.starts_with("bind/")).unwrap();
        assert_eq!(undo, "bind/secret-1.removal undoes update-1:bind/secret-1");
    }
    // Without `bind`, its objects are removed before the resource that they name.
    let without = update(&current, &plan("resources: {db: {plugin: db, params: {rows: 2}}}\n"));
    assert_eq!(without.resources["bind"], ResourceEffect::Removed);
    let undo = units(&without.plan, Hook::Update(1)).into_iter().find(|unit| unit.starts_with("db~1/drop")).unwrap();
    assert!(undo.contains("after bind~1/secret-1.removal"), "{undo}");
    // Without `bind`, a resource may have its name.
    let named = |rows: u32| resources(&format!("bind: {{plugin: db, params: {{rows: {rows}}}}}"));
    let made = update(&named(1), &named(2));
    assert_eq!(made.resources, changes(&[("bind", ResourceEffect::Replaced)]));
    assert!(units(&made.plan, Hook::Update(1)).contains(&"bind/create after bind~1/drop".to_owned()));
}

/// Returns the plan of a resource with this public output, which a Secret holds. `more` has further lines of its
/// plugin.
fn bound_output(database: &str, output: &str, more: &str) -> Plan {
    let plugin = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams: {database: {type: string}}\npreStart:\n  \
        create: {webhook: {url: \"https://db.example.org/create\"}, outputs: {host: {value: \"${response.body.host}\"}}}\n\
        postStop:\n  drop: {undoes: create, webhook: {url: \"https://db.example.org/drop\", body: {database: \"${params.database}\"}}}\n";
    let bind = "bind: [{secret: {namespace: web, name: db}, data: {URL: \"${resources.db.outputs.url}\"}}]\n";
    let rest =
        format!("labels: {{team: a}}\nresources: {{db: {{plugin: p, params: {{database: {database}}}}}}}\n{bind}");
    plan_with(&rest, &[&format!("{plugin}{more}outputs: {{url: \"{output}\"}}\n")])
}

/// A bound value can change although no unit that it reads runs again.
#[test]
fn bound_objects_change_with_the_values_of_outputs() {
    let (host, updates) = (
        "${units.create.outputs.host}/${params.database}",
        "update: {rename: {webhook: {url: \"https://db.example.org/rename\", body: {to: \"${params.database}\"}}}}\n",
    );
    // A param that `update` units change.
    let current = bound_output("a", host, updates);
    let renamed = update(&current, &bound_output("b", host, updates));
    assert_eq!(renamed.resources, changes(&[("bind", ResourceEffect::Updated), ("db", ResourceEffect::Updated)]));
    assert_eq!(
        units(&renamed.plan, Hook::Update(1)),
        [
            "bind~1/secret-1.removal after bind/secret-1 undoes preStart:bind~1/secret-1",
            "bind/secret-1 after db/rename reads preStart:db/create",
            "db/rename",
        ]
    );
    // The next update compares with this one.
    let again = update(&renamed.plan, &bound_output("a", host, updates));
    assert_eq!(again.resources, renamed.resources);
    // A param of a replaced resource, none of whose units the output reads.
    let text = "https://db.example.org/${params.database}";
    let made = bound_output("a", text, "");
    assert_eq!(units(&made, Hook::PreStart), ["db/create", "bind/secret-1 after db/create"]);
    assert_eq!(
        units(&made, Hook::PostStop),
        [
            "db/drop after bind/secret-1.removal undoes preStart:db/create",
            "bind/secret-1.removal undoes preStart:bind/secret-1",
        ]
    );
    let replaced = update(&made, &bound_output("b", text, ""));
    assert_eq!(replaced.resources, changes(&[("bind", ResourceEffect::Updated), ("db", ResourceEffect::Replaced)]));
    assert_eq!(
        units(&replaced.plan, Hook::Update(1)),
        [
            "db~1/drop undoes preStart:db~1/create",
            "bind~1/secret-1.removal after bind/secret-1 undoes preStart:bind~1/secret-1",
            "db/create after db~1/drop",
            "bind/secret-1 after db/create",
        ]
    );
    // The text of the output, in another version of the plugin.
    for other in [text, "${units.create.outputs.host}", "${target.labels.team}"] {
        let made = update(&current, &bound_output("a", other, updates));
        assert_eq!(made.resources, changes(&[("bind", ResourceEffect::Updated)]), "{other}");
    }
}

/// A unit of postStart waits for the bound objects, so these cannot wait for an update that reads it.
#[test]
fn bound_objects_do_not_wait_for_what_waits_for_them() {
    let document = |rows: u32, of: &str| {
        let bind = "bind: [{secret: {namespace: web, name: db}, data: {URL: \"${resources.db.outputs.url}\"}}]\n";
        let params = format!("{{database: {rows}, of: \"{of}\"}}");
        let other = if of.is_empty() { "" } else { ", late: {plugin: late}" };
        let rest = format!("resources: {{db: {{plugin: p, params: {params}}}{other}}}\n{bind}");
        let p = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nparams: {database: {type: integer}, of: {type: string}}\n\
            preStart: {create: {webhook: {url: \"https://db.example.org/create\"}, cleanup: none}}\n\
            update: {move: {webhook: {url: \"https://db.example.org/move\", body: {of: \"${params.of}\"}}}}\n\
            outputs: {url: \"https://db.example.org/${params.database}\"}\n";
        let late = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: late\n\
            postStart: {warm: {webhook: {url: \"https://db.example.org/warm\"}, cleanup: none, outputs: {id: {value: \"${response.body.id}\"}}}}\n\
            outputs: {id: \"${units.warm.outputs.id}\"}\n";
        plan_with(&rest, &[p, late])
    };
    let made = update(&document(1, ""), &document(2, "${resources.late.outputs.id}"));
    assert_eq!(made.resources["db"], ResourceEffect::Updated, "an update in place has an order");
    let found = units(&made.plan, Hook::Update(1));
    assert!(found.contains(&"bind/secret-1".to_owned()), "{found:?}");
    assert!(found.contains(&"db/move after late/warm reads update-1:late/warm".to_owned()), "{found:?}");
}
