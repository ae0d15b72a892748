//! Targets of other kinds than sandboxes, with resources and own hooks.

use ebb_protocol::sign;

use crate::harness::*;
use crate::request_table;

/// Returns the document of a namespace or a route group with one resource `r` of the plugin `db`.
fn document(kind: &str) -> String {
    let own = include_str!("documents/own-hooks.yaml").replace("ID", "resources.r.outputs.id");
    match kind {
        "namespace" => named("Target", "a", &format!("targetKind: namespace\nresources: {{r: {{plugin: db}}}}\n{own}")),
        _ => format!(
            "name: a\nspec:\n  match: {{label: {{key: k, value: v}}}}\nebb:\n  resources: [{{name: r, plugin: db}}]\n{}",
            own.lines().map(|line| format!("  {line}\n")).collect::<String>()
        ),
    }
}

pub(crate) async fn a_namespace_and_a_route_group_with_own_hooks() {
    let (table, test) = ("lifecycle/own_hooks.yaml", "a_namespace_and_a_route_group_with_own_hooks");
    for kind in ["namespace", "routegroup"] {
        let harness = Harness::new().await;
        let document = document(kind);
        let changed = json!(document.replace("/drain", "/wait")).to_string();
        let document = json!(document).to_string();
        let names = [("TARGET_KIND", kind), ("DOCUMENT", document.as_str()), ("CHANGED", changed.as_str())];
        request_table::play(&harness, table, test, &names).await;
        // Own units have a secret of their own.
        let secrets: Value = harness.get("/v1/plugins/_target/signing-secret").await.is(200).json();
        let secret = WebhookSecret::parse(secrets["secrets"][0].as_str().unwrap()).unwrap();
        let call = &harness.receiver.calls("POST /revert")[0];
        assert!(sign::verify(&secret.clone().into(), &call.headers, call.body.to_string().as_bytes(), now()).is_ok());
        let other = &harness.receiver.calls("POST /undo")[0];
        assert!(sign::verify(&secret.into(), &other.headers, other.body.to_string().as_bytes(), now()).is_err());
    }
}
