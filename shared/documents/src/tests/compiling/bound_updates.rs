//! Merged plans of changed documents with `bind`.

use std::collections::BTreeMap;

use ebb_engine::{Hook, ResourceEffect};

use super::updates::{plan_with, units, update};
use crate::plan::Plan;

fn changes(names: &[(&str, ResourceEffect)]) -> BTreeMap<String, ResourceEffect> {
    names.iter().map(|(name, change)| ((*name).to_owned(), *change)).collect()
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
