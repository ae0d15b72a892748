//! Values of users cannot change the scripts of a plugin. The table has its headers. `tests/fuzz` tries such values in URLs,
//! headers and manifests.

use crate::harness::*;

/// Characters with a meaning in shells, URLs, templates, YAML and embeddings.
const VALUE: &str = "'; touch /tmp/pwned; $(id) `id` ../../..//@evil.example.org:80/%2e%2e?#&\\ ${params.v} @{embed: /etc/passwd} \"}\nx: y";

pub(crate) async fn values_are_not_interpreted() {
    let harness = Harness::new().await;
    harness.publish("plain@1.0.0", include_str!("documents/user-values.yaml")).await;
    // Escaped for a template, so that the plugin gets the value itself.
    let value = VALUE.replace("${", "$${").replace("@{", "@{literal: @}{");
    let document = json!({
        "apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": "a",
        "resources": {"r": {"plugin": "plain", "params": {"v": value}}},
    });
    let data = LifecycleData { document: Some(document.to_string()), ..sandbox("a", "a-uid", "plain") };
    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    let outputs = outputs(&harness.phase("a", TargetPhase::Ready).await);
    let literal = "${params.v} ${units.none.outputs.x} $${y} @{x}";
    for (name, expected) in [("literal", literal), ("variable", VALUE), ("file", VALUE)] {
        assert_eq!(outputs[name]["value"], expected, "{name}");
    }
}
