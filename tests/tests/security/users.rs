//! Values of users (names, params, labels) cannot change scripts, URLs, headers or paths of a plugin.

use crate::harness::*;

/// Characters with a meaning in shells, URLs, templates, YAML and embeddings.
const VALUE: &str = "'; touch /tmp/pwned; $(id) `id` ../../..//@evil.example.org:80/%2e%2e?#&\\ ${params.v} $${v} @{embed: /etc/passwd} \"}\nx: y";

const PLUGIN: &str = r##"
params: {v: {type: string}}
runners: {sh: {image: "busybox:1"}}
preStart:
  script:
    pod:
      script: |
        #!/bin/sh -eu
        printf %s '${params.v} ${units.none.outputs.x} $${y} @{literal: @}{x}' >/tmp/literal
        printf %s "$V" >/tmp/variable
        cat /tmp/in/v >/tmp/file
        [ ! -e /tmp/pwned ]
    inputs:
      v: "${params.v}"
      again: {value: "${params.v}", path: /tmp/in/v}
    outputs: {literal: {file: /tmp/literal}, variable: {file: /tmp/variable}, file: {file: /tmp/file}}
  call:
    webhook:
      url: "RECEIVER/path/${params.v}/end?q=${params.v}&last=1"
      body: {v: "${params.v}", "${params.v}": "a key"}
outputs:
  literal: "${units.script.outputs.literal}"
  variable: "${units.script.outputs.variable}"
  file: "${units.script.outputs.file}"
"##;

fn sandbox_with_value(name: &str, plugin: &str, value: &str) -> LifecycleData {
    // Escaped for a template, so that the plugin gets the value itself.
    let value = value.replace("${", "$${").replace("@{", "@{literal: @}{").replace("$$${", "$$$${");
    let document = json!({
        "apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": name,
        "resources": {"r": {"plugin": plugin, "params": {"v": value}}},
    });
    LifecycleData { document: Some(document.to_string()), ..sandbox(name, &format!("{name}-uid"), plugin) }
}

pub(crate) async fn values_are_not_interpreted() {
    let harness = Harness::new().await;
    harness.publish("plain@1.0.0", PLUGIN).await;
    // The document escapes `${` only.
    let value = VALUE.replace("$${v} ", "");
    harness.lifecycle(LifecycleType::Created, &sandbox_with_value("a", "plain", &value)).await.is(202);
    let target = harness.phase("a", TargetState::Ready).await;
    let outputs = outputs(&target);
    let of = |name: &str| outputs[name]["value"].clone();
    assert_eq!(of("literal"), "${params.v} ${units.none.outputs.x} $${y} @{x}");
    assert_eq!(of("variable"), value.as_str());
    assert_eq!(of("file"), value.as_str());
    let order = harness.receiver.order();
    assert_eq!(order.len(), 1, "{order:?}");
    let path = order[0].strip_prefix("POST ").unwrap();
    let segments: Vec<&str> = path.split('/').collect();
    assert!(matches!(segments.as_slice(), ["", "path", _, "end"]), "{path}");
    assert!(segments[2].bytes().all(|b| b.is_ascii_alphanumeric() || b"%-._~".contains(&b)), "{path}");
    let call = &harness.receiver.calls(&order[0])[0];
    assert_eq!(call.body, json!({"v": value, "${params.v}": "a key"}));
}

pub(crate) async fn header_injection() {
    let harness = Harness::new().await;
    let text = r#"
params: {v: {type: string}}
preStart: {call: {webhook: {url: "RECEIVER/call", headers: {x-value: "${params.v}"}}}}
"#;
    harness.publish("header@1.0.0", text).await;
    for (name, value) in [("crlf", "a\r\nx-injected: 1"), ("lf", "a\nx-injected: 1"), ("nul", "a\u{0}b")] {
        harness.lifecycle(LifecycleType::Created, &sandbox_with_value(name, "header", value)).await.is(202);
        let target = harness.phase(name, TargetState::Failed).await;
        let reason = find(&target, "preStart", "call").unwrap().reason.unwrap();
        assert_eq!(json!(reason.code), "render", "{reason:?}");
        assert!(!reason.message.contains("injected"), "{reason:?}");
    }
    assert!(harness.receiver.order().is_empty());
    harness.lifecycle(LifecycleType::Created, &sandbox_with_value("plain", "header", "a: b, c")).await.is(202);
    harness.phase("plain", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /call")[0].header("x-value"), "a: b, c");
}

/// A template in the destination of a request or the path of a file is an error.
pub(crate) async fn destinations_and_paths_are_not_templates() {
    let harness = Harness::new().await;
    let refused = async |unit: &str| {
        let head = "params: {v: {type: string}}\nrunners: {sh: {image: a}}";
        let document = plugin("p@1.0.0", &format!("{head}\npreStart: {{c: {{{unit}}}}}\n"));
        let response = harness.post("/v1/plugins", json!({ "document": document })).await;
        let error = response.is_problem(422, "invalid-document").errors.remove(0);
        assert!(error.line.is_some(), "{unit}: {error:?}");
        error.code
    };
    let urls = "${params.v} https://${params.v}/a https://a.${params.v}.example.org/ https://${params.v}@example.org/ \
                https://example.org:${params.v}/ ${params.v}://example.org/ https://user:pass@example.org/ \
                file:///etc/passwd";
    for url in urls.split(' ') {
        assert_eq!(refused(&format!("webhook: {{url: \"{url}\"}}")).await, "url", "{url}");
    }
    for path in ["../x", "x", "/tmp/../etc/x", "/proc/self/environ", "/ebb/x", "/dev/null", "${params.v}"] {
        for part in ["outputs: {o: {file: \"PATH\"}}", "inputs: {i: {value: a, path: \"PATH\"}}"] {
            refused(&format!("pod: {{script: \"#!/bin/sh\"}}, {}", part.replace("PATH", path))).await;
        }
    }
    assert_eq!(harness.get("/v1/plugins").await.json::<Value>()["plugins"], json!([]));
}

/// Neither a URL of a plugin nor a redirect of a receiver can reach an internal address.
pub(crate) async fn internal_addresses() {
    let harness = Harness::new().await;
    let inside = ["http://169.254.169.254/latest/meta-data/", "http://[::ffff:a9fe:a9fe]/"];
    let mut units = String::from("preStart:\n");
    for (number, url) in inside.iter().enumerate() {
        units += &format!("  u{number}: {{retry: {{attempts: 3, backoff: 10ms}}, webhook: {{url: \"{url}\"}}}}\n");
    }
    harness.run("a", "inside", &units, TargetState::Failed).await;
    for (number, address) in inside.iter().enumerate() {
        let unit = harness.unit("a", "preStart", &format!("u{number}"), UnitState::Failed).await;
        let reason = unit.reason.unwrap();
        assert_eq!(json!(reason.code), "refused", "{address}: {reason:?}");
        assert_eq!(unit.attempt, 1, "{address}: a rejected address is not retried");
    }

    let mut moved = String::from("preStart:\n");
    for (unit, location) in [("moved", inside[0]), ("near", "/elsewhere")] {
        harness.receiver.always(&format!("POST /{unit}"), CannedReply::status(307).header("location", location));
        moved += &format!("  {unit}: {{retry: {{attempts: 1}}, webhook: {{url: \"RECEIVER/{unit}\"}}}}\n");
    }
    harness.begin("b", "moved", &moved).await;
    for unit in ["moved", "near"] {
        let unit = harness.unit("b", "preStart", unit, UnitState::Failed).await;
        assert_eq!(unit.reason.unwrap().message, "the server answered 307");
    }
    assert_eq!(harness.receiver.count("POST /elsewhere"), 0, "a redirect was followed");
}
